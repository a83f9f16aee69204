"""Corrections win: a record that takes the place of older ones."""

from __future__ import annotations

from collections.abc import Collection

from core.memory.contents import Contents
from core.memory.store.changes import Change
from core.normal_form import folded
from core.types import MemoryRecord


def supersede(bank: Contents, change: Change, record: MemoryRecord, ids: Collection[str] = ()) -> None:
    """Let a record that was just added take the place of these and of the active ones with its task and titles.

    Each is linked `supersedes`. A record that is held back takes the place only when it is released (`set_status`).
    """
    if record.status not in ("active", "quarantined") or not record.items:
        return
    alike = [id for id in bank.of_query(record.original_query) if _titles(bank.existing(id)) == _titles(record)]
    for id in dict.fromkeys(id for id in (*ids, *alike) if id != record.id):
        change.link(record.id, "supersedes", id)
        if record.status == "active":
            change.update(id, status="superseded")


def _titles(record: MemoryRecord) -> list[str]:
    return [folded(item.title) for item in record.items]
