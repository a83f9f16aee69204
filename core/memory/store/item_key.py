"""Which `memory.key` the stored vectors of items were made for, item or both: the bank knows, and mixes no two."""

from __future__ import annotations

from core.errors import UserError
from core.memory.store.changes import Change
from core.memory.store.contract import BankStore
from core.memory.store.schema import SqlSession

_NAME = "items_by"  # in the bank's `meta`; banks of earlier versions that have such vectors have none until `reembed`
_NOTE = "ON CONFLICT (key) DO UPDATE SET value = excluded.value"
_NOTE_ON_NONE = f"INSERT INTO meta SELECT $1, $2 WHERE NOT EXISTS (SELECT 1 FROM item_vectors) {_NOTE}"


def key_of_items(store: BankStore, key: str, *, read_only: bool, path: str) -> str:
    """What the vectors of lessons in a bank are made for. While there are none, this opening says it.

    key   of this opening. UserError, and the store is closed, where the bank has the other one's; with key=query it
          stores none, and searches by those that there are
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
    """UserError where a change has stored vectors of lessons in a bank that has those of another key by now."""
    if change.stores_items and (known := change.meta(_NAME)) not in (None, key):
        raise _other(path, known, key)


def note_key(db: SqlSession, key: str) -> None:
    """Note, in an open transaction, that all vectors of lessons are made for a key; for key=query there are none."""
    if key != "query":
        db.execute(f"INSERT INTO meta VALUES ($1, $2) {_NOTE}", (_NAME, key))


def _other(path: str, known: str, key: str) -> UserError:
    return UserError(
        f"the bank {path} holds vectors of its lessons for memory.key={known} and this run uses memory.key={key}: "
        f"give memory.key={known}, or make them anew with `python -m core.memory reembed {path} --key {key}`."
    )
