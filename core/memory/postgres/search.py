"""Search inside PostgreSQL: vectors by brute force or by pgvector's HNSW graph with exact re-ranking."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

from core.memory.filter import Filter
from core.memory.postgres.connection import DIALECT
from core.memory.postgres.database import PostgresDatabase
from core.memory.postgres.setup import HAS_GRAPH
from core.memory.store.contract import SearchSettings
from core.memory.store.hits import Hit, RowHit, best_of_each, in_order
from core.memory.store.keys import QUERY
from core.memory.store.schema import to_record
from core.memory.store.visible import Conditions

Seen = dict[int, tuple]  # rowid: a row of DIALECT.records
GRAPH_FROM = 20_000  # number of vectors from which memory.index=hnsw builds a graph
FEW = 64  # up to this number of hits, their records are read in the same query
_ONE = f"{DIALECT.records} WHERE r.rowid = h.found"
FRESH_S = 5.0  # cache lifetime of a tenant's size (s)


class PostgresSearch:
    """Search in the database; stateless.

    exact_below, oversample   as in `Postgres` (store.py)
    """

    def __init__(
        self, database: PostgresDatabase, settings: SearchSettings, *, exact_below: int, oversample: int
    ) -> None:
        self._database, self._settings = database, settings
        self._exact_below, self._oversample = exact_below, oversample
        self._sizes: dict[tuple, tuple[float, int]] = {}
        if settings.approximate and not settings.read_only and database.dim() is not None:
            database.ensure_graphs(GRAPH_FROM)

    def nearest(
        self, vector: Any, k: int, where: Filter, exclude_task: str | None, *, kinds: tuple[str, ...], distinct: bool
    ) -> list[Hit]:
        seen: Seen = {}
        found: list[RowHit] = []
        if k > 0:
            for kind in kinds:
                found += self._nearest(vector, k, where, exclude_task, kind, distinct or kind == QUERY, seen)
        return self._with_records(found, seen)

    def those(self, hits: list[RowHit], where: Filter, exclude_task: str | None) -> list[Hit]:
        conditions = Conditions(values=[list({hit[0] for hit in hits})])
        within = " AND ".join(conditions.visible(where, exclude_task))
        within += f" AND (o.rowid = r.rowid OR {conditions.not_from(exclude_task, 'o')})"
        found = (
            "SELECT o.rowid AS origin, r.rowid AS found FROM records o LEFT JOIN heirs h ON h.origin = o.key_row "
            "JOIN records r ON r.key_row = coalesce(h.record, o.key_row) "
            f"WHERE o.rowid = ANY ($1) AND {within}"
        )
        query = f"SELECT h.origin, f.* FROM ({found}) h JOIN LATERAL ({_ONE}) f ON true"
        rows = self._within(where).rows(query, tuple(conditions.values))
        led, seen = defaultdict(list), {row[1]: row[1:] for row in rows}
        for origin, record in sorted(row[:2] for row in rows):
            led[origin].append(record)
        led_hits = ((record, place, score) for rowid, place, score in hits for record in led.get(rowid, ()))
        return self._with_records(best_of_each(led_hits), seen)

    def save(self) -> None:
        """Nothing to do: there is no index file."""

    def _within(self, where: Filter) -> PostgresDatabase:
        return self._database.of(None if where.everyone else where.namespace)

    def _with_records(self, found: list[RowHit], seen: Seen) -> list[Hit]:
        """Hits with their records; hits whose record was removed meanwhile are left out."""
        rowids = {rowid for rowid, _, _ in found}
        records = {rowid: to_record(seen[rowid], self._database.path) for rowid in rowids & seen.keys()}
        if missing := sorted(rowids - records.keys()):
            query = f"{DIALECT.records} WHERE r.rowid = ANY ($1)"
            records |= {
                row[0]: to_record(row, self._database.path) for row in self._database.of(None).rows(query, (missing,))
            }
        return [Hit(*place, records[place[0]]) for place in found if place[0] in records]

    def _nearest(
        self, vector: Any, k: int, where: Filter, exclude_task: str | None, kind: str, distinct: bool, seen: Seen
    ) -> list[RowHit]:
        store = self._within(where)
        wanted, graph = k, self._in_graph(store, kind)
        while True:
            found = self._found(store, vector, wanted + 4, where, exclude_task, kind, graph, seen)
            hits = best_of_each(in_order(found), by_place=not distinct)[:k]
            if graph and len(found) < wanted + 4:
                graph = False  # hnsw.max_scan_tuples may have ended the scan before enough entries passed the filter
                continue
            # Equal scores come in any order: the number asked for is enlarged until ties at the cut are complete.
            if len(found) < wanted + 4 or (len(hits) == k and (graph or hits[-1][2] > found[-1][2])):
                return hits
            wanted *= 2

    def _found(
        self,
        store: Any,
        vector: Any,
        n: int,
        where: Filter,
        exclude_task: str | None,
        kind: str,
        graph: bool,
        seen: Seen,
    ) -> list[RowHit]:
        """The n nearest stored vectors, best first, ties in any order.

        seen   filled with the rows of the records, if there are at most FEW hits
        """
        conditions = Conditions(values=[vector.tobytes()])
        terms = conditions.visible(where, exclude_task)
        if not where.everyone:
            terms.append(f"v.namespace = {conditions.place(where.namespace)}")
        origin = f"SELECT FROM records o WHERE o.key_row = v.origin AND {conditions.not_from(exclude_task, 'o')}"
        within = " AND ".join([f"v.kind = '{kind}'", *terms, f"(h.record IS NULL OR EXISTS ({origin}))"])
        source = "FROM keys v LEFT JOIN heirs h ON h.origin = v.origin "
        source, found = f"{source}JOIN records r ON r.key_row = coalesce(h.record, v.origin) WHERE {within}", "r.rowid"
        if graph:
            kind = f"halfvec({len(vector)})"
            taken = n * self._oversample
            source = f"{source} ORDER BY v.vector::{kind} <#> $1::vector::{kind} LIMIT {taken}"
            source, found = f"FROM (SELECT v.*, h.record, r.rowid AS found {source}) v", "v.found"
        place = f"CASE WHEN {'v' if graph else 'h'}.record IS NULL THEN v.place ELSE -1 END"
        query = (
            f"SELECT {found} AS found, {place} AS place, -(v.vector <#> $1::vector) + 0 AS score {source} "
            f"ORDER BY score DESC, 1, 2 LIMIT {n}"
        )
        if few := n <= FEW:
            query = f"WITH hits AS MATERIALIZED ({query}) SELECT h.*, o.* FROM hits h JOIN LATERAL ({_ONE}) o ON true"
        with store.reading() as db:
            rows = (db.rows_by_graph if graph else db.rows)(query, tuple(conditions.values))
        if few:
            seen |= {row[0]: row[3:] for row in rows}
        return [(row[0], row[1], round(row[2], 6)) for row in rows]

    def _in_graph(self, store: Any, kind: str) -> bool:
        """Whether to use the graph: it exists, and the namespace has at least `exact_below` keys of the kind."""
        if not self._settings.approximate:
            return False
        least = self._exact_below
        at, size = self._sizes.get((store.namespace, kind), (-FRESH_S, 0))
        if time.monotonic() - at > FRESH_S:
            mine = "" if store.namespace == "*" else " AND namespace = $1"
            there = HAS_GRAPH.format(kind=kind)
            query = (
                f"SELECT count(*), ({there}) FROM (SELECT FROM keys WHERE kind = '{kind}'{mine} LIMIT {least}) enough"
            )
            size, there = store.rows(query, () if not mine else (store.namespace,))[0]
            self._sizes[(store.namespace, kind)] = time.monotonic(), size if there else -1
            size = size if there else -1
        return size >= least
