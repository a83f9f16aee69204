"""What is kept of each `reasoningbank run`, and with server.holdout of each task of a client; `reasoningbank runs`.

It lies in BANK.runs.sqlite beside the bank, because the bank may itself be what broke: a table `runs` with one row of
metrics a run, a table `attempts` with the last attempts as text (`run.attempts`; none by default), and `warnings`.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import secrets
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from statistics import fmean
from typing import Any

from core.errors import UserError
from core.escaping import spreadsheet
from core.memory.hygiene.scrub import scrub
from core.memory.moment import now, since
from core.models.reply_text import without_surrogates
from core.types import Verdict, content_id
from mcp_server.config import bank_file, bank_options
from mcp_server.holdout import FIRST, PLANNED, Compared, compare, more_runs, shows

COLUMNS = {  # of the table `runs`; the command as a hash, because its words may hold keys
    "at": "TEXT",
    "agent_id": "TEXT",
    "program": "TEXT",
    "command": "TEXT",
    "task_id": "TEXT",  # a hash, of what the coin is tossed for
    "exit_status": "INTEGER",
    "verdict": "TEXT",
    "label_source": "TEXT",
    "confidence": "REAL",
    "memory_enabled": "INTEGER",
    "shown": "INTEGER",  # by the coin of a holdout: whether memory was shown; NULL: no coin was tossed
    "holdout": "REAL",
    "retrieved": "INTEGER",
    "used": "INTEGER",
    "learned": "INTEGER",
    "warnings": "INTEGER",
    "retrieve_s": "REAL",
    "duration_s": "REAL",
    "learn_s": "REAL",
    "tokens": "INTEGER",  # that the agent said it used; NULL: it said nothing
}
TABLES = (
    f"CREATE TABLE IF NOT EXISTS runs (id INTEGER PRIMARY KEY, {', '.join(map(' '.join, COLUMNS.items()))})",
    "CREATE INDEX IF NOT EXISTS runs_by_command ON runs (command)",
    "CREATE TABLE IF NOT EXISTS attempts (run INTEGER PRIMARY KEY, task TEXT, output TEXT, errors TEXT)",
    "CREATE TABLE IF NOT EXISTS warnings (at TEXT, what TEXT, why TEXT)",
    "CREATE TABLE IF NOT EXISTS coin (key TEXT)",  # drawn once
)
COUNTS = ("retrieved", "used", "learned")
Row = dict[str, Any]
BY_HAND = "hand"  # the source of a label that a person gave
INTERRUPTED = 130  # exit status of what the user broke off
_OF_CLIENT = "task_id = ? AND exit_status IS NULL"  # a command has an exit status


def file_of(bank: Path) -> Path:
    """The file with a bank's runs."""
    return bank.with_name(f"{bank.name}.runs.sqlite")


@contextmanager
def _opened(file: Path) -> Iterator[sqlite3.Connection]:
    """The open file, with its tables. Raises UserError if it cannot be opened or read."""
    try:
        with closing(sqlite3.connect(file, timeout=5)) as db, db:
            for statement in TABLES:
                db.execute(statement)
            db.execute("BEGIN IMMEDIATE")  # two programs may find an old file at once
            known = {row[1] for row in db.execute("PRAGMA table_info(runs)")}
            for name in COLUMNS.keys() - known:  # of a file that an earlier version made
                db.execute(f"ALTER TABLE runs ADD COLUMN {name} {COLUMNS[name]}")
            yield db
    except sqlite3.Error as error:
        raise UserError(f"{file}: {error}.") from error


def keep(bank: Path, command: list[str], result: Row, attempt: tuple[str, str, str], limit: Callable[[], int]) -> None:
    """Add a run, and to its result the mean duration of the earlier runs of the same command that exited with 0.

    result    the result object of the run
    attempt   (task, output, errors); kept without credentials and personal data
    limit     how many of the last attempts to keep, this one among them; 0: keep no more. It may raise UserError

    Without a folder for the bank nothing is kept: an earlier warning said so. Raises UserError if the file cannot be
    written.
    """
    if not bank.parent.is_dir():
        return
    words, verdict = [without_surrogates(word) for word in command], result["verdict"] or {}
    about = {
        "at": now(),
        "program": Path(words[0]).name,
        "command": content_id("command", words),
        "task_id": task_id(attempt[0]),
        "verdict": verdict.get("label"),
        "label_source": verdict.get("source"),
        **{name: len(result[name]) for name in (*COUNTS, "warnings")},
    }
    row = {name: about[name] if name in about else result[name] for name in COLUMNS}
    with _opened(file_of(bank)) as db:
        query = "SELECT avg(duration_s), count(*) FROM runs WHERE command = ? AND exit_status = 0"
        result["mean_duration_s"], result["earlier_runs"] = db.execute(query, (row["command"],)).fetchone()
        added = _insert(db, row)
        if most := limit():
            texts = [scrub(without_surrogates(text))[0] for text in attempt]
            db.execute("INSERT INTO attempts VALUES (?, ?, ?, ?)", (added, *texts))
            query = "DELETE FROM attempts WHERE run NOT IN (SELECT run FROM attempts ORDER BY run DESC LIMIT ?)"
            db.execute(query, (most,))


def _insert(db: sqlite3.Connection, row: Row) -> int:
    """Add a run; returns its id."""
    marks = ", ".join("?" * len(row))
    added = db.execute(f"INSERT INTO runs ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))
    return added.lastrowid or 0


def task_id(query: str, namespace: str = "", session: str = "") -> str:
    """A hash of what a coin is tossed for: the session that a client's task is in, if any, else its words."""
    return content_id("session", namespace, session) if session else content_id("task", namespace, query.split())


def draw(bank: Path, task: str, holdout: float) -> bool:
    """Toss the coin of a run's task: whether memory is shown to it. Raises UserError if the file cannot be written."""
    with _opened(file_of(bank)) as db:
        return _toss(db, task_id(task), holdout)


def _toss(db: sqlite3.Connection, id: str, holdout: float) -> bool:
    """A run that the user breaks off is not counted, so that the next one of its task falls alike: nobody can toss
    again."""
    db.execute("INSERT INTO coin SELECT ? WHERE NOT EXISTS (SELECT 1 FROM coin)", (secrets.token_hex(16),))
    [key] = db.execute("SELECT key FROM coin").fetchone()
    query = "SELECT count(*) FROM runs WHERE task_id = ? AND shown IS NOT NULL AND exit_status IS NOT ?"
    [number] = db.execute(query, (id, INTERRUPTED)).fetchone()
    return shows(key, id, number, holdout)


def begin(bank: Path, query: str, namespace: str, session: str, holdout: float) -> tuple[int, bool]:
    """Toss the coin of a client's task and note it as a run: (its id, whether memory is shown to it).

    A task is a session, where the client names one: its first coin holds for all of it, as what was shown once stays in
    the conversation. Else it is the query, and the coin holds until it is said how the task ended (`end`).
    """
    id = task_id(query, namespace, session)
    with _opened(file_of(bank)) as db:
        going = f"SELECT id, shown FROM runs WHERE {_OF_CLIENT} AND (? OR verdict IS NULL) ORDER BY id DESC"
        if known := db.execute(going, (id, bool(session))).fetchone():
            return known[0], bool(known[1])
        shown = _toss(db, id, holdout)
        about = {"at": now(), "agent_id": namespace, "program": "session" if session else "query", "task_id": id}
        counts = {"memory_enabled": True, "retrieved": 0, "warnings": 0}
        return _insert(db, about | counts | {"shown": shown, "holdout": holdout}), shown


def count_retrieved(bank: Path, run: int, n: int) -> None:
    """Count the records that a run of `begin` was shown."""
    with _opened(file_of(bank)) as db:
        db.execute("UPDATE runs SET retrieved = retrieved + ? WHERE id = ?", (n, run))


def end(bank: Path, query: str, namespace: str, session: str, verdict: Verdict, tokens: int | None = None) -> None:
    """Note how a task that `begin` has begun, if it has, ended, and how long it took; the first label counts.

    tokens   that the task took until now, which a later call may raise; None, or no possible count: not known
    """
    tokens = tokens if tokens and 0 < tokens < 2**53 else None  # a client says it, and a ratio is made of it
    if not file_of(bank).exists():
        return
    said = (verdict.label, verdict.source if verdict.label else None)
    took = "coalesce(duration_s, strftime('%s', 'now') - strftime('%s', at))"
    id, its = task_id(query, namespace, session), f"SELECT max(id) FROM runs WHERE {_OF_CLIENT}"
    with _opened(file_of(bank)) as db:
        db.execute(f"UPDATE runs SET tokens = coalesce(?, tokens) WHERE id = ({its})", (tokens, id))
        change = f"UPDATE runs SET verdict = ?, label_source = ?, duration_s = {took} WHERE id = ({its}"
        db.execute(f"{change} AND verdict IS NULL)", (*said, id))


def mark(bank: Path, run: str, label: str) -> None:
    """Say how a run ended, in place of what was said before. Raises UserError for another run or label."""
    if label not in ("success", "failure"):
        raise UserError(f"--mark {run} {label}: give success or failure.")
    with _opened(file_of(bank)) as db:
        change = "UPDATE runs SET verdict = ?, label_source = ? WHERE id = ?"
        if not db.execute(change, (label, BY_HAND, run)).rowcount:
            raise UserError(f"--mark {run}: there is no such run; `reasoningbank runs` lists them with their numbers.")


def warn(bank: Path, what: str, why: str) -> None:
    """Keep a warning for `bank_status`. Raises UserError if the file cannot be written."""
    with _opened(file_of(bank)) as db:
        db.execute("INSERT INTO warnings VALUES (?, ?, ?)", (now(), what, why))


def warned(bank: Path) -> Row:
    """{counts: {what: how often}, last} of the warnings; {} without any, {unreadable} if they cannot be read."""
    if not file_of(bank).exists():
        return {}
    try:
        with _opened(file_of(bank)) as db:
            counts = dict(db.execute("SELECT what, count(*) FROM warnings GROUP BY what"))
            last = db.execute("SELECT at, what, why FROM warnings ORDER BY rowid DESC LIMIT 1").fetchone()
    except UserError as error:
        return {"unreadable": str(error)}
    return {"counts": counts, "last": dict(zip(("at", "what", "why"), last, strict=True))} if last else {}


def read(bank: Path, start: str | None = None) -> list[Row]:
    """The runs of a bank since a time (ISO, UTC), oldest first, with `attempt` where it was kept."""
    query = "SELECT runs.*, task, output, errors FROM runs LEFT JOIN attempts ON run = id WHERE at >= ? ORDER BY id"
    with _opened(file_of(bank)) as db:
        db.row_factory = sqlite3.Row
        found = [dict(row) for row in db.execute(query, (start or "",))]
    for row in found:
        texts = {name: row.pop(name) for name in ("task", "output", "errors")}
        row["attempt"] = None if texts["task"] is None else texts
    return found


def summary(runs: list[Row]) -> Row:
    """The metrics of several runs; None where there is nothing to count.

    success_rate       of those that were judged
    new_per_100_runs   records learned
    used_per_run       records that the command's output cites
    """
    judged = [run["verdict"] == "success" for run in runs if run["verdict"]]
    won = [run for run in runs if run["verdict"] == "success"]
    return {
        "runs": len(runs),
        "success_rate": fmean(judged) if judged else None,
        "mean_duration_s": _mean(runs, "duration_s"),
        "mean_duration_of_successes_s": _mean(won, "duration_s"),
        "new_per_100_runs": _mean(runs, "learned", 100),
        "retrieved_per_run": _mean(runs, "retrieved"),
        "used_per_run": _mean(runs, "used"),
    }


def _mean(runs: list[Row], name: str, scale: int = 1) -> float | None:
    known = [run[name] for run in runs if run[name] is not None]
    return scale * fmean(known) if known else None


def comparison(runs: list[Row]) -> list[str]:
    """What memory changed, by the runs whose coin was tossed, as lines; [] without any."""
    tossed = [run for run in runs if run["shown"] is not None and run["holdout"]]
    drawn = [run for run in tossed if run["exit_status"] != INTERRUPTED]
    if not tossed:
        return []
    judged = [run for run in drawn if run["verdict"]]
    sides = sum(bool(run["shown"]) for run in drawn)
    lines = [f"compared by holdout: {sides} runs with memory, {len(drawn) - sides} without"]
    broken_off = [run for run in tossed if run["exit_status"] == INTERRUPTED]
    lines += _left_out("broken off by you, and not counted", broken_off)
    found = _compared(judged, lambda run: float(run["verdict"] == "success"), rates=True)
    lines += _left_out("not judged", [run for run in drawn if not run["verdict"]])
    sources = ", ".join(sorted({run["label_source"] for run in judged})) or "none"
    one_share = len({run["holdout"] for run in judged}) == 1
    lines.append(f"  success ({sources}): {_in_points(found, one_share)}")
    lines.append(f"  time: {_ratio([run for run in drawn if run['duration_s']], 'duration_s')}")
    lines += _left_out("their time is not known, or 0 s", [run for run in judged if not run["duration_s"]])
    if told := [run for run in drawn if run["tokens"]]:
        lines.append(f"  tokens: {_ratio(told, 'tokens')}")
        lines += _left_out("their tokens are not known", [run for run in drawn if not run["tokens"]])
    if found.low is not None and found.difference is not None:
        ends = (found.difference, found.low, found.high or 0.0)
        about, least, most = (f"{end * found.n_held:.1f}" for end in ends)
        lines.append(f"  the runs without memory cost about {about} solved tasks ({least} to {most})")
        if found.low <= 0 <= (found.high or 0):
            more = more_runs(found, drawn[-1]["holdout"])
            lines.append(f"  a difference of {100 * PLANNED:g} points would take about {more:,} runs more to show")
    return lines


def _compared(runs: list[Row], value: Callable[[Row], float], *, rates: bool) -> Compared:
    shown, values = [bool(run["shown"]) for run in runs], [value(run) for run in runs]
    return compare(shown, values, [run["holdout"] for run in runs], rates=rates)


def _left_out(why: str, runs: list[Row]) -> list[str]:
    """How many runs of each kind are not compared; nothing where there is none."""
    n = sum(bool(run["shown"]) for run in runs)
    return [f"  {why}: {n} of those with memory, {len(runs) - n} of those without"] if runs else []


def _in_points(found: Compared, one_share: bool) -> str:
    """one_share: whether the same share was held out all the time. Else the kinds are of other times, and their rates
    say nothing of each other; the difference allows for that."""
    if found.difference is None or found.low is None or found.high is None:
        return f"nothing is said before {FIRST} judged runs of each kind ({found.n_shown} and {found.n_held} so far)"
    means = f"{100 * (found.with_memory or 0):.0f} % with memory, {100 * (found.without_memory or 0):.0f} % without"
    means = means if one_share else "the share held out changed, so no rates are given"
    ends = f"{100 * found.low:+.0f} to {100 * found.high:+.0f}, at whatever run one looks"
    return f"{means}: {100 * found.difference:+.0f} points ({ends})"


def _ratio(runs: list[Row], name: str) -> str:
    """That of the geometric means, which a few long runs hardly move, and its interval; and of the averages: the bill.

    As for rates there are no averages where the share held out changed.
    """
    found = _compared(runs, lambda run: math.log(run[name]), rates=False)
    if found.difference is None or found.low is None or found.high is None:
        return f"nothing is said before {FIRST} runs of each kind"
    low, middle, high = (math.exp(each) for each in (found.low, found.difference, found.high))
    shown, held = (fmean(run[name] for run in runs if bool(run["shown"]) is kind) for kind in (True, False))
    bill = f"; on average x {shown / held:.2f}" if len({run["holdout"] for run in runs}) == 1 else ""
    return f"x {middle:.2f} with memory in a typical run ({low:.2f} to {high:.2f}){bill}"


def run_runs(argv: list[str]) -> int:
    """The command `runs`: list what `reasoningbank run` has noted; returns the exit code."""
    top = argparse.ArgumentParser(prog="reasoningbank runs", description="the metrics of earlier `reasoningbank run`s")
    bank_options(top)
    top.add_argument("--since", metavar="WHEN", help="7d, 12h, 2w or a date; left out: all")
    said = "say of a run by its number how it ended: success or failure"
    top.add_argument("--mark", nargs=2, metavar=("NUMBER", "LABEL"), help=said)
    how = top.add_mutually_exclusive_group()
    how.add_argument("--csv", metavar="FILE", help="write a row a run; - prints it")
    how.add_argument("--json", action="store_true", help="one JSON object a run, with the attempt where it was kept")
    given = top.parse_args(argv)
    start = None if given.since is None else since(given.since).isoformat(timespec="seconds")
    bank = bank_file(given)
    if not file_of(bank).exists():
        raise UserError(f"there is no {file_of(bank)}: `reasoningbank run` makes it.")
    if given.mark:
        mark(bank, *given.mark)
    runs = read(bank, start)
    if given.csv:
        write_csv(given.csv, [{name: run[name] for name in COLUMNS} for run in runs])
    elif given.json:
        print("\n".join(json.dumps(run, ensure_ascii=False) for run in runs))
    else:
        for run in runs:
            counts = ", ".join(f"{run[name]} {name}" for name in COUNTS if run[name] is not None)
            took = "" if run["duration_s"] is None else f"  {run['duration_s']:.1f} s"
            ended = f"{run['verdict'] or 'not judged':<10}{took}"
            print(f"{run['id']:>4}  {run['at']}  {ended}  {counts}  {run['program']}")
        shown = {name: "-" if value is None else f"{value:.4g}" for name, value in summary(runs).items()}
        print(", ".join(f"{name} {value}" for name, value in shown.items()))
        for line in comparison(runs):
            print(line)
    return 0


def write_csv(where: str, rows: list[Row]) -> None:
    """Write rows as CSV to a file, or to stdout for `-`. Raises UserError if the file cannot be written."""
    try:
        with nullcontext(sys.stdout) if where == "-" else Path(where).open("w", newline="", encoding="utf-8") as file:
            ends = "\n" if where == "-" else "\r\n"
            writer = csv.DictWriter(file, list(COLUMNS), lineterminator=ends)
            writer.writeheader()
            writer.writerows({name: spreadsheet(value) for name, value in row.items()} for row in rows)
    except OSError as error:
        raise UserError(f"--csv {where}: {error.strerror}.") from error
