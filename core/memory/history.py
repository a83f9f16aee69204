"""A bank's history: journal, rollback, snapshots, permanent deletion.

Four functions delete records. `History.forget` is for users: it deletes records and the merges built from them, and
erases them from the journal; the same records may be added again. `History.erase` is for pruning: it also keeps their
ids, so that a resumed run does not add them again. Both use `Change.erase`, which deletes the rows and their undo rows.
`Change.remove` takes one record out and can be undone.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from core.errors import UserError
from core.memory.contents import ERASED, FORGOTTEN, Contents
from core.memory.ports import OpenChange
from core.memory.store.changes import Change
from core.memory.store.contract import BankStore
from core.memory.store.schema import TRACKED, in_parts, placeholders, to_dict, to_record
from core.types import MemoryRecord

# The namespace's records, and those that a rollback could bring back; {} is a further condition.
_HERE = "records WHERE namespace = $1 {} ORDER BY rowid"
_REMOVED = (
    "undo_records WHERE namespace = $1 AND was_there AND id NOT IN (SELECT id FROM records WHERE namespace = $1) {} "
    "ORDER BY seq, step"
)
_MERGED = "AND parents <> '[]'"
_SNAPSHOT = "snapshot:"  # prefix of the key under which the namespace stores a snapshot: its journal entry


@dataclass(frozen=True, kw_only=True)
class History:
    """The history of one namespace of an open bank.

    contents   read access to the current records
    store      the database
    change     opens a change, given its reason
    """

    contents: Contents
    store: BankStore
    change: Callable[[str], AbstractContextManager[Change]]

    def seq(self) -> int:
        """Number of the last journal entry; 0 when there is none."""
        return self.store.rows("SELECT coalesce(max(seq), 0) FROM journal")[0][0]

    def journal(self) -> list[dict[str, Any]]:
        """{seq, at, tick, reason, undo} of every change, oldest first, of all namespaces.

        undo lists the changed rows as (table, whether the row existed before, *its key).
        """
        undo = defaultdict(list)
        for table, (columns, n_key) in TRACKED.items():
            query = f"SELECT seq, was_there, {', '.join(columns[:n_key])} FROM undo_{table} ORDER BY step"
            for seq, was_there, *key in self.store.of(None).rows(query):
                undo[seq].append((table, bool(was_there), *key))
        entries = self.store.rows("SELECT seq, at, tick, reason FROM journal ORDER BY seq")
        return [dict(zip(("seq", "at", "tick", "reason"), row)) | {"undo": undo[row[0]]} for row in entries]

    def rollback(self, to: int | str, *, everyone: bool = False) -> int:
        """Undo all changes made after a journal entry; returns how many were undone.

        The rollback is itself one change, so it can be undone. Deleted records (`forget`, `erase`) stay deleted.

        to         number of the entry, or name of a snapshot; UserError if there is none
        everyone   in all namespaces; else in the bank's own
        """
        if isinstance(to, str):
            if to not in (snapshots := self.snapshots()):
                raise UserError(
                    f"the bank {self.contents.path} has no snapshot {to}: it has {', '.join(snapshots) or 'none'}."
                )
            to = snapshots[to]
        if not 0 <= to <= self.seq():
            raise UserError(
                f"the bank {self.contents.path} has no journal entry {to}: the journal ends at {self.seq()}."
            )
        if to < (least := int(self.store.meta("undo_from") or 0)):
            raise UserError(
                f"the bank {self.contents.path} was made anew from a journal that does not tell what was before its "
                f"entry {least}: give that or a later one."
            )
        with self.change(f"rollback to {to}") as change:
            return change.roll_back(to, everyone=everyone)

    def snapshot(self, name: str) -> int:
        """Name the current state; returns its journal entry. UserError for a name that is taken."""
        with self.change(f"snapshot {name}") as change:
            if self.contents.fact(_SNAPSHOT + name) is not None:
                raise UserError(f"the bank {self.contents.path} has a snapshot {name} already.")
            # The entry of this change: rolling back to a snapshot must not remove the snapshot itself.
            change.fact(_SNAPSHOT + name, str(self.seq() + 1))
        return self.snapshots()[name]

    def snapshots(self) -> dict[str, int]:
        """{name: journal entry}, oldest first."""
        query = (
            "SELECT key, CAST(value AS INTEGER) FROM facts "
            f"WHERE namespace = $1 AND substr(key, 1, {len(_SNAPSHOT)}) = $2 ORDER BY 2"
        )
        return {
            key.removeprefix(_SNAPSHOT): seq
            for key, seq in self.store.rows(query, (self.contents.namespace, _SNAPSHOT))
        }

    def forget(self, *, id: str | None = None, task: str | None = None, run: str | None = None) -> list[str]:
        """Delete the records of an id, a task or a run (provenance["run"]) for good; returns the ids deleted.

        Also deletes the records merged from them, and the journal's copies of both. Other originals of such a merge,
        and duplicates of a deleted record, become active again. The namespace keeps ids and digests
        (`forgotten`). Deleted rows are overwritten in the bank's files. Other files (episodes.jsonl of a run, exports,
        backups of damaged banks) are not touched.
        """
        if id is task is run is None:
            raise UserError("say what to forget: an id, a task or a run.")
        with self.change("forget") as change:
            given = {name: value for name, value in (("id", id), ("task_id", task)) if value is not None}
            where = " ".join(f"AND {name} = ${number}" for number, name in enumerate(given, 2))
            found = self._records(where, _REMOVED, _HERE, values=[*given.values()])
            gone = {one for one, record in found.items() if run in (None, record.provenance.get("run"))}
            merged = self._records(_MERGED, _HERE)
            once = self._records(_MERGED, _REMOVED) | merged
            parents = {one: record.parents for one, record in once.items()}
            while descendants := {one for one in parents.keys() - gone if gone.intersection(parents[one])}:
                gone |= descendants
            to_reactivate = self._to_reactivate(gone, merged)
            if gone:
                self.store.drop_indexes()
                texts = {one: json.dumps(to_dict(record), sort_keys=True) for one, record in self._there(gone).items()}
                digests = {one: f"sha256:{hashlib.sha256(text.encode()).hexdigest()}" for one, text in texts.items()}
                change.erase(gone)
                change.lasting_fact(FORGOTTEN, json.dumps(self.forgotten() | digests))
            for one in to_reactivate:
                change.update(one, status="active")
        return [one for one in found | once if one in gone]

    def forgotten(self) -> dict[str, str]:
        """{id: digest} of the records that were forgotten; the namespace's own, while all read the journal."""
        return json.loads(self.contents.fact(FORGOTTEN) or "{}")

    def erase(self, change: OpenChange, ids: tuple[str, ...]) -> None:
        """Delete records for good inside a change, and keep their ids (`Contents.erased`)."""
        self.store.drop_indexes()
        change.erase(ids)
        change.fact(ERASED, json.dumps(sorted({*self.contents.erased(), *ids})))

    def _records(self, where: str, *sources: str, values: Sequence[str] = ()) -> dict[str, MemoryRecord]:
        """{id: record} without embeddings; of a record in several sources that of the last.

        where    a further condition, with values from $2 on
        """
        asked = (f"{self.store.dialect.bare} FROM {each.format(where)}" for each in sources)
        rows = (row for query in asked for row in self.store.rows(query, (self.contents.namespace, *values)))
        return {row[1]: to_record(row, self.contents.path) for row in rows}

    def _there(self, ids: Iterable[str]) -> dict[str, MemoryRecord]:
        """Those of these records that have not been removed."""
        found: dict[str, MemoryRecord] = {}
        for some in in_parts(sorted(ids)):
            found |= self._records(f"AND id IN ({placeholders(len(some), after=1)})", _HERE, values=some)
        return found

    def _to_reactivate(self, gone: set[str], merged: dict[str, MemoryRecord]) -> list[str]:
        """Ids to make active when `gone` is deleted: archived parents without another merge, superseded duplicates."""
        freed = {parent for one in merged.keys() & gone for parent in merged[one].parents}
        kept = {parent for one in merged.keys() - gone for parent in merged[one].parents}
        copies = {link[0] for link in self.contents.links() if link[1] == "duplicate_of" and link[2] in gone}
        back = dict.fromkeys(copies, ("superseded",)) | dict.fromkeys(freed - kept, ("archived", "superseded"))
        return sorted(one for one, record in self._there(back.keys() - gone).items() if record.status in back[one])
