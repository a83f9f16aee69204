"""A bank's truth in PostgreSQL with pgvector: many writers on many hosts, and the search in the database itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

from core.errors import UserError, check_numbers
from core.memory.moment import now
from core.memory.postgres import setup
from core.memory.postgres.changes import ENTER_ITEM, ENTER_VECTOR, PostgresChange
from core.memory.postgres.connection import EVERYONE, SEE_UNTIL_COMMIT, Connection, Late
from core.memory.postgres.database import PostgresDatabase
from core.memory.postgres.search import PostgresSearch
from core.memory.store.changes import Change, Embed, embedded
from core.memory.store.contract import Lead, SearchSettings
from core.memory.store.schema import LACKS_VECTOR, to_record

REMAINS = (
    "What was forgotten may still lie in what PostgreSQL has written elsewhere: its log (WAL), backups, replicas and "
    "pages that were not used again since."
)
NOT_VACUUMED = " The tables were not vacuumed, which only their owner may do: let the owner run compact."


@dataclass(kw_only=True)
class Postgres:
    """memory/store=postgres: how a bank in PostgreSQL is searched.

    ef_search     entries that a search of the graph looks at; more are nearer to exact, and slower
    exact_below   a tenant of fewer records is searched exactly, also with memory.index=hnsw
    oversample    so many times k are taken from the graph, whose numbers have 16 bits, and ordered exactly
    """

    ef_search: int = 100
    exact_below: int = 2000
    oversample: int = 4

    def __post_init__(self) -> None:
        check_numbers(self, "memory.store", "ef_search", least=1, most=1000, whole=True)
        check_numbers(self, "memory.store", "exact_below", least=0, whole=True)
        check_numbers(self, "memory.store", "oversample", least=1, whole=True)

    def open(self, path: str, *, read_only: bool = False) -> PostgresStore:
        """The store at a URL. UserError where that holds a password."""
        url = urlsplit(path)
        if url.password or {"password", "sslpassword"} & parse_qs(url.query).keys():
            bare = path.partition("?")[0].replace(f":{url.password}@", "@", 1)
            raise UserError(
                f"the bank {bare}: a run's records would hold the URL's password; give it in PGPASSWORD or in "
                "~/.pgpass."
            )
        return PostgresStore(path, self, read_only=read_only)


_JOURNAL = (
    "INSERT INTO journal SELECT coalesce(max(seq), 0) + 1, $1, (SELECT coalesce(max(tick), 0) FROM records), $2 "
    "FROM journal"
)
_MEASURED = (
    "INSERT INTO meta SELECT 'embedder_dim', vector_dims(vector)::text FROM vectors LIMIT 1 ON CONFLICT DO NOTHING"
)
_SINCE = "INSERT INTO meta SELECT 'embedder_since', at FROM journal ORDER BY seq LIMIT 1 ON CONFLICT DO NOTHING"
# What a record that is put together with the commit is asked for: an entry in the journal only if it is new.
_IF_NEW = " HAVING EXISTS (SELECT FROM records WHERE namespace = $3 AND id = $4 AND xmin = pg_current_xact_id()::xid)"


class PostgresStore(PostgresDatabase):
    """A bank in PostgreSQL; see core/memory/store/contract.py."""

    def __init__(self, url: str, how: Postgres, *, read_only: bool = False) -> None:
        self._how = how
        settings = {"hnsw.ef_search": how.ef_search, "hnsw.iterative_scan": "relaxed_order"}
        super().__init__(url, settings, read_only=read_only)

    def search(self, settings: SearchSettings) -> PostgresSearch:
        return PostgresSearch(self, settings, exact_below=self._how.exact_below, oversample=self._how.oversample)

    @contextmanager
    def change(
        self, reason: str, namespace: str, embed: Embed, embedder: str, wait_s: float | None = None
    ) -> Iterator[Change]:
        """One transaction with one journal entry; the first names the embedder."""
        noted = self.dim() is not None
        with self.of(namespace)._transaction(wait_s) as (db, last):
            change = PostgresChange(db, reason, namespace, embed, first=not noted)
            yield change
            last += change.at_commit
            if change.made or last:
                last.append(Late(SEE_UNTIL_COMMIT, (EVERYONE,)))
                entry = (now(), change.reason)
                if change.made:
                    last.append(Late(_JOURNAL, entry))
                else:
                    last.append(Late(_JOURNAL + _IF_NEW, (*entry, change.last.namespace, change.last.id)))
                if not noted:
                    last.append(Late("INSERT INTO meta VALUES ('embedder', $1) ON CONFLICT DO NOTHING", (embedder,)))
                    last += [Late(_MEASURED), Late(_SINCE)]

    def embed_missing(self, embed: Embed) -> int:
        """Give vectors to the records that want one and have none (schema.LACKS_VECTOR). Returns how many."""
        everyone = self.of(None)
        lost = [to_record(row) for row in everyone.rows(f"{self.dialect.records} WHERE {LACKS_VECTOR}")]
        made = [(embed(record)[0], record.namespace, record.id) for record in lost]
        with everyone.unjournaled() as db:
            db.executemany(
                f"{ENTER_VECTOR} vector_row, $1, namespace FROM records WHERE namespace = $2 AND id = $3 "
                "ON CONFLICT DO NOTHING",
                made,
            )
            db.execute("DELETE FROM meta WHERE key = 'unembedded'")
            db.execute(self.dialect.mark_unembedded)  # others may have come back meanwhile
        return len(lost)

    @property
    def sees_all(self) -> bool:
        """Whether the session's role is bound to no tenant (`bind_role`)."""
        return self.rows("SELECT NOT EXISTS (SELECT FROM members WHERE role = session_user)")[0][0]

    def reembed(self, embed: Embed, note: Callable[[Any], None]) -> int:
        """Replace the vectors of every record that has one, and all of items. Returns how many records.

        UserError for a role that is bound to some tenants.
        """
        if not self.sees_all:
            raise UserError(
                f"the bank {self.path}: everyone's vectors are made anew together, and the role sees only tenants that "
                "it is bound to (bind_role): run reembed as another."
            )
        everyone = self.of(None)
        query = f"{self.dialect.records} WHERE v.vector IS NOT NULL"
        made = embedded(everyone.rows(query), embed)
        with everyone.unjournaled() as db:
            made = embedded(db.execute(query).fetchall(), embed, made)  # others may have added, changed, forgotten some
            db.execute("DELETE FROM item_vectors")
            for rowid, (_, vector, items) in made.items():
                row = "(SELECT vector_row FROM records WHERE rowid = $2)"
                db.execute(f"UPDATE vectors SET vector = $1 WHERE rowid = {row}", (vector, rowid))
                db.executemany(ENTER_ITEM, [(rowid, *item) for item in items])
            note(db)
        return len(made)

    @property
    def remains(self) -> str:
        """What `forget` cannot reach, which is more for a role that does not own the tables."""
        return REMAINS if self._owned() else REMAINS + NOT_VACUUMED

    def drop_indexes(self) -> None:
        """There is no file beside the database."""

    def empty_log(self) -> None:
        """Take deleted rows out of the tables. Only their owner may; what else keeps them is said by `remains`."""
        if self._owned():
            self._vacuum("")

    def compact(self) -> tuple[int, int]:
        """Write the tables anew without the room that deleted rows have left; all others wait meanwhile.

        UserError for a role that does not own the tables.
        """
        if not self._owned():
            raise UserError(f"the bank {self.path}: only the owner of its tables may compact it; run it as that role.")
        before = self.size()
        self._vacuum("FULL")
        return before, self.size()

    def _owned(self) -> bool:
        """Whether this role owns the tables: for any other VACUUM is a mere warning, and does nothing."""
        return self.rows("SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = 'records'::regclass")[0][0]

    def _vacuum(self, how: str) -> None:
        # On a connection of its own and without the writers' lock: it takes long, and others go on meanwhile.
        with self.explaining(), closing(self._shared.connect()) as db:
            db.execute(f"VACUUM {f'({how})' if how else ''} {', '.join(setup.TENANTS)}")

    def rebuild(self) -> Iterator[str]:
        """Make the full-text index and the graph of the vectors anew; a line about each."""
        with self.of(None).unjournaled() as db:
            db.script(setup.REFILL_WORDS)
        yield "the words of every record are indexed anew"
        with self.explaining(), self._shared.lock:
            yield from setup.rebuild_graphs(self._shared.to_write(), self.dim())

    def lead(self) -> Lead | None:
        """A connection has the queue's lock until it is closed, or lost; None while another process has it."""
        with self.explaining():
            db = self._shared.connect()
            try:
                if db.execute("SELECT pg_try_advisory_lock('jobs'::regclass::oid::bigint)").fetchone()[0]:
                    return Lead(held=partial(_answers, db), close=db.close)
            except BaseException:
                db.close()
                raise
        db.close()
        return None

    @contextmanager
    def alone(self, at: str) -> Iterator[bool]:
        """A database is no file to lock: several may."""
        yield True


def _answers(db: Connection) -> bool:
    import psycopg

    try:
        db.execute("SELECT 1")
    except psycopg.Error:
        return False
    return True
