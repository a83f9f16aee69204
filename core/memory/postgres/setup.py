"""Creates a bank's tables in PostgreSQL, with undo triggers, row-level security by namespace, and HNSW graphs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.memory.store.keys import ITEM, KINDS, QUERY, pass_all_keys
from core.memory.store.schema import TRACKED

SCHEMA, OLDER = "8", ("4", "5", "6")
LOCK = "hashtext('reasoningbank:' || current_schema())"
TENANTS = (  # tables whose rows belong to a namespace
    *("records", "keys", "heirs", "lineage", "links", "facts", "jobs"),
    *(f"undo_{table}" for table in TRACKED),
)
_COLUMNS, _N_KEY = TRACKED["records"]
_TRACKED = TRACKED | {"records": ((*_COLUMNS, "key_row"), _N_KEY)}
_HERE = "to_regclass(quote_ident(current_schema()) || '.{name}')"  # only in the first schema on search_path
HAS_GRAPH = (
    f"SELECT EXISTS (SELECT FROM pg_index WHERE indexrelid = {_HERE.format(name='keys_{kind}_graph')} AND indisvalid)"
)
_MAKER = "'keys'::regclass::oid::bigint"  # advisory lock for building a graph


def version(db: Any) -> str | None:
    """Number of the bank's schema; None: no bank. UserError if the first schema on search_path cannot be used."""
    path, here = db.execute("SELECT current_setting('search_path'), current_schema()::text").fetchone()
    first = path.partition(",")[0].strip().strip('"')
    if here is None or first not in ("$user", here):
        raise UserError(f"the bank's schema {first} (search_path) is not in the database, or the role may not use it.")
    there = " AND ".join(f"{_HERE.format(name=name)} IS NOT NULL" for name in ("records", "meta"))
    if not db.execute(f"SELECT {there}").fetchone()[0]:
        return None
    return db.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()[0]


def create(db: Any) -> None:
    """Create the bank's tables, or upgrade older ones, inside the caller's transaction.

    Does nothing if another process has just done it.
    """
    if (found := version(db)) is not None:
        if found in OLDER:
            _upgrade(db)
        return
    run = db.script
    run(_file("tables.sql"))
    run(_file("keys_table.sql"))
    run(_file("triggers.sql"))
    for table, (columns, n_key) in _TRACKED.items():
        run(_undo(table, columns[n_key:]) + _keep_undo(table, columns, n_key))
    run(_file("keys.sql"))
    run(_file("tenants.sql"))
    for table in TENANTS:
        run(_held_apart(table))
    db.execute("INSERT INTO meta VALUES ('schema', $1)", (SCHEMA,))


def _upgrade(db: Any) -> None:
    """Upgrade from schema 4, of version 0.1.0, to 8: keys in one table, tenants.sql, no index of words."""
    db.script(
        "DROP FUNCTION IF EXISTS enter_vector_row, enter_words, change_words, drop_words, "
        "record_added, record_changed, record_gone CASCADE;"
    )
    db.script(
        "DROP TABLE IF EXISTS lexicon, lexicon_size; DROP FUNCTION IF EXISTS words_of; DROP INDEX records_by_vector;"
        "ALTER TABLE jobs DROP CONSTRAINT IF EXISTS jobs_pkey;"
        "ALTER TABLE records RENAME vector_row TO key_row; ALTER TABLE undo_records RENAME vector_row TO key_row;"
    )
    db.script(_file("tenants.sql") + _file("keys_table.sql"))
    db.execute("INSERT INTO keys SELECT rowid, 'query', -1, vector, namespace FROM vectors")
    db.execute("SELECT setval('key_rows', nextval('vectors_rowid_seq'))")
    made_for = db.execute("SELECT value FROM meta WHERE key = 'items_by'").fetchone()
    if made_for == (ITEM,):  # other keys of lessons are made anew when they are wanted
        db.execute("INSERT INTO keys SELECT record, $1, place, vector, namespace FROM item_vectors", (ITEM,))
        db.execute("INSERT INTO meta VALUES ('kinds', $1)", (f"{QUERY},{ITEM}",))
    db.execute("INSERT INTO meta VALUES ('unembedded', '1') ON CONFLICT DO NOTHING")  # some had lost their vectors
    db.execute("DELETE FROM meta WHERE key IN ('items_by', 'drops_vectors')")
    db.script("DROP TABLE vectors, item_vectors;" + _file("triggers.sql"))
    for event in ("INSERT", "UPDATE", "DELETE"):
        db.script(f"DROP FUNCTION undo_{event}_records CASCADE;")
    db.script(_keep_undo("records", *_TRACKED["records"]) + _held_apart("keys") + _held_apart("heirs"))
    # Reasons that name what was forgotten, with digests: every tenant reads the journal.
    db.execute("UPDATE journal SET reason = 'forget' WHERE reason LIKE 'forget; %'")
    pass_all_keys(db, None)
    db.execute("UPDATE meta SET value = $1 WHERE key = 'schema'", (SCHEMA,))


def _file(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def _undo(table: str, values: tuple[str, ...]) -> str:
    """SQL of a table's undo table. As in SQLite (core/memory/sqlite/setup.py): old rows, or the key of a new row.

    values   the columns that are no part of the key
    """
    made = f"CREATE TABLE undo_{table} (step bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, seq bigint NOT NULL, "
    made += f"was_there boolean NOT NULL, LIKE {table});"
    for name in values:
        made += f"ALTER TABLE undo_{table} ALTER COLUMN {name} DROP NOT NULL;"
    return made + f"CREATE INDEX undo_{table}_by_seq ON undo_{table} (seq);"


def _keep_undo(table: str, columns: tuple[str, ...], n_key: int) -> str:
    made = ""
    for event, rows in (("INSERT", "NEW"), ("UPDATE", "OLD"), ("DELETE", "OLD")):
        names = ", ".join(columns if rows == "OLD" else columns[:n_key])
        made += f"""
        CREATE FUNCTION undo_{event}_{table}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            INSERT INTO undo_{table} (seq, was_there, {names})
                SELECT (SELECT coalesce(max(seq), 0) + 1 FROM journal), {rows == "OLD"}, {names} FROM kept_rows;
            RETURN NULL;
        END $$;
        CREATE TRIGGER undo_{event}_{table} AFTER {event} ON {table} REFERENCING {rows} TABLE AS kept_rows
            FOR EACH STATEMENT EXECUTE FUNCTION undo_{event}_{table}();"""
    return made


def _held_apart(table: str) -> str:
    """SQL of row-level security, also for the owner: only the session's namespace; `bind_role` restricts further."""
    said = "current_setting('reasoningbank.namespace', true)"
    return f"""
        ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
        ALTER TABLE {table} FORCE ROW LEVEL SECURITY;
        CREATE POLICY said ON {table} USING (namespace = {said} OR {said} = '*');"""


def ensure_graphs(db: Any, dim: int | None, least: int) -> None:
    """Build missing graphs of kinds with at least `least` keys, if the role owns the table.

    One process builds them; meanwhile searches are exact.
    """
    for kind in [kind for kind in KINDS if dim is not None and _lacks(db, kind, least)]:
        if db.execute(f"SELECT pg_try_advisory_lock({_MAKER})").fetchone()[0]:
            logging.getLogger(__name__).info(f"{kind}: the graph for memory.index=hnsw is being made")
            _make(db, kind, dim)
            db.execute(f"SELECT pg_advisory_unlock({_MAKER})")


def rebuild_graphs(db: Any, dim: int | None) -> Iterator[str]:
    """Rebuild the existing graphs; yields a line about each."""
    for kind in KINDS:
        if db.execute(f"SELECT {_HERE.format(name=f'keys_{kind}_graph')} IS NOT NULL").fetchone()[0]:
            _make(db, kind, dim)
            yield f"the graph of the keys of kind {kind} is made anew"


def _lacks(db: Any, kind: str, least: int) -> bool:
    if db.execute(HAS_GRAPH.format(kind=kind)).fetchone()[0]:
        return False
    db.set_namespace("*")
    owned = "pg_has_role((SELECT relowner FROM pg_class WHERE oid = 'keys'::regclass), 'USAGE')"
    some = f"SELECT FROM keys WHERE kind = '{kind}' LIMIT {int(least)}"
    return db.execute(f"SELECT count(*) >= $1 AND {owned} FROM ({some}) enough", (least,)).fetchone()[0]


def _make(db: Any, kind: str, dim: int | None) -> None:
    """Build a graph without blocking writers. Its numbers have 16 bits; `PostgresSearch` re-ranks hits exactly."""
    [(here,)] = db.rows("SELECT quote_ident(current_schema())", ())
    db.execute(f"DROP INDEX IF EXISTS {here}.keys_{kind}_graph")  # left unfinished by a crash
    db.execute("SET maintenance_work_mem = '512MB'")
    graph = f"hnsw ((vector::halfvec({dim})) halfvec_ip_ops) WITH (m = 16, ef_construction = 32)"
    db.execute(f"CREATE INDEX CONCURRENTLY keys_{kind}_graph ON keys USING {graph} WHERE kind = '{kind}'")
    db.execute("RESET maintenance_work_mem")
    db.execute("ANALYZE keys, records")
