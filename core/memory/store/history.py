"""What a bank was: its journal, marks to go back to, undoing, and forgetting for good."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from core.errors import UserError
from core.memory.store.schema import from_dict, to_dict
from core.memory.store.verify import mend
from core.types import MemoryRecord

_MARK = "snapshot:"


class History:
    """The part of MemoryBank that looks back."""

    path: str
    change: Any
    _store: Any
    _search: Any
    _embed: Any

    def journal(self) -> list[dict[str, Any]]:
        """{seq, at, tick, reason, undo} of every change, oldest first; undo is a list of steps."""
        names = ("seq", "at", "tick", "reason")
        return [dict(zip(names, row)) | {"undo": json.loads(row[4])} for row in self._store.journal()]

    def rollback(self, to_seq: int) -> int:
        """Undo every change after an entry of the journal, newest first. Returns how many.

        That is itself one change, so it can be undone. What was forgotten stays forgotten. UserError for no such entry.
        """
        entries = self.journal()
        if to_seq != 0 and to_seq not in {entry["seq"] for entry in entries}:
            raise UserError(f"the bank {self.path} has no journal entry {to_seq}: the journal ends at {self.seq()}.")
        later = [entry for entry in entries if entry["seq"] > to_seq]
        with self.change(f"rollback to {to_seq}") as change:
            for entry in reversed(later):
                for step in entry["undo"]:
                    change.apply(step)
        return len(later)

    def mend(self) -> Iterator[str]:
        """Check and mend what belongs to the bank beside its database; yields what was found. UserError on damage."""
        return mend(self._store, self._embed)

    def seq(self) -> int:
        """The last entry of the journal; 0 when there is none."""
        return self._store.rows("SELECT coalesce(max(seq), 0) FROM journal")[0][0]

    def snapshot(self, name: str) -> int:
        """Give the present state a name and return its place in the journal. UserError for a name that is taken."""
        with self.change(f"snapshot {name}") as change:
            if self._store.meta(_MARK + name) is not None:
                raise UserError(f"the bank {self.path} has a snapshot {name} already.")
            # The mark's own entry is the next one; going back to it keeps it.
            change.fact(_MARK + name, str(self._store.last("journal") + 1))
        return self.snapshots()[name]

    def snapshots(self) -> dict[str, int]:
        """Name -> place in the journal, oldest first."""
        rows = self._store.rows("SELECT key, value FROM meta WHERE key LIKE 'snapshot:%'")
        return {key.removeprefix(_MARK): int(value) for key, value in sorted(rows, key=lambda row: int(row[1]))}

    def rollback_snapshot(self, name: str) -> int:
        """`rollback` to a snapshot. UserError when there is none of that name."""
        marks = self.snapshots()
        if name not in marks:
            raise UserError(f"the bank {self.path} has no snapshot {name}: it has {', '.join(marks) or 'none'}.")
        return self.rollback(marks[name])

    def forget(
        self, *, id: str | None = None, task: str | None = None, run: str | None = None, namespace: str | None = None
    ) -> list[str]:
        """Delete the records of an id, a task or a run (provenance["run"]) for good; returns their ids.

        With them goes whatever was merged from them, and all that the journal still holds of either; what that merge
        had archived, and what was set aside as their duplicate, becomes active again. The journal keeps ids and
        digests. The bank's files are overwritten; what other files hold (episodes.jsonl of a run, exports, banks that
        were set aside as damaged) is not touched.
        """
        if id is task is run is None:
            raise UserError("say what to forget: an id, a task or a run.")
        with self.change("forget") as change:
            here = {record.id: record for record in self._store.all(namespace)}
            known = self._removed(namespace) | here
            gone = {
                record.id
                for record in known.values()
                if id in (None, record.id)
                and task in (None, record.task_id)
                and run in (None, record.provenance.get("run"))
            }
            while heirs := {r.id for r in known.values() if r.id not in gone and gone.intersection(r.parents)}:
                gone |= heirs
            orphans = self._orphans(here, gone)
            for one in here:
                if one in gone:
                    change.erase(one, _digest(here[one]))
            for one in orphans:
                change.update(one, status="active")
            change.strike(gone)
        if gone:
            self._store.purge()
            self._search.forget()
        return [one for one in known if one in gone]

    def _removed(self, namespace: str | None) -> dict[str, MemoryRecord]:
        """The records that only the journal still holds: a rollback could bring them back."""
        steps = (step for entry in self.journal() for step in entry["undo"] if step[0] == "restore")
        records = (from_dict(step[2]) for step in steps)
        return {record.id: record for record in records if namespace in (None, record.namespace)}

    def _orphans(self, here: dict[str, MemoryRecord], gone: set[str]) -> list[str]:
        """What comes back when these go: archived parents that lose their last merger, and set-aside duplicates."""
        parents = {parent for one in gone & here.keys() for parent in here[one].parents}
        kept = {parent for r in here.values() if r.id not in gone for parent in r.parents}
        copies = {link[0] for link in self._store.links() if link[1] == "duplicate_of" and link[2] in gone}
        back = dict.fromkeys(copies, ("superseded",)) | dict.fromkeys(parents - kept, ("archived", "superseded"))
        return sorted(one for one in back.keys() & here.keys() - gone if here[one].status in back[one])


def _digest(record: MemoryRecord) -> str:
    text = json.dumps(to_dict(record), sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
