"""The bank's cache for search: FAISS over all vectors, and which of them a filter lets through."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from core.memory.filter import Attributes, Filter

SMALL = 5_000  # so few entries are compared one by one rather than inside FAISS
GONE = 0  # the code of an entry whose record was removed


class VectorIndex:
    """Entries (rowid, place, attributes, vector) and their search. Not thread-safe: the bank's lock guards it.

    Attributes are few, so an entry has the number of its combination; a filter is worked out once a combination.
    """

    def __init__(self, dim: int) -> None:
        import faiss
        import numpy as np

        faiss.omp_set_num_threads(1)  # more threads make small searches slower and the last bits unstable
        self.dim = dim
        self.keys = np.empty((0, 3), dtype=np.int64)  # rowid, place, code
        self._faiss = faiss.IndexFlatIP(dim)
        self._codes: dict[Attributes | None, int] = {None: GONE}
        self._masks: dict[Filter, Any] = {}

    def __len__(self) -> int:
        return len(self.keys)

    def add(self, rows: Iterable[tuple]) -> None:
        """Append rows as Store.vectors gives them."""
        import numpy as np

        rows = list(rows)
        if rows:
            keys = [(row[0], row[1], self._code((*row[2:6], row[6]))) for row in rows]
            self.keys = np.concatenate([self.keys, np.array(keys, dtype=np.int64)])
            self._faiss.add(np.frombuffer(b"".join(row[7] for row in rows), dtype=np.float32).reshape(len(rows), -1))
            self._masks.clear()

    def drop(self, rowids: set[int]) -> None:
        """Hide the entries of some records."""
        import numpy as np

        if rowids:
            self.keys[np.isin(self.keys[:, 0], list(rowids)), 2] = GONE
            self._masks.clear()

    def search(
        self, vector: Any, k: int, where: Filter, exclude: set[int] = frozenset(), distinct: bool = False
    ) -> list[tuple[int, int, float]]:
        """The k nearest (rowid, place, score), best first. Scores are rounded to 6 digits, ties go to the oldest.

        distinct keeps only the best entry of a record.
        FAISS orders equal scores as it likes, so it is asked for more until the k-th score is not shared with the last.
        """
        allowed = self._allowed(where)
        total = len(self) if allowed is None else len(allowed)
        wanted = k + len(exclude)
        while True:
            n = min(total, wanted + 8)
            if n == 0 or k <= 0:
                return []
            scores, places = self._nearest(vector.reshape(1, -1), n, allowed)
            found = [(*self.keys[p, :2].tolist(), round(float(s), 6)) for s, p in zip(scores, places) if p >= 0]
            hits = sorted((h for h in found if h[0] not in exclude), key=lambda hit: (-hit[2], *hit[:2]))
            hits = list({hit[0]: hit for hit in reversed(hits)}.values())[::-1] if distinct else hits
            hits = hits[:k]
            if n == total or len(found) < n or (len(hits) == k and hits[-1][2] > found[-1][2]):
                return hits
            wanted *= 2

    def _nearest(self, query: Any, n: int, allowed: Any) -> tuple[Any, Any]:
        """(scores, places) of n of the allowed places."""
        import faiss
        import numpy as np

        if allowed is None:
            scores, places = self._faiss.search(query, n)
        elif len(allowed) <= SMALL:
            scores, places = faiss.knn(query, self._faiss.reconstruct_batch(allowed), n, faiss.METRIC_INNER_PRODUCT)
            places = allowed[places]
        else:
            bits = np.zeros(len(self), dtype=bool)
            bits[allowed] = True
            selector = faiss.IDSelectorBitmap(np.packbits(bits, bitorder="little"))
            scores, places = self._faiss.search(query, n, params=faiss.SearchParameters(sel=selector))
        return scores[0], places[0]

    def _code(self, attributes: Attributes) -> int:
        return self._codes.setdefault(attributes, len(self._codes))

    def _allowed(self, where: Filter) -> Any:
        """The places that a filter lets through; None: all."""
        import numpy as np

        if where not in self._masks:
            passes = [a is not None and where.passes((*a[:4], tuple(json.loads(a[4])))) for a in self._codes]
            places = np.flatnonzero(np.array(passes)[self.keys[:, 2]])
            self._masks[where] = None if len(places) == len(self) else places
        return self._masks[where]
