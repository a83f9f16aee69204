"""Search by vectors inside PostgreSQL: exactly, or in pgvector's graph and then in exact order."""

from __future__ import annotations

import logging
import re
import time
import unicodedata
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from core.memory.filter import PRIOR, Filter, normal_tag
from core.memory.postgres.connection import ESCAPE
from core.memory.postgres.setup import HAS_GRAPH
from core.memory.store.changes import Items
from core.memory.store.hits import Hit, best_of_each, with_records
from core.memory.store.schema import RECORDS, SET_ASIDE, storable, to_record
from core.types import MemoryRecord, Scored

if TYPE_CHECKING:
    from core.memory.postgres.store import PostgresStore

log = logging.getLogger(__name__)

Seen = dict[int, tuple]  # rowid: a row of RECORDS
GRAPH_FROM = 20_000  # vectors from which memory.index=hnsw has a graph made
FEW = 64  # hits whose records are read in the same query
_ONE = f"{RECORDS} WHERE r.rowid = h.found"
FRESH_S = 5.0  # for so long a tenant's size is taken to be the same
BELIEVED = f"coalesce(r.confidence, CASE r.outcome WHEN 'success' THEN {PRIOR['success']} ELSE {PRIOR['failure']} END)"

# FTS5's formula, k1 = 1.2 and b = 0.75. $1: words, $2: the namespace.
BM25 = """
    WITH size AS (
        SELECT sum(records) AS n, sum(words) / sum(records) AS mean FROM lexicon_size
        WHERE records > 0 AND (namespace = $2 OR $2 = '{everyone}')
    ), asked AS (
        SELECT w, (
            SELECT count(*) FROM lexicon WHERE words @> ARRAY[w] AND (namespace = $2 OR $2 = '{everyone}')
        ) AS df FROM unnest($1::text[]) w GROUP BY w
    ), weighed AS (
        SELECT w, greatest(ln((n - df + 0.5) / (df + 0.5)), 1e-6)::float8 AS idf FROM asked, size WHERE df > 0
    ), found AS (
        SELECT l.rowid, l.words, l.n FROM lexicon l JOIN records r USING (rowid)
        WHERE l.words && (SELECT array_agg(w) FROM weighed) AND {within}
    )
    SELECT rowid, (
        SELECT round(sum(idf * (tf * 2.2) / (tf + 1.2 * (0.25 + 0.75 * n / (SELECT mean FROM size))))::numeric, 9)
        FROM (SELECT idf, cardinality(array_positions(words, w)) AS tf FROM weighed) counted WHERE tf > 0
    )::float8 AS score FROM found ORDER BY score DESC, rowid LIMIT {k}
"""


def conditions(where: Filter, n: int, exclude_task: str | None) -> tuple[str, list[Any]]:
    """What a filter asks of a record `r`, as SQL, and its values, numbered from n + 1. Its namespace is filled in.

    exclude_task   which must not have taught it. In the search's own statement, so that this holds for what others add
                   just before it
    """
    values: list[Any] = [list(where.statuses)]
    parts = [f"r.status = ANY (${n + 1})"]

    def more(part: str, value: Any) -> None:
        values.append(value)
        parts.append(part.replace("$$", f"${n + len(values)}"))

    if not where.everyone:
        more("r.namespace = $$", where.namespace)
    if exclude_task is not None:
        # An id may stand there as json_each gives it (tables.sql): with a blank for a NUL byte.
        merged = f"SELECT t.record FROM lineage t WHERE t.task_id IN ($$, replace($$, '{ESCAPE}0', ' '))"
        more(f"r.task_id <> $$ AND r.rowid NOT IN ({merged})", exclude_task)
    if where.outcome is not None:
        more("r.outcome = $$", where.outcome)
    if where.domains is not None:
        more("r.domain = ANY ($$)", list(where.domains))
    if where.min_confidence is not None:
        more(f"{BELIEVED} >= $$::float8", where.min_confidence)
    for tag in where.tags:  # as Filter.passes compares them, but for letters outside ASCII, whose case counts here
        same = "t.value = ANY ($$) OR lower(regexp_replace(trim(t.value), '\\s+', '-', 'g')) = ANY ($$)"
        more(f"EXISTS (SELECT FROM json_each(r.tags) t WHERE {same})", [tag, normal_tag(tag)])
    return " AND ".join(parts), values


class PostgresSearch:
    """Finds vectors in the store; nothing is kept here but the items that the store has no vectors of. Thread-safe.

    graph          search in the graph where there is one and the tenant is not small; else exactly
    item_vectors   gives (place, vector as float32 bytes) of a record's items where the store has none; of more records
                   at once than most_missing it is not asked, and these are not found by their items
    """

    def __init__(
        self,
        store: PostgresStore,
        graph: bool,
        item_vectors: Callable[[MemoryRecord], Items],
        read_only: bool,
        most_missing: int | None = None,
    ) -> None:
        self._store, self._graph = store, graph
        self._item_vectors, self._most_missing = item_vectors, most_missing
        self._sizes: dict[tuple, tuple[float, int]] = {}
        self._has_graph: dict[bool, bool] = {}
        self._extra: dict[int, Items] = {}
        self._checked = -1  # the journal's entry up to which records without vectors of their items are known
        if graph and not read_only and store.dim() is not None:
            store.ensure_graphs(GRAPH_FROM)

    def nearest(
        self,
        vector: Any,
        k: int,
        where: Filter,
        exclude_task: str | None,
        *,
        kinds: tuple[bool, ...],
        distinct: bool,
    ) -> tuple[list[Hit], Seen]:
        """The k nearest of each kind, and rows that were read with them, for `scored`.

        kinds      False: of the records' queries; True: of their items
        distinct   of a record's items only the best
        """
        seen: Seen = {}
        hits: list[Hit] = []
        if k > 0:
            for items in kinds:
                hits += self._nearest(vector, k, where, exclude_task, items, distinct and items, seen)
        return hits, seen

    def _nearest(
        self, vector: Any, k: int, where: Filter, exclude_task: str | None, items: bool, distinct: bool, seen: Seen
    ) -> list[Hit]:
        store = self._store.of(None if where.everyone else where.namespace)
        wanted, graph = k, self._in_graph(store, items)
        extra = self._unstored(vector, where, exclude_task) if items else []
        while True:
            found = self._found(store, vector, wanted + 4, where, exclude_task, items, graph, seen)
            hits = sorted((*found, *extra), key=lambda hit: (-hit[2], hit[0], hit[1]))
            if distinct:
                hits = best_of_each(hits)
            hits = hits[:k]
            if graph and len(found) < wanted + 4:
                graph = False  # hnsw.max_scan_tuples may have ended the walk before enough had passed the filter
                continue
            # Equal scores come in any order: ask for more until the k-th score is not shared with the last.
            if len(found) < wanted + 4 or (len(hits) == k and (graph or hits[-1][2] > found[-1][2])):
                return hits
            wanted *= 2

    def scored(self, hits: list[Hit], unit: str, seen: Seen | None = None, *, by_words: bool = False) -> list[Scored]:
        """Hits with their records; for unit=item, a record with nothing but the item that was found."""
        rowids = {rowid for rowid, _, _ in hits}
        records = {rowid: to_record(seen[rowid]) for rowid in rowids & (seen or {}).keys()}
        if missing := sorted(rowids - records.keys()):
            records |= self._store.of(None).get(missing)
        return with_records(hits, records, unit, by_words=by_words)

    def save(self) -> None:
        """There is no file beside the database."""

    def _found(
        self,
        store: Any,
        vector: Any,
        n: int,
        where: Filter,
        exclude_task: str | None,
        items: bool,
        graph: bool,
        seen: Seen,
    ) -> list[Hit]:
        """The n nearest that the store has, best first but for ties; of few hits the records are read as well."""
        table, joined, place = "vectors", "ON v.rowid = r.vector_row", "-1"
        if items:
            table, joined, place = "item_vectors", "ON v.record = r.vector_row", "v.place"
        within, values = conditions(where, 1, exclude_task)
        if not where.everyone:
            within += f" AND v.namespace = ${2 + len(values)}"
            values.append(where.namespace)
        source, found = f"FROM {table} v JOIN records r {joined} WHERE {within}", "r.rowid"
        if graph:
            kind = f"halfvec({len(vector)})"
            taken = n * self._store.how.oversample
            source = f"{source} ORDER BY v.vector::{kind} <#> $1::vector::{kind} LIMIT {taken}"
            source, found = f"FROM (SELECT v.*, r.rowid AS found {source}) v", "v.found"
        query = (
            f"SELECT {found} AS found, {place} AS place, -(v.vector <#> $1::vector) + 0 AS score {source} "
            f"ORDER BY score DESC, 1, 2 LIMIT {n}"
        )
        if few := n <= FEW:
            query = f"WITH hits AS MATERIALIZED ({query}) SELECT h.*, o.* FROM hits h JOIN LATERAL ({_ONE}) o ON true"
        given = (vector.tobytes(), *values)
        with store.reading() as db:
            rows = (db.rows_by_graph if graph else db.rows)(query, given)
        if few:
            seen |= {row[0]: row[3:] for row in rows}
        return [(row[0], row[1], round(row[2], 6)) for row in rows]

    def _in_graph(self, store: Any, items: bool) -> bool:
        """Whether there is a graph, and enough vectors in sight for it to pay."""
        if not self._graph:
            return False
        table, least = "item_vectors" if items else "vectors", self._store.how.exact_below
        at, size = self._sizes.get((store.namespace, items), (-FRESH_S, 0))
        if time.monotonic() - at > FRESH_S:
            mine = "" if store.namespace == "*" else " WHERE namespace = $1"
            there = HAS_GRAPH.format(table=table)
            query = f"SELECT count(*), ({there}) FROM (SELECT FROM {table}{mine} LIMIT {least}) enough"
            size, there = store.rows(query, () if not mine else (store.namespace,))[0]
            self._sizes[(store.namespace, items)] = time.monotonic(), size if there else -1
            size = size if there else -1
        return size >= least

    def _unstored(self, vector: Any, where: Filter, exclude_task: str | None) -> list[Hit]:
        """Hits among the items that the store has no vectors of."""
        import numpy as np

        self._look_for_unstored()
        if not self._extra:
            return []
        within, values = conditions(where, 1, exclude_task)
        query = (
            f"SELECT r.rowid FROM records r WHERE r.rowid = ANY ($1) AND {within} "
            "AND NOT EXISTS (SELECT FROM item_vectors i WHERE i.record = r.vector_row)"
        )
        store = self._store.of(None if where.everyone else where.namespace)
        rowids = {row[0] for row in store.rows(query, (list(self._extra), *values))}
        return [
            (rowid, place, round(float(np.frombuffer(row, dtype=np.float32) @ vector), 6))
            for rowid in rowids
            for place, row in self._extra[rowid]
        ]

    def _look_for_unstored(self) -> None:
        """Embed the items that have no vectors, of the records that are new or changed since this was last asked."""
        everyone = self._store.of(None)
        [(seq,)] = everyone.rows("SELECT coalesce(max(seq), 0) FROM journal")
        if seq == self._checked:
            return
        changed = "" if self._checked < 0 else "r.rowid IN (SELECT rowid FROM undo_records WHERE seq > $1) AND "
        query = (
            f"{RECORDS} WHERE {changed}NOT (v.vector IS NULL AND r.status IN {SET_ASIDE}) "
            "AND NOT EXISTS (SELECT 1 FROM item_vectors i WHERE i.record = r.vector_row) ORDER BY r.rowid"
        )
        found = everyone.rows(query, (self._checked,) if changed else ())
        if self._most_missing is not None and len(found) > self._most_missing:
            command = f"python -m core.memory reembed {self._store.path}"
            log.warning(f"{len(found)} records are found by their query alone until you run: {command}")
        else:
            self._extra |= {row[0]: self._item_vectors(to_record(row)) for row in found}
        self._checked = seq  # at last: an embedder that fails is asked again


# The words of a text as SQLite's FTS5 takes them: letters and digits, without case and the accents of Latin letters.
#
# PostgreSQL could do it (words_of in tables.sql, for records that come without their words), at four times an
# addition's other work.

_ACCENT = re.compile("[\u0300-\u036f]")
_WORD = re.compile(r"[^\W_]+")


def words_of(text: str) -> list[str]:
    """Every word of a text, as often as it stands there."""
    text = text.lower()
    if not text.isascii():
        text = unicodedata.normalize("NFC", _ACCENT.sub("", unicodedata.normalize("NFD", storable(text))))
    return _WORD.findall(text)


def words_of_record(record: MemoryRecord) -> str:
    """The words of its query and its items, with blanks between them."""
    parts = [part for item in record.items for part in (item.title, item.description, item.content)]
    return " ".join(words_of(" ".join((record.original_query, *parts))))
