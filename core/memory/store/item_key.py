"""The `memory.key` (item | both) that stored item vectors were made for.

It is stored in meta; a bank holds only one kind.
"""

from __future__ import annotations

from core.errors import UserError
from core.memory.store.changes import Change
from core.memory.store.contract import BankStore
from core.memory.store.schema import SqlSession

_NAME = "items_by"  # key in meta; missing, until `reembed`, in banks of earlier versions that have item vectors
_NOTE = "ON CONFLICT (key) DO UPDATE SET value = excluded.value"
_NOTE_ON_NONE = f"INSERT INTO meta SELECT $1, $2 WHERE NOT EXISTS (SELECT 1 FROM item_vectors) {_NOTE}"


def key_of_items(store: BankStore, key: str, *, read_only: bool, path: str) -> str:
    """The key (item | both) of a bank's item vectors. If the bank has no item vectors yet, the first opening decides.

    key   memory.key of this opening. UserError, and the store is closed, if the bank's vectors are of the other key.
          key=query adds no item vectors but can search existing ones
    """
    known = store.meta(_NAME)
    if key == "query":
        return known or "item"
    if known != key and store.sees_all and not store.of(None).rows("SELECT 1 FROM item_vectors LIMIT 1"):
        if read_only:
            return key
        with store.of(None).unjournaled() as db:
            db.execute(_NOTE_ON_NONE, (_NAME, key))
        known = store.meta(_NAME)  # another may have been first
    if known not in (None, key):
        store.close()
        raise _other(path, known, key)
    return key


def check_key(change: Change, key: str, path: str) -> None:
    """UserError if a change has stored item vectors of one key in a bank that, by now, has those of another."""
    if change.stores_items and (known := change.meta(_NAME)) not in (None, key):
        raise _other(path, known, key)


def note_key(db: SqlSession, key: str) -> None:
    """Store in meta, in an open transaction, the key of all item vectors. key=query has none and stores nothing."""
    if key != "query":
        db.execute(f"INSERT INTO meta VALUES ($1, $2) {_NOTE}", (_NAME, key))


def _other(path: str, known: str, key: str) -> UserError:
    return UserError(
        f"the bank {path} holds vectors of its lessons for memory.key={known} and this run uses memory.key={key}: "
        f"give memory.key={known}, or make them anew with `python -m core.memory reembed {path} --key {key}`."
    )
