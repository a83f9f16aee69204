"""A change set: what is done inside `with bank.change(reason)`, in one transaction that can be undone."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

from core.errors import UserError
from core.memory.store import writes
from core.memory.store.filter import STATUSES
from core.memory.store.schema import FIELDS, FIXED, from_dict, to_dict
from core.types import MemoryRecord

RELATIONS = ("entails", "contradicts", "refines", "duplicate_of", "supersedes")


class Change:
    """Everything done here is committed together with one journal entry, or not at all.

    `undo` collects the inverse of each step, `redo` the step itself; both are lists of plain JSON. What a change reads
    with `get` includes what it has done so far. `embed` gives (query vector, item vectors) of a record as float32
    bytes. Do nothing slow in here, no model call above all: other writers wait for the end.
    """

    def __init__(self, db: Any, embed: Callable[[MemoryRecord], tuple[bytes, list[bytes]]]) -> None:
        self._db = db
        self._embed = embed
        self.undo: list[list] = []
        self.redo: list[list] = []

    def get(self, id: str) -> MemoryRecord | None:
        """The record of an id as it stands now; None when there is none."""
        found = writes.find(self._db, id)
        return found[1] if found else None

    def add(self, record: MemoryRecord) -> bool:
        """Append a record, in the namespace that it names. False when its id is there already."""
        vector, items = self._embed(record)
        return self.put(record, vector, items)

    def put(
        self, record: MemoryRecord, vector: bytes | None, items: list[bytes] = (), rowid: int | None = None
    ) -> bool:
        """`add` with the vectors at hand; rowid puts a removed record back into its place."""
        _check_status(record.status)
        place = writes.insert(self._db, record, vector, list(items), rowid)
        if place is None:
            return False
        self.undo.append(["remove", record.id])
        self.redo.append(["put", to_dict(record), place])
        return True

    def update(self, id: str, **fields: Any) -> None:
        """Set fields of a record. Its id and query are fixed: add a record that supersedes it. UserError otherwise."""
        found = writes.find(self._db, id)
        if found is None:
            raise UserError(f"the bank has no record {id}.")
        rowid, record = found
        for name in fields:
            if name not in FIELDS or name in FIXED:
                raise UserError(f"{name} of a record cannot be changed.")
        _check_status(fields.get("status", "active"))
        old = {name: getattr(record, name) for name in fields}
        if fields == old:
            return
        writes.update(self._db, rowid, fields)
        if "items" in fields:
            changed = self.get(id)
            writes.put_items(self._db, rowid, self._embed(changed)[1])
            writes.index_words(self._db, rowid, changed)
        self.undo.append(["update", id, _plain(old)])
        self.redo.append(["update", id, _plain(fields)])

    def remove(self, id: str) -> bool:
        """Take a record out; the journal keeps it whole, so that this can be undone. See MemoryBank.forget."""
        found = writes.find(self._db, id)
        if found is None:
            return False
        rowid, record = found
        vector, items = writes.vectors(self._db, rowid)
        writes.delete(self._db, rowid)
        self.undo.append(["restore", rowid, to_dict(record), _text(vector), [_text(item) for item in items]])
        self.redo.append(["remove", id])
        return True

    def link(self, source: str, relation: str, target: str, note: str = "") -> bool:
        """Connect two records by their ids; False when they are so already. UserError on an unknown relation."""
        if relation not in RELATIONS:
            raise UserError(f"relation={relation}: known are {', '.join(RELATIONS)}.")
        if not writes.put_link(self._db, source, relation, target, note):
            return False
        self.undo.append(["unlink", source, relation, target])
        self.redo.append(["link", source, relation, target, note])
        return True

    def unlink(self, source: str, relation: str, target: str) -> bool:
        """Remove a link; False when there is none."""
        note = writes.drop_link(self._db, source, relation, target)
        if note is None:
            return False
        self.undo.append(["link", source, relation, target, note])
        self.redo.append(["unlink", source, relation, target])
        return True

    def fact(self, key: str, value: str | None) -> None:
        """Set a fact about the bank (None removes it), in the same transaction as what it is about."""
        old = writes.set_fact(self._db, key, value)
        if old != value:
            self.undo.append(["fact", key, old])
            self.redo.append(["fact", key, value])

    def erase(self, id: str, digest: str) -> None:
        """Take a record out for good, its links too: the journal learns its id and a digest, nothing else."""
        rowid, _ = writes.find(self._db, id)
        writes.delete(self._db, rowid)
        writes.drop_links(self._db, id)
        self.undo.append(["forgotten", id, digest])
        self.redo.append(["remove", id])

    def strike(self, ids: set[str]) -> None:
        """Take what the journal could restore of some records, and what the queue tells of them, out for good."""
        writes.strike(self._db, ids)
        writes.drop_jobs(self._db, ids)

    def apply(self, step: list) -> None:
        """Do one step of an `undo` list. A record that was forgotten meanwhile stays so, and its steps do nothing."""
        kind, *rest = step
        if kind == "restore":
            rowid, values, vector, items = rest
            self.put(from_dict(values), _bytes(vector), [_bytes(item) for item in items], rowid)
        elif kind == "update" and self.get(rest[0]) is not None:
            fields = from_dict(_WHOLE | rest[1])
            self.update(rest[0], **{name: getattr(fields, name) for name in rest[1]})
        elif kind in ("remove", "link", "unlink", "fact"):
            getattr(self, kind)(*rest)


_WHOLE = to_dict(
    MemoryRecord(
        id="", original_query="", items=(), source_trajectory_id="", score=0, outcome="", label_source="", task_id=""
    )
)  # stands in for the fields that a step does not name


def dumps(steps: list[list]) -> str:
    """Steps as the journal stores them."""
    return json.dumps(steps, ensure_ascii=True, separators=(",", ":"))


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    """Some fields of a record as plain JSON data."""
    return {name: [vars(item) for item in value] if name == "items" else value for name, value in fields.items()}


def _check_status(status: str) -> None:
    if status not in STATUSES:
        raise UserError(f"status={status}: known are {', '.join(STATUSES)}.")


def _text(blob: bytes | None) -> str | None:
    return None if blob is None else base64.b64encode(blob).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
