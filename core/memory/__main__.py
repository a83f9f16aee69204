"""reasoningbank bank COMMAND BANK ...: look into a bank, change it, carry it elsewhere, mend it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from core.errors import InfraError, UserError
from core.memory import commands, formats
from core.memory.filter import STATUSES
from core.memory.formats import FORMATS
from core.memory.place import HERE, unnamed_bank
from core.memory.records import n_records
from core.models.embedding import MINILM, NamedEmbedder
from core.terminal import after_output_failed, open_standard_streams, refuse_little_memory
from core.version import VersionAction

NAMES = (
    "stats list_ show search add edit mark status review export import_ consolidate "
    "reembed snapshot rollback forget retry compact doctor"
).split()
COMMANDS = {name.strip("_"): getattr(commands, name) for name in NAMES}
WRITES = "add edit mark status review import consolidate reembed snapshot rollback forget retry compact doctor".split()
MAKES = ("add", "import")  # a bank that is not there yet


def main(argv: list[str] | None = None) -> int:
    """The exit code: 0, 1 where a command did nothing, or 2 with one sentence for bad input."""
    refuse_little_memory()
    open_standard_streams()
    given = parser().parse_args(argv)
    if named := getattr(given, "named", None):
        if given.bank != HERE:
            parser().error(f"the bank is {given.bank} or --bank {named}: give one of them")
        given.bank = named
    if given.bank == HERE:
        given.bank, why = unnamed_bank()
        print(f"the bank is {given.bank}, {why}.", file=sys.stderr)
    try:
        if given.command in ("backup", "restore"):
            status = printed(copied(given))
            sys.stdout.flush()
            return status
        bank, is_new = open_bank(given)
        with closing(bank):
            status = printed(COMMANDS[given.command](bank, given))
        if is_new:
            print(f"new bank made at {given.bank}.", file=sys.stderr)
        sys.stdout.flush()
    except (UserError, InfraError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        return after_output_failed(error)
    return status


def printed(lines: Iterator[str]) -> int:
    """Print what a command yields; returns what it returns, None: 0. Says on stderr that there was nothing."""
    n = 0
    while True:
        try:
            print(next(lines))
            n += 1
        except StopIteration as end:
            if not n:
                print("nothing is there to show.", file=sys.stderr)
            return end.value or 0


def copied(given: argparse.Namespace) -> Iterator[str]:
    """Back a bank up, or restore it."""
    from core.memory.open import file_of, open_store

    bank, aside = file_of(given.bank), None
    if given.command == "backup":
        if bank is None:
            from core.memory.postgres import backup as postgres

            store: Any = open_store(given.bank, read_only=True)  # of PostgreSQL, as `file_of` says
            with closing(store):
                n = postgres.backup(store, given.file)
        else:
            from core.memory.sqlite.backup import backup

            n = backup(bank, given.file)
        yield f"{n_records(n)} backed up to {given.file}, and checked"
        return
    if bank is None:
        from core.memory.postgres import backup as postgres

        opened: Any = partial(open_store, given.bank)
        n = postgres.restore(given.file, opened)
    else:
        from core.memory.sqlite.backup import restore

        n, aside = restore(given.file, bank, replace=given.replace)
    yield f"{n_records(n)} restored to {given.bank}, and checked"
    if aside is not None:
        yield f"the bank that was there is {aside} now"


def open_bank(given: argparse.Namespace) -> tuple[Any, bool]:
    """(the bank of the command line, whether it is new): for reading only, unless the command changes it."""
    from core.memory.bank import MemoryBank
    from core.memory.open import embedder_of, file_of, has_bank
    from core.memory.policies.cosine import Cosine
    from core.memory.sqlite.damage import check_integrity
    from core.memory.sqlite.repair import repair

    path = given.bank
    if (file := file_of(path)) is not None:
        if given.command == "doctor" and (reason := check_integrity(file, thorough=True)):
            repair(file, reason)
        if not has_bank(file) and given.command not in MAKES:
            raise UserError(f"there is no bank {file}.")
    lists_snapshots = given.command == "snapshot" and given.name is None
    lists_waiting = given.command == "review" and not (given.approve or given.reject)
    read_only = given.command not in WRITES or lists_snapshots or lists_waiting
    name = getattr(given, "embedder", None) or embedder_of(path, read_only=read_only) or MINILM
    namespace = getattr(given, "namespace", None) or "default"
    embedder = NamedEmbedder(name=name)
    clock = getattr(given, "clock", "stream")
    is_new = not has_bank(path)
    how = {"embedder": embedder, "policy": Cosine(), "namespace": namespace, "clock": clock, "read_only": read_only}
    if given.command == "import" and given.group and given.namespace:
        raise UserError("give --group or --namespace: a group's lessons are those of the namespace of its name.")
    if is_new and given.command == "import":  # what is refused leaves no bank behind
        with TemporaryDirectory() as folder, closing(MemoryBank(path=f"{folder}/bank.sqlite", **how)) as trial:
            form, space = given.format or formats.by_name(given.file), given.group or given.namespace
            formats.read(trial, given.file, form, space, authors=bool(given.group))
    return MemoryBank(path=str(path), **how), is_new


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    top = argparse.ArgumentParser(prog="reasoningbank bank", description=(__doc__ or "").partition(": ")[2])
    top.add_argument("--version", action=VersionAction)
    add = top.add_subparsers(dest="command", required=True, metavar="COMMAND").add_parser
    one = {name: add(name, help=do.__doc__, description=do.__doc__) for name, do in COMMANDS.items()}
    where = "the bank's SQLite file, the URL of a PostgreSQL database, or . for the bank of the repository you are in"
    for name, sub in one.items():
        beside_a_file = name in ("export", "import")
        how: dict[str, Any] = {} if beside_a_file else {"nargs": "?", "default": HERE}
        sub.add_argument("bank", metavar="BANK", help=where + (", as if it is left out" if how else ""), **how)
        if how:  # as the server's commands take it
            sub.add_argument("--bank", dest="named", metavar="BANK", help=argparse.SUPPRESS)
    for name, what in (("backup", "copy a bank into one file"), ("restore", "make a bank from a backup")):
        sub = add(name, help=what, description=f"{what}; every page of the copy is checked")
        for word in ("bank", "file") if name == "backup" else ("file", "bank"):
            sub.add_argument(word, metavar=word.upper(), type=Path if word == "file" else str)
    sub.add_argument("--replace", action="store_true", help="set a bank aside that is there (SQLite)")
    for name in ("stats", "list", "show", "search"):
        one[name].add_argument("--json", action="store_true", help="one JSON object a line")
    left_out = {
        "list": "all",
        "export": "all",
        "rollback": "all",
        "review": "all to show, default to decide",
        "import": "each record's own",
    }
    for name in one:
        if name not in ("stats", "compact", "doctor", "reembed", "retry"):
            one[name].add_argument("--namespace", help=f"a tenant; left out: {left_out.get(name, 'default')}")
    for name in ("show", "mark", "status"):
        one[name].add_argument("id", metavar="ID")
    one["list"].add_argument("--status", help="only records of this status")
    one["list"].add_argument("--limit", type=int, default=0, metavar="N", help="only the last N")
    one["search"].add_argument("query", metavar="QUERY")
    one["search"].add_argument("--k", type=int, default=5, metavar="K")
    one["search"].add_argument("--lexical", action="store_true", help="by words (BM25), not by meaning")
    for name in ("search", "add"):
        one[name].add_argument("--domain")
        one[name].add_argument("--tag", action="append", help="may be repeated")
    one["search"].add_argument("--outcome", choices=("success", "failure"))
    one["add"].add_argument("--outcome", choices=("success", "failure"), default="success")
    for name in ("query", "title", "description", "content"):
        one["add"].add_argument(f"--{name}", required=True)
    one["add"].add_argument("--task", help="id of the task it comes from; that task never retrieves it")
    for name in MAKES:
        one[name].add_argument("--embedder", help=f"of a new bank: {MINILM}, hashing-256 or a provider's model")
    one["mark"].add_argument("verdict", choices=("helpful", "harmful"))
    one["status"].add_argument("status", choices=STATUSES)
    one["review"].add_argument("--approve", nargs="+", metavar="ID", help="retrieved from now on")
    one["review"].add_argument("--reject", nargs="+", metavar="ID", help="archived")
    for name in ("export", "import"):
        one[name].add_argument("file", type=Path, metavar="FILE")
        one[name].add_argument("--format", choices=FORMATS, help="left out: markdown for a name in .md, else jsonl")
    group = "into the memory that all of a group read (docs/mcp.md); from whom each lesson is stays known"
    one["import"].add_argument("--group", metavar="NAME", help=group)
    sub = one["consolidate"]
    sub.add_argument("--only", action="append", choices=("deduplicate", "merge", "contradict", "prune"))
    by = "a cross-encoder looks for contradictions: its name or folder, left out the usual one"
    sub.add_argument("--contradict", nargs="?", const="", metavar="MODEL", help=by)
    many = "what contradicts so many lessons that were used 5 times or more goes to quarantine"
    sub.add_argument("--many", type=int, metavar="N", help=many)
    later = "delete what prune archived, so many days after it was due for that; left out: never"
    sub.add_argument("--delete-after-days", type=float, metavar="DAYS", help=later)
    ages = "what ages are counted in: tasks of a run, or days, as for the bank of a server; left out: stream"
    sub.add_argument("--clock", choices=("stream", "wall"), default="stream", help=ages)
    key = "the memory.key that the bank is opened with from now on; left out: joined, as the MCP server has it"
    one["reembed"].add_argument("--key", choices=("item", "joined"), default="joined", help=key)
    one["snapshot"].add_argument("name", nargs="?", metavar="NAME", help="left out: list snapshots and changes")
    one["snapshot"].add_argument("--limit", type=int, default=20, metavar="N", help="changes listed")
    one["rollback"].add_argument("--to", required=True, metavar="CHANGE", help="number of a change, or a snapshot")
    chosen = one["forget"].add_mutually_exclusive_group(required=True)
    for name in ("id", "task", "run"):
        chosen.add_argument(f"--{name}")
    return top


if __name__ == "__main__":
    sys.exit(main())
