"""What a person or a server does by hand to a lesson: mark it, set it aside, bring it back, undo a merge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core.errors import UserError
from core.types import MemoryRecord

if TYPE_CHECKING:
    from core.memory.bank import MemoryBank


def mark_record(bank: MemoryBank, id: str, helpful: bool) -> MemoryRecord:
    """Count a record as helpful or harmful; where confidence is kept, it moves too. Returns the record as it is now."""
    confidence = getattr(bank.consolidate, "confidence", None)
    with bank.change(f"mark: {id} {'helpful' if helpful else 'harmful'}") as change:
        record = _known(bank, id)
        name = "n_helpful" if helpful else "n_harmful"
        fields: dict[str, Any] = {name: getattr(record, name) + 1}
        if confidence is not None:
            fields["confidence"] = confidence.after_mark(record, helpful)
        change.update(id, **fields)
    return _known(bank, id)


def set_status(bank: MemoryBank, id: str, status: str, why: str = "") -> MemoryRecord:
    """Quarantine a record, archive it, or bring it back (`active`); a duplicate brought back is none any more."""
    with bank.change(f"status: {id} {status}{why and ': ' + why}") as change:
        _known(bank, id)
        change.update(id, status=status)
        if status == "active":
            for source, relation, target, _ in bank.links(id):
                if source == id and relation == "duplicate_of":
                    change.unlink(source, relation, target)
    return _known(bank, id)


def unmerge(bank: MemoryBank, id: str) -> list[str]:
    """Archive a merged record and bring its originals back; returns their ids. It is not merged so again.

    Raises UserError for a record that is no merge, and for one that has been merged on: undo that first.
    """
    with bank.change(f"unmerge: {id}") as change:
        merged = _known(bank, id)
        if not merged.parents:
            raise UserError(f"the record {id} was not merged from others.")
        onward = [source for source, relation, target, _ in bank.links(id) if relation == "supersedes" and target == id]
        onward = [source for source in onward if (record := bank.get(source)) and record.status != "archived"]
        if merged.status == "archived" and onward:
            raise UserError(f"the record {id} has been merged on into {onward[0]}: unmerge that first.")
        parents = [record for parent in merged.parents if (record := bank.get(parent)) is not None]
        back = [record.id for record in parents if record.status == "archived"]
        change.update(id, status="archived")
        for parent in back:
            change.update(parent, status="active")
    return back


def _known(bank: MemoryBank, id: str) -> MemoryRecord:
    record = bank.get(id)
    if record is None:
        raise UserError(f"the bank has no record {id}.")
    return record
