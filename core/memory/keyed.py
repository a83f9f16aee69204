"""The keys by which an open bank's records are found: of which kinds, and made where they are missing."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from core.errors import InfraError, UserError
from core.memory.contents import Contents
from core.memory.ports import Policy
from core.memory.records import n_records
from core.memory.store.keys import ITEM, JOINED, KINDS, QUERY, WHOLE, Keys, texts_of
from core.memory.store.schema import SqlSession
from core.models.embedding import Embedder
from core.types import MemoryRecord

MOST_MISSING = 500  # if more records than these lack their joined texts' keys, none are made at opening: it takes long
_KINDS = "kinds"  # entry of the table meta: the kinds of keys that each record has

log = logging.getLogger(__name__)


class Keyed(Contents):
    """An open bank with the keys of its records, in all namespaces (core/memory/store/keys.py)."""

    embedder: Embedder
    policy: Policy
    key: str
    read_only: bool
    _kinds: tuple[str, ...] = (QUERY,)  # the kinds of keys that a record has
    _lacks_keys: bool = False  # some may have no joined text's key

    def keys_of(self, record: MemoryRecord) -> Keys:
        """The keys of a record for `Change.put`; call it before the transaction begins."""
        return self._keys(record, self.embedder.embed([record.original_query])[0])

    def reembed(self, key: str | None = None) -> int:
        """Make the keys of all records anew, in all namespaces; returns the number of records.

        No journal entry, because texts do not change. UserError for a role in PostgreSQL that is bound to some tenants.

        key   the bank's `key` from now on: records keep no keys that it does not need; None: as before
        """
        if key not in (None, *KINDS):
            raise UserError(f"key={key}: choose {', '.join(KINDS)}.")
        before = self.key, self._kinds
        if key:
            self.key = key
            self._kinds = tuple(dict.fromkeys((QUERY, *self._wanted)))
        try:
            n = self._store.reembed(self.keys_of, self._note_kinds)
        except BaseException:
            self.key, self._kinds = before
            raise
        self._lacks_keys = False
        return n

    def verify_indexes(self) -> Iterator[str]:
        """Compare the bank's copies, and rebuild derived data (keys, journal file); yields lines.

        The index's file is checked whenever it is read. UserError on damage.
        """
        lost, _ = self._store.embed_missing(self.keys_of, self._kinds)
        yield f"{n_records(len(self))}, " + (
            f"{lost} lacked vectors and have them now" if lost else "each with its vectors"
        )
        yield from self._store.rebuild()

    def _look_for_keys(self) -> None:
        """Note which kinds of keys the bank's records have from now on, and make those that are missing."""
        known = (self._store.meta(_KINDS) or QUERY).split(",")
        self._kinds = tuple(dict.fromkeys((*known, *self._wanted)))
        if set(self._wanted) <= set(known):
            self._embed_missing()
        elif not self.read_only:
            if self._store.sees_all:  # a role that sees some tenants alone must not note it for the whole bank
                with self._store.of(None).unjournaled() as db:
                    self._note_kinds(db)
                    db.execute("INSERT INTO meta VALUES ('unembedded', '1') ON CONFLICT DO NOTHING")
            self._embed_missing(always=True)
        elif len(self):
            self._say_keys_missing(len(self))

    def _note_kinds(self, db: SqlSession) -> None:
        note = "ON CONFLICT (key) DO UPDATE SET value = excluded.value"
        db.execute(f"INSERT INTO meta VALUES ($1, $2) {note}", (_KINDS, ",".join(self._kinds)))

    def _embed_missing(self, *, always: bool = False) -> None:
        """Make the keys that records lack: after a repair or a rollback, and of a kind that is new in the bank.

        If the embedder fails, they stay without until the next opening; until then only a search by words finds them.
        """
        if not (always or self._store.meta("unembedded")):
            return
        self._lacks_keys = True
        if self.read_only:
            return
        try:
            most = None if ITEM in self._wanted else MOST_MISSING  # key=item has nothing else to search by
            _, left = self._store.embed_missing(self.keys_of, self._kinds, most)
        except (InfraError, UserError) as error:
            log.warning(f"the bank {self.path}: records that lack keys wait for their vectors: {error}")
        else:
            self._lacks_keys = left > 0
            if JOINED in self._wanted and left > MOST_MISSING:
                self._say_keys_missing(left)

    @property
    def _wanted(self) -> tuple[str, ...]:
        """The kinds of keys that searches compare."""
        return (self.key, self.policy.key or self.key)

    def _say_keys_missing(self, n: int) -> None:
        key = ITEM if ITEM in self._wanted else JOINED
        command = f"`reasoningbank bank reembed {self.path} --key {key}`"
        option = "retrieval.key" if self.policy.key == key else "memory.key"
        text = f"the lessons of {n_records(n)} in the bank {self.path} have no vectors for {option}={key}"
        if key == ITEM:
            self._store.close()
            raise UserError(f"{text}: run {command}, or give {option}=query.")
        self._lacks_keys = True
        log.warning(f"{text}: they are found by their query alone until you run {command}.")

    def _keys(self, record: MemoryRecord, vector: Any) -> Keys:
        """The keys of a record, with the vector of its query."""
        texts = [(kind, *text) for kind in self._kinds if kind != QUERY for text in texts_of(record, kind)]
        rows = self.embedder.embed([text for *_, text in texts]) if texts else ()
        keys = [(kind, place, row.tobytes()) for (kind, place, _), row in zip(texts, rows)]
        return [(QUERY, WHOLE, vector.tobytes()), *keys]
