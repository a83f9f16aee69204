"""Creates a bank's tables in PostgreSQL, with undo triggers, row-level security by namespace, and HNSW graphs."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.memory.store.schema import TRACKED, column_of_tags

SCHEMA, OLDER = "6", ("2", "3", "4", "5")
LOCK = "hashtext('reasoningbank:' || current_schema())"
GRAPHS = {"vectors": "vectors_graph", "item_vectors": "item_vectors_graph"}  # table: its index
TENANTS = (  # tables whose rows belong to a namespace
    *("records", "vectors", "item_vectors", "lineage", "links", "facts", "jobs"),
    *(f"undo_{table}" for table in TRACKED),
)
_COLUMNS, _N_KEY = TRACKED["records"]
_TRACKED = TRACKED | {"records": ((*_COLUMNS, "vector_row"), _N_KEY)}
_HERE = "to_regclass(quote_ident(current_schema()) || '.{name}')"  # only in the first schema on search_path
HAS_GRAPH = (
    f"SELECT EXISTS (SELECT FROM pg_index WHERE indexrelid = {_HERE.format(name='{table}_graph')} AND indisvalid)"
)
_MAKER = "'vectors'::regclass::oid::bigint"  # advisory lock for building a graph


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
            _upgrade(db, found)
        return
    run = db.script
    run(_file("tables.sql"))
    run(_file("triggers.sql"))
    for table, (columns, n_key) in _TRACKED.items():
        run(_undo(table, columns[n_key:]) + _keep_undo(table, columns, n_key))
    run(_file("keys.sql"))
    run(_file("tenants.sql"))
    for table in TENANTS:
        run(_held_apart(table))
    db.execute("INSERT INTO meta VALUES ('schema', $1)", (SCHEMA,))


def _upgrade(db: Any, found: str) -> None:
    """Upgrade: folded_tags (tags normalised for comparison) came with schema 3, keys.sql with 4, tenants.sql with 5.

    Up to 5 there was an index of words.
    """
    if found == "2":
        _add_folded_tags(db)
    if found in ("2", "3"):
        _upgrade_keys(db)
    if found != "5":
        db.script("ALTER TABLE jobs DROP CONSTRAINT jobs_pkey;" + _file("tenants.sql"))
        # Reasons that name what was forgotten, with digests: every tenant reads the journal.
        db.execute("UPDATE journal SET reason = 'forget' WHERE reason LIKE 'forget; %'")
    db.script(
        "DROP FUNCTION enter_vector_row, enter_words, change_words, drop_words CASCADE;"
        "DROP TABLE lexicon, lexicon_size; DROP FUNCTION words_of;" + _file("triggers.sql")
    )
    db.execute("UPDATE meta SET value = $1 WHERE key = 'schema'", (SCHEMA,))


def _upgrade_keys(db: Any) -> None:
    db.script(
        "ALTER TABLE records DROP CONSTRAINT records_namespace_id_key,"
        "DROP CONSTRAINT records_rowid_id_namespace_key; ALTER TABLE lineage DROP CONSTRAINT lineage_pkey;"
        "ALTER TABLE links DROP CONSTRAINT links_pkey;"
        "DROP INDEX records_by_task, links_by_target, undo_records_by_key, undo_links_by_key, undo_facts_by_key;"
    )
    db.script(_file("keys.sql"))


def _add_folded_tags(db: Any) -> None:
    db.script(
        "LOCK TABLE records, undo_records;"
        "ALTER TABLE records ADD folded_tags text NOT NULL DEFAULT '[]', DISABLE TRIGGER USER;"
        "ALTER TABLE records ALTER folded_tags DROP DEFAULT; ALTER TABLE undo_records ADD folded_tags text;"
        "DROP FUNCTION undo_INSERT_records, undo_UPDATE_records, undo_DELETE_records CASCADE;"
    )
    for table in ("records", "undo_records"):
        known = db.rows(f"SELECT DISTINCT tags FROM {table} WHERE tags IS NOT NULL", ())
        folded = [(column_of_tags(json.loads(tags)), tags) for (tags,) in known]
        db.executemany(f"UPDATE {table} SET folded_tags = $1 WHERE tags = $2", folded)
    db.script("ALTER TABLE records ENABLE TRIGGER USER;" + _keep_undo("records", *_TRACKED["records"]))


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
    """Build missing graphs for tables with at least `least` vectors, if the role owns them.

    One process builds them; meanwhile searches are exact.
    """
    for table in [table for table in GRAPHS if dim is not None and _lacks(db, table, least)]:
        if db.execute(f"SELECT pg_try_advisory_lock({_MAKER})").fetchone()[0]:
            logging.getLogger(__name__).info(f"{table}: the graph for memory.index=hnsw is being made")
            _make(db, table, dim)
            db.execute(f"SELECT pg_advisory_unlock({_MAKER})")


def rebuild_graphs(db: Any, dim: int | None) -> Iterator[str]:
    """Rebuild the existing graphs; yields a line about each."""
    for table, index in GRAPHS.items():
        if db.execute(f"SELECT {_HERE.format(name=index)} IS NOT NULL").fetchone()[0]:
            _make(db, table, dim)
            yield f"the graph of {table} is made anew"


def _lacks(db: Any, table: str, least: int) -> bool:
    if db.execute(HAS_GRAPH.format(table=table)).fetchone()[0]:
        return False
    db.set_namespace("*")
    owned = f"pg_has_role((SELECT relowner FROM pg_class WHERE oid = '{table}'::regclass), 'USAGE')"
    found = f"SELECT count(*) >= $1 AND {owned} FROM (SELECT FROM {table} LIMIT {int(least)}) enough"
    return db.execute(found, (least,)).fetchone()[0]


def _make(db: Any, table: str, dim: int | None) -> None:
    """Build a graph without blocking writers. Its numbers have 16 bits; `PostgresSearch` re-ranks hits exactly."""
    [(here,)] = db.rows("SELECT quote_ident(current_schema())", ())
    db.execute(f"DROP INDEX IF EXISTS {here}.{GRAPHS[table]}")  # left unfinished by a crash
    db.execute("SET maintenance_work_mem = '512MB'")
    graph = f"hnsw ((vector::halfvec({dim})) halfvec_ip_ops) WITH (m = 16, ef_construction = 32)"
    db.execute(f"CREATE INDEX CONCURRENTLY {GRAPHS[table]} ON {table} USING {graph}")
    db.execute("RESET maintenance_work_mem")
    db.execute(f"ANALYZE {table}, records")
