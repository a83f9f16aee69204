"""Read access to an open bank without a search: one namespace, except for the methods that say "all namespaces"."""

from __future__ import annotations

import json
from typing import Any

from core.errors import UserError
from core.memory.ports import CORRECTS
from core.memory.store.changes import weight_of
from core.memory.store.contract import BankStore
from core.memory.store.jobs import Jobs
from core.memory.store.schema import to_record
from core.setting import named_labels
from core.types import MemoryRecord

ERASED = "erased"  # key of the namespace value that holds the ids of records deleted by `History.erase`
FEWEST = 4  # characters of an id that stand for it, as in git
FORGOTTEN = "forgotten"  # likewise: {id: digest} of those deleted by `History.forget`


class Contents:
    """Reads one namespace, and where a method says so all of them. An id is unique within its namespace only.

    Of all namespaces are `records` (without a namespace), `recent(everyone=True)`, `__len__`, `dim` and `jobs`.
    """

    path: str
    namespace: str
    _store: BankStore
    _uncorrected: tuple[str, int | None] | None = None  # (namespace, version of the store) without corrections

    def get(self, id: str) -> MemoryRecord | None:
        """The record with this id; None when there is none."""
        found = self._store.rows(
            f"{self._store.dialect.records} WHERE r.namespace = $1 AND r.id = $2", (self.namespace, id)
        )
        return to_record(found[0], self.path) if found else None

    def existing(self, id: str) -> MemoryRecord:
        """The record with this id. UserError when there is none."""
        record = self.get(id)
        if record is None:
            raise UserError(f"the bank {self.path} has no record {id} in the namespace {self.namespace}.")
        return record

    def find(self, id: str) -> MemoryRecord | None:
        """The record with this id, or else with the only id that begins so; None when there is none.

        UserError for a beginning of several ids, or of fewer than FEWEST characters.
        """
        if (record := self.get(id)) is not None:
            return record
        query = "SELECT id FROM records WHERE namespace = $1 AND substr(id, 1, $2) = $3 ORDER BY id LIMIT 6"
        found = [row[0] for row in self._store.rows(query, (self.namespace, len(id), id))]
        if len(id) < FEWEST and found:
            raise UserError(f"the id {id} is too short: give at least its first {FEWEST} characters.")
        if len(found) > 1:
            more = ", ..." if len(found) > 5 else ""
            raise UserError(f"the id {id} is the beginning of several: give one of {', '.join(found[:5])}{more}.")
        return self.get(found[0]) if found else None

    def ids(self) -> set[str]:
        """Ids of all records of the namespace except merged ones, which no run adds.

        Includes ids deleted by `History.erase`, so that a resumed run does not add these records again.
        """
        query = "SELECT id FROM records WHERE namespace = $1 AND parents = '[]'"
        return {row[0] for row in self._store.rows(query, (self.namespace,))} | set(self.erased())

    def labels(self) -> set[str]:
        """Label sources of all records of the namespace; archived ones too, since a merge may be built from them."""
        columns = "label_source, json_extract(provenance, '$.use_gold'), json_extract(provenance, '$.show_answer')"
        rows = self._store.rows(f"SELECT DISTINCT {columns} FROM records WHERE namespace = $1", (self.namespace,))
        return set().union(*(named_labels(*row) for row in rows))

    def records(self, namespace: str | None = None, status: str | None = None) -> list[MemoryRecord]:
        """Records, oldest first. namespace None: of all namespaces, not just the bank's; status None: of any status."""
        where = "WHERE coalesce($1, r.namespace) = r.namespace AND coalesce($2, r.status) = r.status"
        store = self._store.of(namespace)
        rows = store.rows(f"{store.dialect.records} {where} ORDER BY r.rowid", (namespace, status))
        return [to_record(row, self.path) for row in rows]

    def recent(self, n: int, *, everyone: bool = False) -> list[MemoryRecord]:
        """The last n records of any status, newest first, without embeddings.

        everyone   of all namespaces; else of the bank's own
        """
        where, values = ("", ()) if everyone else ("WHERE namespace = $1 ", (self.namespace,))
        store = self._store.of(None) if everyone else self._store
        rows = store.rows(f"{store.dialect.bare} FROM records {where}ORDER BY rowid DESC LIMIT {int(n)}", values)
        return [to_record(row, self.path) for row in rows]

    def links(self, id: str | None = None) -> list[tuple[str, str, str, str]]:
        """(source, relation, target, note) of the links of the namespace. id: only those from or to this record."""
        query = "SELECT source, relation, target, note FROM links WHERE namespace = $1"
        if id is None:
            return self._store.rows(f"{query} ORDER BY 1, 2, 3", (self.namespace,))
        query = f"{query} AND source = $2 UNION {query} AND target = $2 ORDER BY 1, 2, 3"
        return self._store.rows(query, (self.namespace, id))

    def corrections(self, ids: list[str]) -> set[tuple[str, str]]:
        """(newer, older) of the links (CORRECTS) to these records from active ones that correct them."""
        now = (self.namespace, self._store.version())
        if not ids or now == self._uncorrected:
            return set()
        where, values = "WHERE l.namespace = $1 AND l.note LIKE $2", (self.namespace, f"{CORRECTS}%")
        if now[1] is not None and not self._store.rows(f"SELECT 1 FROM links l {where} LIMIT 1", values):
            self._uncorrected = now
            return set()
        among = ", ".join(f"${number}" for number in range(3, 3 + len(ids)))
        query = (
            "SELECT l.source, l.target FROM links l JOIN records r ON (r.namespace, r.id) = (l.namespace, l.source) "
            f"{where} AND l.target IN ({among}) AND r.status = 'active'"
        )
        return set(self._store.rows(query, (*values, *ids)))

    def link_details(self, id: str) -> list[dict[str, Any]]:
        """{source, relation, target, note, weight, created_at} of the links from or to a record.

        weight       similarity of the two records when they were linked; None: not known, as in older banks
        created_at   ISO: when the journal says that this bank got the link, also when imported
        """
        query = (
            "SELECT max(j.at) FROM undo_links u JOIN journal j ON j.seq = u.seq WHERE NOT u.was_there "
            "AND (u.namespace, u.source, u.relation, u.target) = ($1, $2, $3, $4)"
        )
        names, found = ("source", "relation", "target", "note"), []
        for link in self.links(id):
            at = self._store.rows(query, (self.namespace, *link[:3]))[0][0]
            found.append(dict(zip(names, link)) | {"weight": weight_of(link[3]), "created_at": at})
        return found

    def fact(self, key: str) -> str | None:
        """A value stored with the namespace (`Change.fact`); None when there is none.

        Rolled back with the records. Values of the bank as a whole (schema, embedder) are in `meta` (`BankStore.meta`).
        """
        found = self._store.rows("SELECT value FROM facts WHERE namespace = $1 AND key = $2", (self.namespace, key))
        return found[0][0] if found else None

    def of_query(self, query: str) -> list[str]:
        """Ids of the active records of the namespace with this query, in any case, oldest first."""
        same = "lower(trim(original_query)) = lower(trim(CAST($2 AS TEXT)))"
        where = f"namespace = $1 AND status = 'active' AND {same}"
        rows = self._store.rows(f"SELECT id FROM records WHERE {where} ORDER BY rowid", (self.namespace, query))
        return [row[0] for row in rows]

    def titles(self) -> list[tuple[str, str]]:
        """(id, title of the first item) of the active records of the namespace, oldest first."""
        query = "SELECT id, json_extract(items, '$[0].title') FROM records WHERE namespace = $1 AND status = 'active'"
        return [(id, title or "") for id, title in self._store.rows(f"{query} ORDER BY rowid", (self.namespace,))]

    def domains(self) -> list[str]:
        """The domains of the records of the namespace, sorted."""
        query = "SELECT DISTINCT domain FROM records WHERE namespace = $1 ORDER BY 1"
        return [row[0] for row in self._store.rows(query, (self.namespace,))]

    def statuses(self) -> dict[str, int]:
        """{status: number of records} of the namespace."""
        query = "SELECT status, count(*) FROM records WHERE namespace = $1 GROUP BY 1"
        return dict(self._store.rows(query, (self.namespace,)))

    def __len__(self) -> int:
        """Number of records in all namespaces."""
        return self._store.of(None).count()

    def tick(self) -> int:
        """The highest tick of any record of the namespace: the position in its stream of tasks."""
        # Down the index of the ticks, where the first is most often the namespace's: not over all its records.
        query = "SELECT tick FROM records WHERE namespace || '' = $1 ORDER BY tick DESC LIMIT 1"
        found = self._store.rows(query, (self.namespace,))
        return found[0][0] if found else 0

    def dim(self) -> int | None:
        """Dimension of the embeddings, the same in all namespaces; None while the bank is empty."""
        return self._store.of(None).dim()

    def made_with(self) -> dict[str, Any]:
        """{name, dim, since} of the bank's embedder; None for values that are not known (yet)."""
        dim = self._store.meta("embedder_dim")
        known = {"name": self._store.meta("embedder"), "dim": self.dim() if dim is None else int(dim)}
        return known | {"since": self._store.meta("embedder_since")}

    def jobs(self) -> Jobs:
        """The queue of attempts that wait for extraction, of all namespaces."""
        return Jobs(self._store)

    def erased(self) -> list[str]:
        """Ids of the records deleted by `History.erase`."""
        return json.loads(self.fact(ERASED) or "[]")
