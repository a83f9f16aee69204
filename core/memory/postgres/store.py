"""A bank's truth in PostgreSQL with pgvector: many writers on many hosts, and the search in the database itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from core.errors import StopRun, UserError, check_numbers, is_url
from core.memory.filter import Filter
from core.memory.moment import now
from core.memory.postgres import setup
from core.memory.postgres.changes import ENTER_ITEM, ENTER_VECTOR, PostgresChange
from core.memory.postgres.connection import EVERYONE, SEE_UNTIL_COMMIT, Connection, Connections, Late
from core.memory.postgres.search import BM25, PostgresSearch, conditions, words_of
from core.memory.store.changes import Change, Embed, embedded
from core.memory.store.contract import Busy, Lead
from core.memory.store.schema import LACKS_VECTOR, MARK_UNEMBEDDED, RECORDS, storable, to_record
from core.types import MemoryRecord

BUSY_S = 60  # how long a writer waits for others
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
        """The store at a URL. UserError where it is none, or where it holds a password."""
        if not is_url(path):
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
    "INSERT INTO journal SELECT coalesce(max(seq), 0) + 1, ?, (SELECT coalesce(max(tick), 0) FROM records), ? "
    "FROM journal"
)
_MEASURED = (
    "INSERT INTO meta SELECT 'embedder_dim', vector_dims(vector)::text FROM vectors LIMIT 1 ON CONFLICT DO NOTHING"
)
_SINCE = "INSERT INTO meta SELECT 'embedder_since', at FROM journal ORDER BY seq LIMIT 1 ON CONFLICT DO NOTHING"
# What a record that is put together with the commit is asked for: an entry in the journal only if it is new.
_IF_NEW = " HAVING EXISTS (SELECT FROM records WHERE namespace = ? AND id = ? AND xmin = pg_current_xact_id()::xid)"


class PostgresStore:
    """A bank's schema in a database: that which a new table would go to (the URL's search_path, else public).

    Reads take a connection of their own out of those that are idle, so that they see the last committed state while
    another thread writes. A connection that breaks is replaced by the next call.
    """

    def __init__(self, url: str, how: Postgres, *, read_only: bool = False) -> None:
        self.path, self.how, self.namespace = url, how, EVERYONE
        settings = {"hnsw.ef_search": how.ef_search, "hnsw.iterative_scan": "relaxed_order"}
        self._shared = Connections(url, settings, read_only)
        try:
            with self.explaining(), self._shared.reading() as db:
                found = setup.version(db)
                self._shared.warn_of_superuser(db)
            if found is None and read_only:
                raise UserError(f"memory.path={url} holds no bank, and a frozen bank is only read.")
            if found == setup.OLDER and read_only:
                raise UserError(
                    f"the bank {url} is of an older version: let the owner of its tables open it to write once."
                )
            if found in (None, setup.OLDER):
                with self.unjournaled(lock=setup.LOCK) as db:
                    setup.create(db)
            elif found != setup.SCHEMA:
                raise UserError(f"the bank {url} has schema {found}: this version reads {setup.SCHEMA}.")
        except BaseException:
            self.close()
            raise

    def search(self, graph: bool, item_vectors: Any, read_only: bool, most_missing: int | None) -> PostgresSearch:
        """What looks for vectors in this database."""
        return PostgresSearch(self, graph, item_vectors, read_only, most_missing)

    def of(self, namespace: str | None) -> Self:
        """The same open store for one tenant's rows; None: for everyone's."""
        if namespace == EVERYONE:
            raise UserError(f"namespace={EVERYONE}: that means everyone; give another name.")
        other = copy(self)
        other.namespace = EVERYONE if namespace is None else namespace
        return other

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """What the server says, in one sentence."""
        import psycopg

        try:
            yield
        except psycopg.errors.LockNotAvailable as error:
            raise Busy(f"others are writing to the bank {self.path}") from error
        except psycopg.errors.ReadOnlySqlTransaction as error:
            raise UserError(f"the bank {self.path} is opened for reading only.") from error
        except psycopg.errors.InsufficientPrivilege as error:
            raise UserError(f"the bank {self.path}: the role may not do that: {_first_line(error)}.") from error
        except (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError) as error:
            raise StopRun(f"the bank {self.path} cannot be reached or written: {_first_line(error)}.") from error

    @contextmanager
    def unjournaled(self, wait_s: float | None = None, *, lock: str = "") -> Iterator[Connection]:
        """A transaction without a journal entry: all that is executed in here, or nothing.

        A second one inside the first is a RuntimeError.

        wait_s   seconds that it waits for other writers; after them it is a Busy and nothing is done. Nor does it wait
                 for the disk
        """
        with self._transaction(wait_s, lock) as (db, _):
            yield db

    @contextmanager
    def _transaction(self, wait_s: float | None, lock: str = "") -> Iterator[tuple[Connection, list[Late]]]:
        """`unjournaled`, with a list of what is to be executed together with the commit."""
        shared = self._shared
        if shared.writer == threading.get_ident():
            raise RuntimeError("a change is open already: changes cannot be nested")
        if not shared.lock.acquire(timeout=-1 if wait_s is None else wait_s):
            raise Busy(f"others are writing to the bank {self.path}")
        try:
            with self.explaining():
                db = shared.to_write()
                try:
                    db.begin(
                        self.namespace,
                        BUSY_S if wait_s is None else wait_s,
                        lock,
                        at_once=wait_s is not None or bool(lock),
                    )
                    shared.writer = threading.get_ident()
                    last: list[Late] = []
                    yield db, last
                    db.commit(*last, durable=wait_s is None)
                except BaseException:
                    db.roll_back()
                    raise
        finally:
            shared.writer = None
            shared.lock.release()

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
                entry = (now(), storable(change.reason))
                if change.made:
                    last.append(Late(_JOURNAL, entry))
                else:
                    last.append(Late(_JOURNAL + _IF_NEW, (*entry, change.last.namespace, storable(change.last.id))))
                if not noted:
                    last.append(Late("INSERT INTO meta VALUES ('embedder', ?) ON CONFLICT DO NOTHING", (embedder,)))
                    last += [Late(_MEASURED), Late(_SINCE)]

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """The connection that this thread reads with; it sees the namespace of this store."""
        shared = self._shared
        with self.explaining():
            if shared.writer == threading.get_ident():
                db = shared.to_write()
                before = db.sees
                db.see(self.namespace)
                yield db
                db.see(before)
            else:
                with shared.reading() as db:
                    db.see(self.namespace)
                    yield db

    def rows(self, query: str, values: tuple = ()) -> list[tuple]:
        """All rows of a query, of those that the namespace has."""
        with self.reading() as db:
            return db.execute(query, tuple(map(storable, values))).fetchall()

    def meta(self, key: str) -> str | None:
        """A fact about the bank (schema, embedder); None when it was never set."""
        found = self.rows("SELECT value FROM meta WHERE key = ?", (key,))
        return found[0][0] if found else None

    def dim(self) -> int | None:
        """Numbers in a vector; None while there is none."""
        if self._shared.dim is None:
            found = self.of(None).rows("SELECT vector_dims(vector) FROM vectors LIMIT 1")
            self._shared.dim = found[0][0] if found else None
        return self._shared.dim

    def count(self) -> int:
        """How many records there are."""
        return self.rows("SELECT count(*) FROM records")[0][0]

    def get(self, rowids: list[int] | None) -> dict[int, MemoryRecord]:
        """The whole records of some rowids, None for all; those that are gone are left out."""
        where, values = ("", ()) if rowids is None else (" WHERE r.rowid = ANY (?)", (rowids,))
        return {row[0]: to_record(row) for row in self.rows(f"{RECORDS}{where} ORDER BY r.rowid", values)}

    def lexical(self, words: list[str], k: int, where: Filter, exclude_task: str | None) -> list[tuple[int, float]]:
        """(rowid, BM25) of the k best records that have any of the words, best first, ties to the oldest.

        FTS5's formula, k1 = 1.2 and b = 0.75; how rare a word is is counted in the namespace alone.
        """
        within, values = conditions(where, 2, exclude_task)
        query = BM25.format(within=within, everyone=EVERYONE, k=int(k))
        store = self.of(None if where.everyone else where.namespace)
        words = [part for word in words for part in words_of(word)]
        return store.rows(query, (words, store.namespace, *values))

    def embed_missing(self, embed: Embed) -> int:
        """Give vectors to the records that want one and have none (schema.LACKS_VECTOR). Returns how many."""
        everyone = self.of(None)
        lost = [to_record(row) for row in everyone.rows(f"{RECORDS} WHERE {LACKS_VECTOR}")]
        made = [(embed(record)[0], record.namespace, record.id) for record in lost]
        with everyone.unjournaled() as db:
            db.executemany(
                f"{ENTER_VECTOR} vector_row, ?1, namespace FROM records WHERE namespace = ?2 AND id = ?3 "
                "ON CONFLICT DO NOTHING",
                made,
            )
            db.execute("DELETE FROM meta WHERE key = 'unembedded'")
            db.execute(MARK_UNEMBEDDED)  # others may have come back meanwhile
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
        query = f"{RECORDS} WHERE v.vector IS NOT NULL"
        made = embedded(everyone.rows(query), embed)
        with everyone.unjournaled() as db:
            made = embedded(db.execute(query).fetchall(), embed, made)  # others may have added, changed, forgotten some
            db.execute("DELETE FROM item_vectors")
            for rowid, (_, vector, items) in made.items():
                row = "(SELECT vector_row FROM records WHERE rowid = ?)"
                db.execute(f"UPDATE vectors SET vector = ? WHERE rowid = {row}", (vector, rowid))
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

    def ensure_graphs(self, least: int) -> None:
        """Make the graphs that are not there, of tables with so many vectors. Only their owner may."""
        with self.explaining(), self._shared.lock:
            setup.ensure_graphs(self._shared.to_write(), self.dim(), least)

    def size(self) -> int:
        """Bytes of all tables and their indexes."""
        names = ", ".join(f"'{name}'" for name in (*setup.TENANTS, "meta", "journal"))
        query = f"SELECT coalesce(sum(pg_total_relation_size(n::regclass)), 0) FROM unnest(ARRAY[{names}]) n"
        return int(self.rows(query)[0][0])

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

    def close(self) -> None:
        self._shared.close()


def _answers(db: Connection) -> bool:
    import psycopg

    try:
        db.execute("SELECT 1")
    except psycopg.Error:
        return False
    return True


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
