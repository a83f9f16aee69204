"""What a bank was: the journal of its changes, what undoes them, marks to go back to, what is forgotten for good."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from core.errors import UserError
from core.memory.contents import ERASED, Contents
from core.memory.store.changes import Change
from core.memory.store.contract import BankStore
from core.memory.store.schema import BARE, TRACKED, to_dict, to_record
from core.types import MemoryRecord

_MARK = "snapshot:"  # before the name of one, in the key of its fact


@dataclass(frozen=True, kw_only=True)
class History:
    """The history of one namespace of an open bank.

    contents   what is in it now
    store      of its rows
    change     opens a change of it, for a reason
    """

    contents: Contents
    store: BankStore
    change: Callable[[str], AbstractContextManager[Change]]

    def seq(self) -> int:
        """The last entry of the journal; 0 when there is none."""
        return self.store.rows("SELECT coalesce(max(seq), 0) FROM journal")[0][0]

    def journal(self) -> list[dict[str, Any]]:
        """{seq, at, tick, reason, undo} of every change, everyone's, oldest first.

        undo names the rows that it has changed: (table, whether the row was there before, *its key).
        """
        undo = defaultdict(list)
        for table, (columns, n_key) in TRACKED.items():
            query = f"SELECT seq, was_there, {', '.join(columns[:n_key])} FROM undo_{table} ORDER BY step"
            for seq, was_there, *key in self.store.of(None).rows(query):
                undo[seq].append((table, bool(was_there), *key))
        entries = self.store.rows("SELECT seq, at, tick, reason FROM journal ORDER BY seq")
        return [dict(zip(("seq", "at", "tick", "reason"), row)) | {"undo": undo[row[0]]} for row in entries]

    def rollback(self, to: int | str, *, everyone: bool = False) -> int:
        """Undo what was changed in the namespace, or in all, after an entry of the journal; returns how many changes.

        to   the entry's number, or the name of a snapshot; UserError where there is none such
        That is itself one change, so it can be undone. What was forgotten stays forgotten.
        """
        if isinstance(to, str):
            if to not in (marks := self.snapshots()):
                raise UserError(
                    f"the bank {self.contents.path} has no snapshot {to}: it has {', '.join(marks) or 'none'}."
                )
            to = marks[to]
        if not 0 <= to <= self.seq():
            raise UserError(
                f"the bank {self.contents.path} has no journal entry {to}: the journal ends at {self.seq()}."
            )
        with self.change(f"rollback to {to}") as change:
            return change.roll_back(to, everyone=everyone)

    def snapshot(self, name: str) -> int:
        """Give the present state a name and return its place in the journal. UserError for a name that is taken."""
        with self.change(f"snapshot {name}") as change:
            if self.contents.fact(_MARK + name) is not None:
                raise UserError(f"the bank {self.contents.path} has a snapshot {name} already.")
            change.fact(_MARK + name, str(self.seq() + 1))  # the mark's own entry: going back to it keeps it
        return self.snapshots()[name]

    def snapshots(self) -> dict[str, int]:
        """Name -> place in the journal, oldest first."""
        query = (
            "SELECT key, CAST(value AS INTEGER) FROM facts "
            f"WHERE namespace = $1 AND substr(key, 1, {len(_MARK)}) = $2 ORDER BY 2"
        )
        return {key.removeprefix(_MARK): seq for key, seq in self.store.rows(query, (self.contents.namespace, _MARK))}

    def forget(self, *, id: str | None = None, task: str | None = None, run: str | None = None) -> list[str]:
        """Delete the records of an id, a task or a run (provenance["run"]) for good; returns their ids.

        With them goes whatever was merged from them, and all that the journal still holds of either; what that merge
        had archived, and what was set aside as their duplicate, becomes active again. The journal keeps ids and
        digests. The bank's files are overwritten; what other files hold (episodes.jsonl of a run, exports, banks that
        were set aside as damaged) is not touched.
        """
        if id is task is run is None:
            raise UserError("say what to forget: an id, a task or a run.")
        with self.change("forget") as change:
            here = self._bare("records WHERE namespace = $1 ORDER BY rowid")
            past = "undo_records WHERE namespace = $1 AND was_there AND id NOT IN"  # what a rollback could bring back
            known = self._bare(f"{past} (SELECT id FROM records WHERE namespace = $1) ORDER BY seq, step") | here
            gone = {
                one
                for one, record in known.items()
                if id in (None, one) and task in (None, record.task_id) and run in (None, record.provenance.get("run"))
            }
            while heirs := {r.id for r in known.values() if r.id not in gone and gone.intersection(r.parents)}:
                gone |= heirs
            orphans = self._orphans(here, gone)
            if gone:
                self.store.drop_indexes()
                change.erase(gone)
                change.reason += "".join(f"; {one} sha256:{_digest(r)}" for one, r in here.items() if one in gone)
            for one in orphans:
                change.update(one, status="active")
        return [one for one in known if one in gone]

    def erase(self, change: Change, ids: tuple[str, ...]) -> None:
        """Delete records for good inside a change, and remember their ids alone."""
        self.store.drop_indexes()
        change.erase(ids)
        change.fact(ERASED, json.dumps(sorted({*self.contents.erased(), *ids})))

    def _bare(self, source: str) -> dict[str, MemoryRecord]:
        """Records of the namespace by id, without embeddings."""
        return {row[1]: to_record(row) for row in self.store.rows(f"{BARE} FROM {source}", (self.contents.namespace,))}

    def _orphans(self, here: dict[str, MemoryRecord], gone: set[str]) -> list[str]:
        """What comes back when these go: archived parents that lose their last merger, and set-aside duplicates."""
        parents = {parent for one in gone & here.keys() for parent in here[one].parents}
        kept = {parent for r in here.values() if r.id not in gone for parent in r.parents}
        copies = {link[0] for link in self.contents.links() if link[1] == "duplicate_of" and link[2] in gone}
        back = dict.fromkeys(copies, ("superseded",)) | dict.fromkeys(parents - kept, ("archived", "superseded"))
        return sorted(one for one in back.keys() & here.keys() - gone if here[one].status in back[one])


def _digest(record: MemoryRecord) -> str:
    return hashlib.sha256(json.dumps(to_dict(record), sort_keys=True).encode()).hexdigest()
