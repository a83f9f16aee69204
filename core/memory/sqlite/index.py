"""The bank's cache for search: FAISS over all vectors, and which of them a filter lets through."""

from __future__ import annotations

import json
import logging
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from core.errors import StopRun
from core.memory.filter import Filter, by_attributes
from core.memory.store.hits import Place, best_of_each, in_order

GONE = 0  # the code of an entry whose record was removed
FEW = 5_000  # so few entries are compared one by one rather than inside FAISS
TAIL = 10_000  # entries, or a twentieth of all, wait in a plain list before they enter the main index
GRAPH_FROM = 20_000  # below, index=hnsw searches exactly: that is as fast
HNSW_M, HNSW_BUILD, HNSW_SEARCH = 32, 40, 256  # links an entry (FAISS's default), width of the search at add and search
MASKS = 256  # filters whose places are kept
SPARSE = 0.2  # share of entries below which a filtered search is exact: the graph would lose its way


class Attributes(NamedTuple):
    """What a filter asks of an entry. tags: JSON, as they are compared."""

    namespace: str
    status: str
    outcome: str
    domain: str
    tags: str


Entry = tuple[int, int, str, str, str, str, str, bytes]  # rowid, place (-1: the query), Attributes, float32 vector
Test = Callable[[Attributes], bool]


class _OfAttributes:
    """Says what `by_attributes` asks as tests of attributes."""

    def one_of(self, column: str, values: tuple[str, ...]) -> Test:
        return lambda attributes: getattr(attributes, column) in values

    def has_tag(self, tag: str) -> Test:
        return lambda attributes: tag in json.loads(attributes.tags)


class VectorIndex:
    """Entries (rowid, place, attributes, vector) and their search. Not thread-safe: its owner's lock guards it.

    Exact inner product, or with graph=True an HNSW graph (Malkov and Yashunin 2018). New entries come behind, exactly
    searched, until they are many. Attributes are few, so an entry has the number of its combination, and a filter is
    worked out once a combination.
    """

    def __init__(self, dim: int, graph: bool = False) -> None:
        import faiss
        import numpy as np

        faiss.omp_set_num_threads(1)  # more threads make small searches slower and the last bits unstable
        self.dim, self.graph = dim, graph
        self.main: Any = faiss.IndexFlatIP(dim)
        self.merged = 0  # counts the times that the tail entered the main index
        self.codes: dict[Attributes | None, int] = {None: GONE}
        self._tail = faiss.IndexFlatIP(dim)
        self._keys = np.empty((1024, 3), dtype=np.int64)  # rowid, place, code; grows by doubling
        self._size = 0
        self._counts = [0]  # entries of each code
        self._masks: dict[Filter, Any] = {}

    def __len__(self) -> int:
        return self._size

    @property
    def keys(self) -> Any:
        """int64 (n, 3): rowid, place (-1: the query) and code of each entry."""
        return self._keys[: self._size]

    def restore(self, main: Any, keys: Any, codes: dict[Attributes | None, int]) -> None:
        """Take over what a cache file held."""
        import numpy as np

        self.main, self._keys, self._size, self.codes = main, keys, len(keys), codes
        self._counts = np.bincount(keys[:, 2], minlength=len(codes)).tolist()

    def add(self, rows: list[Entry]) -> None:
        """Append entries."""
        import numpy as np

        if not rows:
            return
        if self._size + len(rows) > len(self._keys):
            self._keys = np.resize(self._keys, (max(2 * len(self._keys), self._size + len(rows)), 3))
        keys = [(row[0], row[1], self._code(Attributes(*row[2:7]))) for row in rows]
        self._keys[self._size : self._size + len(rows)] = keys
        self._size += len(rows)
        self._masks.clear()
        self._tail.add(np.frombuffer(b"".join(row[7] for row in rows), dtype=np.float32).reshape(len(rows), -1))
        if self._tail.ntotal > max(TAIL, self._size // 20):
            self.merge()

    def merge(self) -> None:
        """Let the tail enter the main index, which becomes a graph once that pays."""
        import faiss

        if self.graph and isinstance(self.main, faiss.IndexFlat) and self._size >= GRAPH_FROM:
            flat, self.main = self.main, faiss.IndexHNSWFlat(self.dim, HNSW_M, faiss.METRIC_INNER_PRODUCT)
            self.main.hnsw.efConstruction = HNSW_BUILD
            self._move(flat)
        self._move(self._tail)
        self._tail.reset()
        self.merged += 1

    def _move(self, source: Any, step: int = 50_000) -> None:
        for start in range(0, source.ntotal, step):
            self.main.add(source.reconstruct_n(start, min(step, source.ntotal - start)))

    def drop(self, rowids: set[int]) -> None:
        """Hide the entries of some records."""
        import numpy as np

        if rowids:
            self.keys[np.isin(self.keys[:, 0], list(rowids)), 2] = GONE
            self._counts = np.bincount(self.keys[:, 2], minlength=len(self.codes)).tolist()
            self._masks.clear()

    def dead(self) -> float:
        """The share of hidden entries."""
        return self._counts[GONE] / max(1, self._size)

    def search(
        self, vector: Any, k: int, where: Filter, exclude: set[int] = frozenset(), distinct: bool = False
    ) -> list[Place]:
        """The k nearest, best first. Scores are rounded to 6 digits, ties go to the oldest.

        distinct keeps only the best entry of a record.
        FAISS orders equal scores as it likes, so it is asked for more until the k-th score is not shared with the last.
        """
        allowed = self._allowed(where)
        total = self._size if allowed is None else len(allowed)
        wanted = k + len(exclude)
        while True:
            n = min(total, wanted + 4)
            if n == 0 or k <= 0:
                return []
            scores, places = self._nearest(vector.reshape(1, -1), n, allowed)
            keys = self._keys[places].tolist()
            found = [(key[0], key[1], round(score, 6)) for key, score in zip(keys, scores.tolist())]
            hits = [hit for hit in found if hit[0] not in exclude] if exclude else found
            hits = in_order(hits)
            if distinct:
                hits = best_of_each(hits)
            hits = hits[:k]
            if n == total or len(found) < n or (len(hits) == k and hits[-1][2] > found[-1][2]):
                return hits
            wanted *= 2

    def _nearest(self, query: Any, n: int, allowed: Any) -> tuple[Any, Any]:
        """(scores, places) of the n best of the allowed places, of both parts, best first but for ties."""
        import numpy as np

        parts = []
        for part, start in ((self.main, 0), (self._tail, self.main.ntotal)):
            inside = None if allowed is None else (allowed >= start) & (allowed < start + part.ntotal)
            if part.ntotal and (inside is None or inside.any()):
                scores, places = _search(part, query, n, None if inside is None else allowed[inside] - start)
                if places[-1] < 0:  # fewer were found than asked for
                    scores, places = scores[places >= 0], places[places >= 0]
                parts.append((scores, places + start if start else places))
        if len(parts) == 1:
            return parts[0]  # the common case of a small bank
        scores, places = (np.concatenate(pair) for pair in zip(*parts))
        best = np.argsort(-scores, kind="stable")[:n]
        return scores[best], places[best]

    def _code(self, attributes: Attributes) -> int:
        code = self.codes.setdefault(attributes, len(self.codes))
        if code == len(self._counts):
            self._counts.append(0)
        self._counts[code] += 1
        return code

    def _allowed(self, where: Filter) -> Any:
        """The places that a filter lets through; None: all."""
        import numpy as np

        if where not in self._masks:
            if len(self._masks) == MASKS:
                self._masks.clear()
            tests = by_attributes(where, _OfAttributes())
            passes = [a is not None and all(test(a) for test in tests) for a in self.codes]
            everything = all(yes for yes, count in zip(passes, self._counts) if count)
            self._masks[where] = None if everything else np.flatnonzero(np.array(passes)[self.keys[:, 2]])
        return self._masks[where]


def _search(part: Any, query: Any, n: int, chosen: Any) -> tuple[Any, Any]:
    """(scores, places) of the n nearest of the chosen places (None: of all); places are -1 where there are fewer."""
    import faiss
    import numpy as np

    graph = not isinstance(part, faiss.IndexFlat)
    if chosen is not None and len(chosen) <= FEW:
        rows = part.reconstruct_batch(chosen)
        scores, places = faiss.knn(query, rows, min(n, len(chosen)), faiss.METRIC_INNER_PRODUCT)
        return scores[0], chosen[places[0]]
    selector, share = None, 1.0
    if chosen is not None:
        share = len(chosen) / part.ntotal
        bits = np.zeros(part.ntotal, dtype=bool)
        bits[chosen] = True
        bits = np.packbits(bits, bitorder="little")
        selector = faiss.IDSelectorBitmap(bits)
    if graph and share >= SPARSE:
        width = int(max(HNSW_SEARCH, n) / share)
        params = faiss.SearchParametersHNSW(sel=selector, efSearch=width)
    else:
        part = faiss.downcast_index(part.storage) if graph else part
        params = faiss.SearchParameters(sel=selector) if selector else None
    scores, places = part.search(query, min(n, part.ntotal), params=params)
    return scores[0], places[0]


# The index's file beside a bank: `<bank>.index`. Only a cache: wrong, damaged or missing, it is made anew from SQLite.
#
# A zip archive, whose checksums tell damage: facts.json {format, embedder, dim, graph, items, state, journal, codes},
# keys.npy, and what faiss.write_index writes. `items` is the memory.key of an index of items, else false; `journal` is
# the bank's last entry at the time: another bank's is another.

FORMAT = 3
WORTH = 5_000  # entries: fewer are read from SQLite as fast


def path_of(bank: Path, items: bool) -> Path:
    """Where the index of a bank's records lies, or that of their items."""
    return bank.with_name(bank.name + (".items.index" if items else ".index"))


def remove(bank: Path) -> None:
    """Remove both."""
    for items in (False, True):
        path_of(bank, items).unlink(missing_ok=True)


def save(path: Path, index: VectorIndex, facts: dict[str, Any]) -> None:
    """Write an index, whole or not at all. The tail enters the main index first. Raises StopRun on a full disk."""
    import faiss
    import numpy as np

    index.merge()
    facts = facts | {"format": FORMAT, "dim": index.dim, "graph": index.graph, "codes": list(index.codes)}
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with zipfile.ZipFile(temporary, "w") as archive:
            archive.writestr("facts.json", json.dumps(facts))
            with archive.open("keys.npy", "w", force_zip64=True) as part:
                np.save(part, index.keys)
            with archive.open("faiss", "w", force_zip64=True) as part:
                writer = faiss.PyCallbackIOWriter(part.write)
                faiss.write_index(index.main, writer)
                del writer  # it writes what it still holds
        temporary.replace(path)
    except OSError as error:
        raise StopRun(f"{path} cannot be written: {error.strerror}.") from error
    finally:
        temporary.unlink(missing_ok=True)


def load(path: Path, facts: dict[str, Any]) -> tuple[VectorIndex, dict[str, Any]] | None:
    """(index, its facts) of a file that is whole and has these facts; None, and said, where it has not."""
    import faiss
    import numpy as np

    if not path.exists():
        return None
    try:
        with zipfile.ZipFile(path) as archive:
            found = json.loads(archive.read("facts.json"))
            if wrong := [name for name, value in (facts | {"format": FORMAT}).items() if found[name] != value]:
                raise ValueError(f"another {wrong[0]}")
            with archive.open("keys.npy") as part:
                keys = np.load(part)
            with archive.open("faiss") as part:
                main = faiss.read_index(faiss.PyCallbackIOReader(part.read))
                if part.read():
                    raise ValueError("it goes on behind its end")
    except (zipfile.BadZipFile, ValueError, LookupError, TypeError, RuntimeError, OSError, EOFError) as error:
        logging.getLogger(__name__).warning(f"{path} is not used ({error}): the index is made anew from the bank.")
        return None
    index = VectorIndex(found["dim"], found["graph"])
    index.restore(main, keys, {None if a is None else Attributes(*a): code for code, a in enumerate(found["codes"])})
    return index, found
