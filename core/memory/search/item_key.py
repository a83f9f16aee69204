"""Which `memory.key` the stored vectors of lessons were made for, item or both: the bank knows, and mixes no two."""

from __future__ import annotations

from core.errors import UserError
from core.memory.store.contract import BankStore

_NAME = "items_by"  # in the bank's `meta`; banks of earlier versions have none until `reembed`


def key_of_items(store: BankStore, key: str, *, read_only: bool, path: str) -> str:
    """What the vectors of lessons in a bank are made for, as the first opening with such a key says.

    key   of this opening. UserError, and the store is closed, where the bank has the other one's; with key=query it
          stores none, and searches by those that there are
    """
    known = store.meta(_NAME)
    if key == "query":
        return known or "item"
    if known is None and not read_only and not store.of(None).rows("SELECT 1 FROM item_vectors LIMIT 1"):
        with store.unjournaled() as db:
            db.execute("INSERT INTO meta VALUES (?, ?) ON CONFLICT DO NOTHING", (_NAME, key))
        known = store.meta(_NAME)  # another may have been first
    if known not in (None, key):
        store.close()
        raise UserError(
            f"the bank {path} holds vectors of its lessons for memory.key={known} and this run uses memory.key={key}: "
            f"give memory.key={known}, or make them anew with `python -m core.memory reembed {path} --key {key}`."
        )
    return key


def note_key(store: BankStore, key: str) -> None:
    """Note that all vectors of lessons were just made for a key."""
    with store.unjournaled() as db:
        query = "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
        db.execute(query, (_NAME, key))
