"""A bank's file without the search: what is in it, what it was, how it is changed. Enough to read a finished run's."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Self

from core.errors import InfraError, UserError
from core.memory.open import open_store
from core.memory.store.changes import Change, Items, weight_of
from core.memory.store.contract import BankStore
from core.memory.store.jobs import Jobs
from core.memory.store.schema import BARE, RECORDS, TRACKED, to_dict, to_record
from core.models.embedding import Embedder
from core.setting import named_labels
from core.types import MemoryRecord

log = logging.getLogger(__name__)

_MARK = "snapshot:"
_ERASED = "erased"  # the ids that `erase` has taken out


@dataclass(kw_only=True)
class BankFile:
    """One namespace of a bank's file. Every id is looked for in this namespace; ids of others may be the same.

    path         the SQLite file, or the URL of a PostgreSQL database
    store        how that database is used (core/memory/postgres); None: as usual
    embedder     makes the vectors of what is added; a bank refuses another than its own
    namespace    the tenant: what is added goes there
    read_only    open an existing bank and refuse to change it (setting=frozen)
    """

    path: str
    embedder: Embedder
    namespace: str = "default"
    read_only: bool = False
    store: Any = None
    _store: BankStore = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._store = open_store(self.path, read_only=self.read_only, how=self.store).of(self.namespace)
        made_by = self._store.meta("embedder")
        if made_by not in (None, self.embedder.name, getattr(self.embedder, "former_name", None)):
            self._store.close()
            raise UserError(
                f"the bank {self.path} was made by the embedder {made_by!r} and this run uses {self.embedder.name!r}: "
                "give the same embedder, or another memory.path."
            )
        self._embed_missing()

    def of(self, namespace: str) -> Self:
        """The same open bank as another tenant has it. Close only the one that was opened."""
        other = copy(self)
        other.namespace, other._store = namespace, self._store.of(namespace)
        return other

    def close(self) -> None:
        self._store.close()

    def get(self, id: str) -> MemoryRecord | None:
        """The record of an id; None when there is none."""
        found = self._store.rows(f"{RECORDS} WHERE r.namespace = ? AND r.id = ?", (self.namespace, id))
        return to_record(found[0]) if found else None

    def existing(self, id: str) -> MemoryRecord:
        """The record of an id. UserError when there is none."""
        record = self.get(id)
        if record is None:
            raise UserError(f"the bank {self.path} has no record {id} in the namespace {self.namespace}.")
        return record

    def ids(self) -> set[str]:
        """Of all records of the namespace but those that the bank made itself, by merging others.

        With those that `erase` has taken out: a run that is resumed must not add them again.
        """
        query = "SELECT id FROM records WHERE namespace = ? AND parents = '[]'"
        return {row[0] for row in self._store.rows(query, (self.namespace,))} | set(self._erased())

    def labels(self) -> set[str]:
        """The sources of the labels of all records of the namespace, archived ones too: a merger may come of them."""
        columns = "label_source, json_extract(provenance, '$.use_gold'), json_extract(provenance, '$.show_answer')"
        rows = self._store.rows(f"SELECT DISTINCT {columns} FROM records WHERE namespace = ?", (self.namespace,))
        return set().union(*(named_labels(*row) for row in rows))

    def records(self, namespace: str | None = None, status: str | None = None) -> list[MemoryRecord]:
        """Every record, everyone's, oldest first; of one namespace and status where they are given."""
        where = "WHERE coalesce(?1, r.namespace) = r.namespace AND coalesce(?2, r.status) = r.status"
        rows = self._store.of(namespace).rows(f"{RECORDS} {where} ORDER BY r.rowid", (namespace, status))
        return [to_record(row) for row in rows]

    def links(self, id: str | None = None) -> list[tuple[str, str, str, str]]:
        """(source, relation, target, note) of all links of the namespace, or of those from or to a record."""
        query = "SELECT source, relation, target, note FROM links WHERE namespace = ?1"
        if id is None:
            return self._store.rows(f"{query} ORDER BY 1, 2, 3", (self.namespace,))
        query = f"{query} AND source = ?2 UNION {query} AND target = ?2 ORDER BY 1, 2, 3"
        return self._store.rows(query, (self.namespace, id))

    def link_details(self, id: str) -> list[dict[str, Any]]:
        """{source, relation, target, note, weight, created_at} of the links from or to a record.

        weight       their similarity when they were linked; None where it is not known, as in older banks
        created_at   ISO, by the journal: when this bank got the link, be it by an import
        """
        query = (
            "SELECT max(j.at) FROM undo_links u JOIN journal j ON j.seq = u.seq WHERE NOT u.was_there "
            "AND (u.namespace, u.source, u.relation, u.target) = (?, ?, ?, ?)"
        )
        names, found = ("source", "relation", "target", "note"), []
        for link in self.links(id):
            at = self._store.rows(query, (self.namespace, *link[:3]))[0][0]
            found.append(dict(zip(names, link)) | {"weight": weight_of(link[3]), "created_at": at})
        return found

    def fact(self, key: str) -> str | None:
        """A fact about the namespace that a change has set; None when there is none."""
        found = self._store.rows("SELECT value FROM facts WHERE namespace = ? AND key = ?", (self.namespace, key))
        return found[0][0] if found else None

    def titles(self) -> list[tuple[str, str]]:
        """(id, title of the first item) of the active records of the namespace, oldest first."""
        query = "SELECT id, json_extract(items, '$[0].title') FROM records WHERE namespace = ? AND status = 'active'"
        return [(id, title or "") for id, title in self._store.rows(f"{query} ORDER BY rowid", (self.namespace,))]

    def statuses(self) -> dict[str, int]:
        """How many records of the namespace have each status."""
        query = "SELECT status, count(*) FROM records WHERE namespace = ? GROUP BY 1"
        return dict(self._store.rows(query, (self.namespace,)))

    def __len__(self) -> int:
        """Of everyone's records."""
        return self._store.of(None).count()

    def tick(self) -> int:
        """The highest tick of any record, whosever: where the stream stands."""
        return self._store.of(None).rows("SELECT coalesce(max(tick), 0) FROM records")[0][0]

    def dim(self) -> int | None:
        """Numbers in an embedding; None while the bank is empty."""
        return self._store.of(None).dim()

    def made_with(self) -> dict[str, Any]:
        """{name, dim, since} of the embedder that the bank was made with; None where that is not (yet) known."""
        dim = self._store.meta("embedder_dim")
        known = {"name": self._store.meta("embedder"), "dim": self.dim() if dim is None else int(dim)}
        return known | {"since": self._store.meta("embedder_since")}

    def jobs(self) -> Jobs:
        """The queue of attempts that wait to be learned from, everyone's."""
        return Jobs(self._store)

    @contextmanager
    def change(self, reason: str, wait_s: float | None = None) -> Iterator[Change]:
        """Change records: `with bank.change("why") as change`. One transaction, one journal entry, all or nothing.

        wait_s   seconds that it waits for other writers, then it is a Busy; None: as long as SQLite does (BUSY_S)
        """
        if self.read_only:
            raise UserError(f"the bank {self.path} is opened for reading only.")
        with self._store.change(reason, self.namespace, self._embed, self.embedder.name, wait_s) as change:
            yield change
        if change.erased:
            self._store.empty_log()
        if change.brought_back:
            self._embed_missing()

    def seq(self) -> int:
        """The last entry of the journal; 0 when there is none."""
        return self._store.rows("SELECT coalesce(max(seq), 0) FROM journal")[0][0]

    def journal(self) -> list[dict[str, Any]]:
        """{seq, at, tick, reason, undo} of every change, everyone's, oldest first.

        undo names the rows that it has changed: (table, whether the row was there before, *its key).
        """
        undo = defaultdict(list)
        for table, (columns, n_key) in TRACKED.items():
            query = f"SELECT seq, was_there, {', '.join(columns[:n_key])} FROM undo_{table} ORDER BY step"
            for seq, was_there, *key in self._store.of(None).rows(query):
                undo[seq].append((table, bool(was_there), *key))
        entries = self._store.rows("SELECT seq, at, tick, reason FROM journal ORDER BY seq")
        return [dict(zip(("seq", "at", "tick", "reason"), row)) | {"undo": undo[row[0]]} for row in entries]

    def rollback(self, to: int | str, *, everyone: bool = False) -> int:
        """Undo what was changed in the namespace, or in all, after an entry of the journal; returns how many changes.

        to   the entry's number, or the name of a snapshot; UserError where there is none such
        That is itself one change, so it can be undone. What was forgotten stays forgotten.
        """
        if isinstance(to, str):
            if to not in (marks := self.snapshots()):
                raise UserError(f"the bank {self.path} has no snapshot {to}: it has {', '.join(marks) or 'none'}.")
            to = marks[to]
        if not 0 <= to <= self.seq():
            raise UserError(f"the bank {self.path} has no journal entry {to}: the journal ends at {self.seq()}.")
        with self.change(f"rollback to {to}") as change:
            return change.roll_back(to, everyone=everyone)

    def snapshot(self, name: str) -> int:
        """Give the present state a name and return its place in the journal. UserError for a name that is taken."""
        with self.change(f"snapshot {name}") as change:
            if self.fact(_MARK + name) is not None:
                raise UserError(f"the bank {self.path} has a snapshot {name} already.")
            change.fact(_MARK + name, str(self.seq() + 1))  # the mark's own entry: going back to it keeps it
        return self.snapshots()[name]

    def snapshots(self) -> dict[str, int]:
        """Name -> place in the journal, oldest first."""
        query = (
            "SELECT key, CAST(value AS INTEGER) FROM facts "
            f"WHERE namespace = ? AND substr(key, 1, {len(_MARK)}) = ? ORDER BY 2"
        )
        return {key.removeprefix(_MARK): seq for key, seq in self._store.rows(query, (self.namespace, _MARK))}

    def forget(
        self, *, id: str | None = None, task: str | None = None, run: str | None = None, namespace: str | None = None
    ) -> list[str]:
        """Delete the records of an id, a task or a run (provenance["run"]) for good; returns their ids.

        Of the bank's namespace, unless another is given. With them goes whatever was merged from them, and all that
        the journal still holds of either; what that merge had archived, and what was set aside as their duplicate,
        becomes active again. The journal keeps ids and digests. The bank's files are overwritten; what other files
        hold (episodes.jsonl of a run, exports, banks that were set aside as damaged) is not touched.
        """
        if namespace not in (None, self.namespace):
            return self.of(namespace).forget(id=id, task=task, run=run)
        if id is task is run is None:
            raise UserError("say what to forget: an id, a task or a run.")
        with self.change("forget") as change:
            here = self._bare("records WHERE namespace = ?1 ORDER BY rowid")
            past = "undo_records WHERE namespace = ?1 AND was_there AND id NOT IN"  # what a rollback could bring back
            known = self._bare(f"{past} (SELECT id FROM records WHERE namespace = ?1) ORDER BY seq, step") | here
            gone = {
                one
                for one, record in known.items()
                if id in (None, one) and task in (None, record.task_id) and run in (None, record.provenance.get("run"))
            }
            while heirs := {r.id for r in known.values() if r.id not in gone and gone.intersection(r.parents)}:
                gone |= heirs
            orphans = self._orphans(here, gone)
            if gone:
                self._store.drop_indexes()
                change.erase(gone)
                change.reason += "".join(f"; {one} sha256:{_digest(r)}" for one, r in here.items() if one in gone)
            for one in orphans:
                change.update(one, status="active")
        return [one for one in known if one in gone]

    def erase(self, change: Change, ids: tuple[str, ...]) -> None:
        """Delete records for good inside a change, and remember their ids alone."""
        self._store.drop_indexes()
        change.erase(ids)
        change.fact(_ERASED, json.dumps(sorted({*self._erased(), *ids})))

    def _erased(self) -> list[str]:
        return json.loads(self.fact(_ERASED) or "[]")

    def _bare(self, source: str) -> dict[str, MemoryRecord]:
        """Records of the namespace by id, without embeddings."""
        return {row[1]: to_record(row) for row in self._store.rows(f"{BARE} FROM {source}", (self.namespace,))}

    def _orphans(self, here: dict[str, MemoryRecord], gone: set[str]) -> list[str]:
        """What comes back when these go: archived parents that lose their last merger, and set-aside duplicates."""
        parents = {parent for one in gone & here.keys() for parent in here[one].parents}
        kept = {parent for r in here.values() if r.id not in gone for parent in r.parents}
        copies = {link[0] for link in self.links() if link[1] == "duplicate_of" and link[2] in gone}
        back = dict.fromkeys(copies, ("superseded",)) | dict.fromkeys(parents - kept, ("archived", "superseded"))
        return sorted(one for one in back.keys() & here.keys() - gone if here[one].status in back[one])

    def compact(self) -> tuple[int, int]:
        """Give back the room that deleted rows, dropped vectors above all, left in the file; its bytes before, after.

        Nothing but this does: SQLite keeps that room for what is added next.
        """
        return self._store.compact()

    def size(self) -> int:
        """Bytes of the whole bank, with its journal and its indexes."""
        return self._store.size()

    @property
    def remains(self) -> str:
        """What `forget` cannot reach, as one sentence; "" where it reaches everything."""
        return self._store.remains

    def verify_indexes(self) -> Iterator[str]:
        """Make anew what follows from the records, but the index's file, which is checked whenever it is read.

        Yields a line for each part. UserError on damage.
        """
        lost = self._store.embed_missing(self._embed)
        dropped = self._store.of(None).rows(
            "SELECT count(*) FROM records WHERE rowid NOT IN (SELECT rowid FROM vectors)"
        )[0][0]
        found = f"{lost} had no vector and have one now" if lost else "each with its vector"
        yield f"{len(self)} records, {found}" + (f", but for {dropped} that are set aside" if dropped else "")
        yield from self._store.rebuild()

    def _embed_missing(self) -> None:
        """Vectors for what came back without one: by a repair, a rollback, an unmerge, a new status.

        Without a working embedder these records wait for the next opening; until then only words find them.
        """
        if not self.read_only and self._store.meta("unembedded"):
            try:
                self._store.embed_missing(self._embed)
            except (InfraError, UserError) as error:
                log.warning(f"the bank {self.path}: records that came back wait for their vectors: {error}")

    def _embed(self, record: MemoryRecord) -> tuple[bytes, Items]:
        """(query's vector, items' vectors) of a record: none of the items, which few banks are searched by."""
        return self.embedder.embed([record.original_query])[0].tobytes(), []


def _digest(record: MemoryRecord) -> str:
    return hashlib.sha256(json.dumps(to_dict(record), sort_keys=True).encode()).hexdigest()
