"""Changes of single records by a person or a server: mark a record, correct it, set its status, undo a merge."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from core.errors import UserError
from core.memory.contents import FEWEST
from core.types import Lesson, MemoryRecord, content_id

if TYPE_CHECKING:
    from core.memory.bank import MemoryBank

_REPLACES = ("supersedes", "duplicate_of")  # the first leads from the new record to the old one, the second back
_OF_THE_TEXT = ("hygiene", "quarantine", "classifier", "opinion")  # what its provenance says of a text, not of a record


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
    One that is released from quarantine takes the place of those that it corrects.
    """
    with bank.change(f"status: {id} {status}{why and ': ' + why}") as change:
        before = bank.existing(id)
        released, held = status == "active" and before.trust == 0.0, before.status == "quarantined"
        change.update(id, status=status, **({"trust": 1.0} if released else {}))
        for source, relation, target, _ in bank.links(id) if status == "active" else ():
            if source == id and relation == "duplicate_of":
                change.unlink(source, relation, target)
            elif (source, relation) == (id, "supersedes") and held and target not in before.parents:
                change.revise(target, lambda old: {"status": "superseded"} if old.status == "active" else {})
    return bank.existing(id)


def corrected(bank: MemoryBank, record: MemoryRecord, items: tuple[Lesson, ...]) -> MemoryRecord:
    """Store a record with other lessons, which takes the place of `record`; returns it as it was stored.

    It is screened as any new record is. It keeps what was said of the old one but for the harmful marks, which its text
    had earned.
    """
    about = {name: value for name, value in record.provenance.items() if name not in _OF_THE_TEXT}
    kept = replace(record, items=items, created_at="", n_harmful=0, provenance=about, status="active", trust=1.0)
    new = replace(kept, id=content_id("corrected", record.id, items))
    bank.add_many([new], reason=f"correct: {record.id}", shown=(), supersedes=[record.id])
    return bank.existing(new.id)


def lookup(bank: MemoryBank, id: str) -> MemoryRecord | None:
    """The record with this id, or with a lesson of this id (`<record>-<place>`), or the beginning of one; else None."""
    head, _, place = id.rpartition("-")
    return bank.find(id) or bank.get(head) or (bank.find(head) if place.isdigit() and len(head) >= FEWEST else None)


def lesson_of(bank: MemoryBank, id: str) -> tuple[MemoryRecord, int] | None:
    """(the record that holds the lesson of an id now, the lesson's place in it); None for an unknown id.

    Raises UserError for a lesson that was deleted, and for an id that stands for several.
    """
    if (found := lookup(bank, id)) is None:
        return None
    record = successor(bank, found)
    if record.status not in ("active", "quarantined"):
        raise UserError(f"the lesson {id[:60]} was deleted: save it anew.")
    place = id.rpartition("-")[2]
    known = [*map(str, range(len(record.items)))]
    if len(known) > 1 and place not in known:
        raise UserError(f"the id {id[:60]} stands for {len(known)} lessons: give {record.id}-0 to -{known[-1]}.")
    return record, int(place) if len(known) > 1 else 0


def is_gone(bank: MemoryBank, record: MemoryRecord) -> bool:
    """Whether a record was deleted or corrected, rather than merged into another or superseded as its duplicate."""
    if record.status not in ("archived", "superseded"):
        return False
    for source, relation, target, _ in bank.links(record.id):
        merged = (relation, target) == ("supersedes", record.id) and record.id in bank.existing(source).parents
        if merged or (source, relation) == (record.id, "duplicate_of"):
            return False
    return True


def versions(bank: MemoryBank, id: str) -> list[str]:
    """The id of a record, and those of the records whose place it took, and they of theirs."""
    found = [id]
    for one in found:  # grows meanwhile
        if (record := bank.get(one)) is not None:
            older = (t for s, r, t, _ in bank.links(one) if (s, r) == (one, "supersedes") and t not in record.parents)
            found += [each for each in older if each not in found]
    return found


def successor(bank: MemoryBank, record: MemoryRecord) -> MemoryRecord:
    """The active record that has taken the place of one, or itself where there is none."""
    seen = {record.id}
    while record.status != "active":
        links = [(s, t) if r == "supersedes" else (t, s) for s, r, t, _ in bank.links(record.id) if r in _REPLACES]
        heirs = (bank.get(heir) for heir, old in links if old == record.id and heir not in seen)
        heir = next((each for each in heirs if each is not None), None)
        if heir is None:
            break
        seen.add(heir.id)
        record = heir
    return record


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
