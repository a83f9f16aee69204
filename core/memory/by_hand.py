"""Changes of single records by a person or a server: mark a record, set its status, undo a merge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core.errors import UserError
from core.types import MemoryRecord

if TYPE_CHECKING:
    from core.memory.bank import MemoryBank


def mark_record(bank: MemoryBank, id: str, helpful: bool, *, used: bool = False) -> MemoryRecord:
    """Mark a record as helpful or harmful, and update its confidence if the bank keeps it. Returns the new record.

    used   True: a helpful one was also used now (last_used); a harmful one must not head a list by last use for that
    """
    confidence = None if bank.consolidate is None else bank.consolidate.confidence
    with bank.change(f"mark: {id} {'helpful' if helpful else 'harmful'}") as change:
        record = bank.existing(id)
        name = "n_helpful" if helpful else "n_harmful"
        fields: dict[str, Any] = {name: getattr(record, name) + 1}
        if confidence is not None:
            fields["confidence"] = confidence.after_mark(record, helpful)
        if used and helpful:
            fields["last_used"] = bank.moment().time
        change.update(id, **fields)
    return bank.existing(id)


def mark_used(bank: MemoryBank, id: str) -> MemoryRecord:
    """Set a record's last_used to now. Returns the new record."""
    with bank.change(f"used: {id}") as change:
        change.update(id, last_used=bank.moment().time)
    return bank.existing(id)


def set_status(bank: MemoryBank, id: str, status: str, why: str = "") -> MemoryRecord:
    """Set a record's status. Making it active removes its duplicate_of links.

    It also resets a trust of 0, set by the guard's quarantine, to 1: else merges built from it would be quarantined.
    """
    with bank.change(f"status: {id} {status}{why and ': ' + why}") as change:
        released = status == "active" and (record := change.get(id)) is not None and record.trust == 0.0
        change.update(id, status=status, **({"trust": 1.0} if released else {}))
        if status == "active":
            for source, relation, target, _ in bank.links(id):
                if source == id and relation == "duplicate_of":
                    change.unlink(source, relation, target)
    return bank.existing(id)


def unmerge(bank: MemoryBank, id: str) -> list[str]:
    """Archive a merged record and make its originals active again; returns their ids. The merge is not made again.

    UserError for a record that is no merge, or that was itself merged into another record: undo that merge first.
    """
    with bank.change(f"unmerge: {id}") as change:
        merged = bank.existing(id)
        if not merged.parents:
            raise UserError(f"the record {id} was not merged from others.")
        later = [source for source, relation, target, _ in bank.links(id) if relation == "supersedes" and target == id]
        later = [source for source in later if (record := bank.get(source)) and record.status != "archived"]
        if merged.status == "archived" and later:
            raise UserError(f"the record {id} has been merged on into {later[0]}: unmerge that first.")
        parents = [record for parent in merged.parents if (record := bank.get(parent)) is not None]
        originals = [record.id for record in parents if record.status == "archived"]
        change.update(id, status="archived")
        for original in originals:
            change.update(original, status="active")
    return originals
