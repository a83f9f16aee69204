"""Opens the database that a bank's path names. Only here is a PostgreSQL URL told from an SQLite file."""

from __future__ import annotations

import re
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.memory.records import id_in_bank
from core.memory.sqlite.damage import check_integrity
from core.memory.sqlite.journal_file import path_of
from core.memory.sqlite.store import SqliteStore
from core.memory.store.contract import BankStore
from core.memory.store.schema import to_record
from core.types import MemoryRecord

# One slash, because Path() collapses // to /. +psycopg, +asyncpg: as SQLAlchemy writes it. A drive (C:/) is no URL.
_POSTGRES = re.compile(r"\s*postgres(?:ql)?(?:\+\w+)?:/+", re.IGNORECASE)
_URL = re.compile(r"\s*((?:[A-Za-z][A-Za-z0-9+.-]+:)+)/")
_NAMED = re.compile(  # other ways to name a database: sqlite:FILE, user:password@host, host=H password=P, :memory:
    r"(?i)\s*((?:postgres(?:ql)?|sqlite3?|mysql|mariadb|jdbc|file):|[^/\\\s:@]+:[^/\\\s@]+@|"
    r"(?:host|hostaddr|port|dbname|user|password)\s*=|:memory:)"
)
_VARIABLE = re.compile(  # ${X}, $(X), {{X}}, %X%, $X as a folder
    r"\$\{[^}]*\}|\$\([^)]*\)|\{\{[^}]*\}\}|%[A-Za-z_]\w*%|(?<![^/\\])\$[A-Za-z_][\w:]*"
)


def open_store(path: str | Path, *, read_only: bool = False, how: Any = None) -> BankStore:
    """Open the database that a bank's path names: a PostgreSQL URL or an SQLite file.

    how   `memory.store`: PostgreSQL's settings, or what opens another database; None: defaults
    """
    if (file := file_of(path)) is None:
        from core.memory.postgres.store import Postgres

        return (how or Postgres()).open(_POSTGRES.sub("postgresql://", str(path)).strip(), read_only=read_only)
    if how is not None:
        return how.open(str(path), read_only=read_only)
    if file.is_dir():
        raise UserError(f"the bank's path {path} is a folder: give the path of a file, such as {file / 'bank.sqlite'}.")
    return SqliteStore(file, read_only=read_only)


def file_of(path: str | Path) -> Path | None:
    """The SQLite file that a path names; None for a PostgreSQL URL. UserError for any other URL, and for no path."""
    text = str(path)
    if _POSTGRES.match(text):
        return None
    if url := _URL.match(text):
        raise UserError(  # not the whole URL: it may hold a password
            f"a bank at {url[1]}//... cannot be opened: give the path of a file, or postgresql://USER@HOST/DATABASE."
        )
    if named := _NAMED.match(text):
        what = named[1] if named[1].endswith(":") else "that is no path"
        raise UserError(f"a bank {what} cannot be opened: give the path of a file, or postgresql://USER@HOST/DATABASE.")
    if not text.strip() or "\x00" in text:
        raise UserError("the bank's path is empty: give the path of a file, or postgresql://USER@HOST/DATABASE.")
    if variable := _VARIABLE.search(text):
        raise UserError(
            f"the bank's path holds {variable[0]}, which nothing has replaced by a value: give the path itself."
        )
    return Path(path)


def has_bank(path: str | Path) -> bool:
    """Whether there is a file at a bank's path, or the journal that it can be rebuilt from; a URL counts as there."""
    return (file := file_of(path)) is None or file.exists() or path_of(file).exists()


def embedder_of(path: str | Path, *, read_only: bool = False) -> str | None:
    """Name of a bank's embedder; None if there is no bank or it is empty."""
    if not has_bank(path):
        return None
    with closing(open_store(path, read_only=read_only)) as store:
        return store.meta("embedder")


def first_tick(path: str | Path, namespace: str, run_dir: str) -> int | None:
    """The tick at which a run began in a bank that it was given; None if it has added nothing, or from elsewhere.

    run_dir   the run's directory, resolved
    """
    found = read_fact(path, namespace, f"began:{id_in_bank(run_dir)}")
    return None if found is None else int(found)


def read_fact(path: str | Path, namespace: str, key: str) -> str | None:
    """A fact of a bank opened read-only; None if there is no such fact, or no file."""
    if (file := file_of(path)) is not None and not file.is_file():
        return None
    with closing(open_store(path, read_only=True)) as store:
        found = store.of(namespace).rows("SELECT value FROM facts WHERE namespace = $1 AND key = $2", (namespace, key))
    return found[0][0] if found else None


def damage_of(path: Path) -> str | None:
    """Why a bank's file is not what was written: damage, or a repair from what was left; None if it is, or is new."""
    try:
        if reason := check_integrity(path):
            return reason
    except UserError as error:  # it is no bank at all any more
        return str(error)
    if not path.exists() or path.stat().st_size == 0:
        return None
    with suppress(UserError), closing(open_store(path, read_only=True)) as store:  # opening it to write says the same
        reason = store.meta("rebuilt")
        return reason and f"rebuilt: {reason}"
    return None


def read_records(path: str | Path, namespace: str, *, vectors: bool = False) -> list[MemoryRecord]:
    """Read the records of a namespace, oldest first, from a bank opened read-only. vectors: with embeddings.

    Returns [] if there is no file. Creates no files. Raises UserError if the file is damaged or no bank.
    """
    if (file := file_of(path)) is not None and not file.is_file():
        return []
    with closing(open_store(path, read_only=True)) as store:
        select = store.dialect.records if vectors else f"{store.dialect.bare} FROM records r"
        rows = store.of(namespace).rows(f"{select} WHERE r.namespace = $1 ORDER BY r.rowid", (namespace,))
    return [to_record(row, path) for row in rows]
