"""What is asked of a bank's tables; every question is a pure read."""

from __future__ import annotations

from typing import Any

from core.memory.store import writes
from core.memory.store.filter import Filter
from core.memory.store.schema import SELECT, to_record
from core.types import MemoryRecord

State = tuple[int, int]  # (highest rowid, last entry of `touched`)


class Queries:
    """The questions; Store answers them with `rows` and `reading`."""

    rows: Any
    reading: Any

    def meta(self, key: str) -> str | None:
        """A fact about the bank (schema, embedder, dim); None when it was never set."""
        found = self.rows("SELECT value FROM meta WHERE key = ?", (key,))
        return found[0][0] if found else None

    def count(self) -> int:
        """How many records there are."""
        return self.rows("SELECT count(*) FROM records")[0][0]

    def state(self) -> State:
        """How far records and changes to them go."""
        query = "SELECT coalesce((SELECT max(rowid) FROM records), 0), coalesce((SELECT max(seq) FROM touched), 0)"
        return self.rows(query)[0]

    def ids(self) -> set[str]:
        """The ids of all records but those that the bank made itself, by merging others."""
        return {row[0] for row in self.rows("SELECT id FROM records WHERE parents = '[]'")}

    def get(self, rowids: list[int] | None) -> dict[int, MemoryRecord]:
        """The whole records of some rowids, None for all; those that are gone are left out."""
        where = "" if rowids is None else f" WHERE r.rowid IN ({('?, ' * len(rowids))[:-2]})"
        rows = self.rows(f"SELECT r.rowid, {SELECT[7:]}{where}", tuple(rowids or ()))
        return {row[0]: to_record(row[1:]) for row in rows}

    def find(self, id: str) -> MemoryRecord | None:
        """The record of an id."""
        with self.reading() as db:
            found = writes.find(db, id)
        return found[1] if found else None

    def all(self, namespace: str | None = None, status: str | None = None) -> list[MemoryRecord]:
        """Every record, oldest first; of one namespace or status where they are given."""
        where = "WHERE coalesce(?1, r.namespace) = r.namespace AND coalesce(?2, r.status) = r.status"
        return [to_record(row) for row in self.rows(f"{SELECT} {where} ORDER BY r.rowid", (namespace, status))]

    def titles(self, namespace: str) -> list[tuple[str, str]]:
        """(id, title of the first item) of the active records of a namespace, oldest first."""
        query = "SELECT id, json_extract(items, '$[0].title') FROM records WHERE namespace = ? AND status = 'active'"
        return [(id, title or "") for id, title in self.rows(f"{query} ORDER BY rowid", (namespace,))]

    def statuses(self, namespace: str) -> dict[str, int]:
        """How many records of a namespace have each status."""
        return dict(self.rows("SELECT status, count(*) FROM records WHERE namespace = ? GROUP BY 1", (namespace,)))

    def vectors(self, after: int, upto: int, items: bool = False) -> list[tuple]:
        """(rowid, place, namespace, status, outcome, domain, tags, float32 bytes) of records, oldest first.

        With after < rowid <= upto, whatever their status. place is -1, or with `items` an item's position.
        """
        place, table = ("v.place", "item_vectors v ON v.record") if items else ("-1", "vectors v ON v.rowid")
        query = (
            f"SELECT r.rowid, {place}, r.namespace, r.status, r.outcome, r.domain, r.tags, v.vector "
            f"FROM records r JOIN {table} = r.rowid WHERE r.rowid > ? AND r.rowid <= ? ORDER BY r.rowid, 2"
        )
        return self.rows(query, (after, upto))

    def touched(self, after: int, upto: int, *, found: bool = True) -> set[int]:
        """The rowids of records that were removed, put back, or changed: in what a search looks at, or in anything."""
        query = "SELECT record FROM touched WHERE seq > ? AND seq <= ? AND found >= ?"
        return {row[0] for row in self.rows(query, (after, upto, found))}

    def without_items(self, after: int, upto: int) -> list[tuple]:
        """(rowid, namespace, status, outcome, domain, tags, record) of those that have items and no vectors of them."""
        query = (
            f"SELECT r.rowid, r.namespace, r.status, r.outcome, r.domain, r.tags, {SELECT[7:]} WHERE r.rowid > ? AND "
            "r.rowid <= ? AND NOT EXISTS (SELECT 1 FROM item_vectors i WHERE i.record = r.rowid) ORDER BY r.rowid"
        )
        return [(*row[:6], to_record(row[6:])) for row in self.rows(query, (after, upto))]

    def links(self, id: str | None = None) -> list[tuple[str, str, str, str]]:
        """(source, relation, target, note) of all links, or of those from or to a record."""
        query = "SELECT source, relation, target, note FROM links"
        if id is None:
            return self.rows(f"{query} ORDER BY 1, 2, 3")
        return self.rows(f"{query} WHERE source = ?1 UNION {query} WHERE target = ?1 ORDER BY 1, 2, 3", (id,))

    def tick(self) -> int:
        """The highest tick of any record."""
        return self.rows("SELECT coalesce(max(tick), 0) FROM records")[0][0]

    def last(self, table: str) -> int:
        """The highest number that a table ever gave."""
        found = self.rows("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,))
        return found[0][0] if found else 0

    def journal(self) -> list[tuple]:
        """(seq, at, tick, reason, undo as JSON) of every change, oldest first."""
        return self.rows("SELECT seq, at, tick, reason, undo FROM journal ORDER BY seq")

    def rowids_of_task(self, namespace: str, task_id: str) -> set[int]:
        """The records that came from a task, merged ones too: what the guard against self-retrieval leaves out."""
        query = "SELECT rowid FROM records WHERE namespace = ? AND task_id = ?"
        merged = "SELECT record FROM lineage WHERE task_id = ?"
        return {row[0] for row in self.rows(f"{query} UNION {merged}", (namespace, task_id, task_id))}

    def lexical(self, words: str, k: int, where: Filter, exclude_task: str | None) -> list[tuple[int, float]]:
        """(rowid, BM25) of the k best records for an FTS5 expression, best first, ties to the oldest."""
        marks = ", ".join("?" * len(where.statuses))
        tags = "".join(" AND EXISTS (SELECT 1 FROM json_each(r.tags) t WHERE t.value = ?)" for _ in where.tags)
        query = (
            "SELECT r.rowid, round(-bm25(lexicon), 9) AS score FROM lexicon JOIN records r ON r.rowid = lexicon.rowid "
            "WHERE lexicon MATCH ?1 AND r.namespace = ?2 AND r.task_id IS NOT ?3 "
            "AND NOT EXISTS (SELECT 1 FROM lineage l WHERE l.task_id = ?3 AND l.record = r.rowid) "
            "AND coalesce(?4, r.outcome) = r.outcome AND coalesce(?5, r.domain) = r.domain "
            f"AND r.status IN ({marks}){tags} ORDER BY score DESC, r.rowid LIMIT {int(k)}"
        )
        fixed = (words, where.namespace, exclude_task, where.outcome, where.domain)
        return self.rows(query, (*fixed, *where.statuses, *where.tags))
