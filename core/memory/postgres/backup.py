"""A PostgreSQL bank in one file, all of one moment, and a bank made from such a file: the rows of its tables by COPY.

pg_dump as well fails on row-level security, which here holds for the owner too. The file is a ZIP archive with
`bank.json` and a file of each table's rows as text, so each has a checksum, and one that was cut off is no archive.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from core.errors import UserError
from core.jsonl import refused
from core.memory.postgres.setup import SCHEMA, TENANTS
from core.memory.postgres.store import PostgresStore
from core.textfile import into_place

HEAD, FORMAT = "bank.json", "reasoning memory in PostgreSQL"
TABLES = ("meta", "members", "journal", *TENANTS)
COLUMNS = "SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute "
COLUMNS += "WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped"
NUMBERED = {"records": "rowid", "jobs": "rowid", **{name: "step" for name in TENANTS if name.startswith("undo_")}}
# Numbers of removed records are not given again: the rows that bring them back have them.
TAKEN = "SELECT max(n) FROM (SELECT {0} AS n FROM {1} UNION ALL SELECT {0} FROM undo_records) t"


def backup(store: PostgresStore, file: Path) -> int:
    """Copy a bank into a new file; returns the number of records. UserError if there is one, or for a bound role."""
    if file.exists():
        raise UserError(f"there is a file {file} already: give the backup another name, or move that one away.")
    partial = file.with_name(f"{file.name}.partial")
    if not store.sees_all:
        raise UserError(f"the bank {store.path}: the role sees only tenants that it is bound to: back up as the owner.")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with (
            zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive,
            _explained("no backup can be made"),
            store.of(None).reading() as db,
        ):
            db.pg.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            columns = {table: db.execute(COLUMNS, (table,)).fetchone()[0] for table in TABLES}
            n = db.execute("SELECT count(*) FROM records").fetchone()[0]
            archive.writestr(HEAD, json.dumps({"format": FORMAT, "schema": SCHEMA, "n": n, "columns": columns}))
            for table, names in columns.items():
                query = f"COPY (SELECT {names} FROM {table}) TO STDOUT"
                with archive.open(table, "w", force_zip64=True) as entry, db.pg.cursor().copy(query) as rows:
                    for data in rows:
                        entry.write(data)
            db.pg.execute("COMMIT")
        into_place(partial, file)
    except OSError as error:
        raise refused(file, error) from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
    return n


def restore(file: Path, opened: Callable[[], PostgresStore]) -> int:
    """Fill an empty database with a backup, as the owner of its tables; returns the number of records.

    opened   opens the database, and makes the tables if there are none

    UserError, with nothing done, for a damaged backup and for a bank that is there.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            head = json.loads(archive.read(HEAD))
            if damaged := archive.testzip():
                raise zipfile.BadZipFile(f"its part {damaged}")
            n, columns, version = head["n"], head["columns"], (head["format"], head["schema"])
    except (zipfile.BadZipFile, zlib.error, LookupError, ValueError, EOFError, NotImplementedError, OSError) as error:
        raise UserError(f"{file} is damaged, or no backup of a bank in PostgreSQL ({error}).") from error
    if version != (FORMAT, SCHEMA):
        raise UserError(f"{file} is of another version of the bank (schema {version[1]}, here {SCHEMA}).")
    with zipfile.ZipFile(file) as archive, closing(opened()) as store:
        _fill(store, archive, columns)
    return n


def _fill(store: PostgresStore, archive: zipfile.ZipFile, columns: dict[str, str]) -> None:
    """Copy the rows of a backup into a bank without any. UserError for a bank that has some."""
    with _explained("the backup cannot be restored"), store.of(None).unjournaled() as db:
        if db.execute("SELECT EXISTS (SELECT FROM journal) OR EXISTS (SELECT FROM records)").fetchone()[0]:
            raise UserError(f"the bank {store.path} is there already, and stays: give an empty database.")
        db.execute("DELETE FROM meta")
        for table in columns.keys() - {"members"}:
            forced = "FORCE ROW LEVEL SECURITY" if table in TENANTS else ""
            # COPY is refused where row-level security holds, and no trigger may add what the backup has.
            db.script(f"ALTER TABLE {table} {forced and f'NO {forced}, '}DISABLE TRIGGER USER")
            query = f"COPY {table} ({columns[table]}) FROM STDIN"
            with archive.open(table) as entry, db.pg.cursor().copy(query) as rows:
                while data := entry.read(1 << 16):
                    rows.write(data)
            db.script(f"ALTER TABLE {table} {forced and f'{forced}, '}ENABLE TRIGGER USER")
        for line in archive.read("members").decode().splitlines():
            db.execute("SELECT bind_role($1::name, $2)", line.split("\t"))  # with the policies for it
        for table, column in NUMBERED.items():
            last = TAKEN.format(column, table) if table == "records" else f"SELECT max({column}) FROM {table}"
            db.execute(f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'), ({last}))")
        last = f"greatest(({TAKEN.format('key_row', 'records')}), (SELECT max(origin) FROM keys), 1)"
        db.execute(f"SELECT setval('key_rows', {last})")


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Turn the errors of psycopg that the store does not expect into a UserError."""
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        raise UserError(f"{what}: {str(error).splitlines()[0]}.") from error
