"""BankStore for PostgreSQL with pgvector: many writers on many hosts; search in the database itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from urllib.parse import parse_qs, urlsplit

from core.errors import UserError, check_numbers
from core.memory.moment import now
from core.memory.postgres import setup
from core.memory.postgres.changes import PostgresChange
from core.memory.postgres.connection import EVERYONE, SET_UNTIL_COMMIT, Connection
from core.memory.postgres.database import PostgresDatabase
from core.memory.postgres.search import PostgresSearch
from core.memory.store.changes import Change, Embed
from core.memory.store.contract import Lead, SearchSettings

REMAINS = (
    "What was forgotten may still lie in what PostgreSQL has written elsewhere: its log (WAL), backups, replicas and "
    "pages that were not used again since."
)
NOT_VACUUMED = " The tables were not vacuumed, which only their owner may do: let the owner run compact."


@dataclass(kw_only=True)
class Postgres:
    """Search settings of a bank in PostgreSQL (memory/store=postgres).

    ef_search     pgvector's hnsw.ef_search: more is slower and nearer to exact
    exact_below   tenants with fewer vectors are searched exactly, also with memory.index=hnsw
    oversample    fetch oversample*k candidates from the half-precision index, then re-rank exactly
    """

    ef_search: int = 100
    exact_below: int = 2000
    oversample: int = 4

    def __post_init__(self) -> None:
        check_numbers(self, "memory.store", "ef_search", least=1, most=1000, whole=True)
        check_numbers(self, "memory.store", "exact_below", least=0, whole=True)
        check_numbers(self, "memory.store", "oversample", least=1, whole=True)

    def open(self, path: str, *, read_only: bool = False) -> PostgresStore:
        """Open the store at a URL. UserError for a file's path, and if the URL has a password."""
        if not path.startswith("postgresql://"):
            raise UserError(
                f"memory/store=postgres: memory.path={path} is no URL; give memory.path=postgresql://USER@HOST/DATABASE."
            )
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
_EMBEDDER = "INSERT INTO meta VALUES ('embedder', $1) ON CONFLICT DO NOTHING"
_MEASURED = "INSERT INTO meta SELECT 'embedder_dim', vector_dims(vector)::text FROM keys LIMIT 1 ON CONFLICT DO NOTHING"
_SINCE = "INSERT INTO meta SELECT 'embedder_since', at FROM journal ORDER BY seq LIMIT 1 ON CONFLICT DO NOTHING"


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
        """One transaction with one journal entry; the first one stores the embedder's name."""
        noted = self.dim() is not None
        with self.of(namespace).unjournaled(wait_s) as db:
            change = PostgresChange(db, reason, namespace, embed, self.path)
            yield change
            change.settle()
            if change.made:
                db.at_commit((SET_UNTIL_COMMIT, (EVERYONE,)), (_JOURNAL, (now(), change.reason)))
                if not noted:
                    db.at_commit((_EMBEDDER, (embedder,)), (_MEASURED, ()), (_SINCE, ()))

    @property
    def sees_all(self) -> bool:
        """Whether the role can read all namespaces: it is bound to none (`bind_role`)."""
        return self.rows("SELECT NOT EXISTS (SELECT FROM members WHERE role = session_user)")[0][0]

    @property
    def remains(self) -> str:
        """Sentence on what `forget` cannot delete, which is more if the role does not own the tables."""
        return REMAINS if self._owned() else REMAINS + NOT_VACUUMED

    def empty_log(self) -> None:
        """Remove deleted rows from the tables (VACUUM), if the role owns them; `remains` says what else keeps them."""
        if self._owned():
            self._vacuum("")

    def compact(self) -> tuple[int, int]:
        """Rewrite the tables (VACUUM FULL) without the space of deleted rows; all others wait meanwhile.

        UserError for a role that does not own the tables.
        """
        if not self._owned():
            raise UserError(f"the bank {self.path}: only the owner of its tables may compact it; run it as that role.")
        before = self.size()
        self._vacuum("FULL")
        return before, self.size()

    def _owned(self) -> bool:
        """Whether this role owns the tables: for any other, VACUUM only warns and does nothing."""
        return self.rows("SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = 'records'::regclass")[0][0]

    def _vacuum(self, how: str) -> None:
        # On its own connection and without the writers' lock, so that others can write during this long operation.
        with self.explaining(), closing(self._shared.connect()) as db:
            db.execute(f"VACUUM {f'({how})' if how else ''} {', '.join(setup.TENANTS)}")

    def rebuild(self) -> Iterator[str]:
        """Rebuild the HNSW graphs; yields a line about each."""
        if self.rows("SELECT current_setting('data_checksums')")[0][0] != "on":
            yield "the server does not check its pages: data_checksums is off (pg_checksums --enable)"
        with self.explaining(), self._shared.lock:
            yield from setup.rebuild_graphs(self._shared.to_write(), self.dim())

    def lead(self) -> Lead | None:
        """Take the queue's lock on a new connection, until it is closed or lost; None if another process holds it."""
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
    def try_lock(self, name: str) -> Iterator[bool]:
        """No lock is taken: always True."""
        yield True


def _answers(db: Connection) -> bool:
    import psycopg

    try:
        db.execute("SELECT 1")
    except psycopg.Error:
        return False
    return True
