"""Vectors and their search by inner product: `Flat`, exact, by NumPy; `Graph`, approximate, by FAISS."""

from __future__ import annotations

from typing import IO, Any

from core.errors import UserError

FEW = 5_000  # up to so many chosen vectors are copied out and compared; of more, all are compared, or the graph asked
HNSW_M, HNSW_BUILD, HNSW_SEARCH = 32, 40, 256  # links per vector (FAISS's default), efConstruction, efSearch
SPARSE = 0.2  # if fewer than this share of a graph's vectors are chosen, search exactly: HNSW's recall drops


class Flat:
    """Vectors in one array, in the order in which they were added. float32 (n, dim).

    A vector's score depends on it and the query alone, to the last bit: not on its place, nor on threads.
    """

    def __init__(self, dim: int) -> None:
        import numpy as np

        self._rows = np.empty((0, dim), np.float32)  # grows by doubling
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, rows: Any) -> None:
        import numpy as np

        size = self._size + len(rows)
        if size > len(self._rows):
            grown = np.empty((max(size, 2 * len(self._rows)), rows.shape[1]), np.float32)
            grown[: self._size] = self.rows
            self._rows = grown
        self._rows[self._size : size] = rows
        self._size = size

    @property
    def rows(self) -> Any:
        return self._rows[: self._size]

    def nearest(self, query: Any, n: int, chosen: Any = None) -> tuple[Any, Any]:
        """(scores, places) of the n best, best first, ties in any order. chosen: the places to search; None: all."""
        import numpy as np

        few = chosen is not None and len(chosen) <= FEW
        scores = np.einsum("ij,j->i", self.rows[chosen] if few else self.rows, query)  # matmul would use threads
        if chosen is not None and not few:
            scores = scores[chosen]
        best = np.argpartition(scores, -n)[-n:] if 0 < n < len(scores) else np.arange(len(scores))
        best = best[np.argsort(-scores[best], kind="stable")]
        return scores[best], best if chosen is None else chosen[best]

    def write(self, file: IO[bytes]) -> None:
        import numpy as np

        np.save(file, self.rows)

    @classmethod
    def read(cls, file: IO[bytes]) -> Flat:
        """Raises ValueError, EOFError or OSError for a damaged file."""
        import numpy as np

        rows = np.load(file)
        made = cls(rows.shape[1])
        made._rows, made._size = rows, len(rows)
        return made


class Graph:
    """An HNSW graph (Malkov and Yashunin 2018); its places are those of `Flat`. Raises UserError without FAISS."""

    def __init__(self, dim: int, index: Any = None) -> None:
        faiss = faiss_library()
        if index is None:
            index = faiss.IndexHNSWFlat(dim, HNSW_M, faiss.METRIC_INNER_PRODUCT)
            index.hnsw.efConstruction = HNSW_BUILD
        self.index = index

    def __len__(self) -> int:
        return self.index.ntotal

    def add(self, rows: Any, step: int = 50_000) -> None:
        for start in range(0, len(rows), step):
            self.index.add(rows[start : start + step])

    def nearest(self, query: Any, n: int, chosen: Any = None) -> tuple[Any, Any]:
        """As `Flat.nearest`; fewer than n if the graph leads to no more."""
        import numpy as np

        faiss, total = faiss_library(), len(self)
        n, share, selector, searched = min(n, total), 1.0, None, self.index
        if chosen is not None:
            share = len(chosen) / total if len(chosen) > FEW else 0
            bits = np.zeros(total, dtype=bool)
            bits[chosen] = True
            bits = np.packbits(bits, bitorder="little")
            selector = faiss.IDSelectorBitmap(bits)
        if share >= SPARSE:
            width = int(max(HNSW_SEARCH, n) / share)
            how = faiss.SearchParametersHNSW(sel=selector, efSearch=width)
        else:
            searched = faiss.downcast_index(self.index.storage)
            how = faiss.SearchParameters(sel=selector)
        scores, places = (found[0] for found in searched.search(query.reshape(1, -1), n, params=how))
        return scores[places >= 0], places[places >= 0]

    def write(self, file: IO[bytes]) -> None:
        faiss = faiss_library()
        writer = faiss.PyCallbackIOWriter(file.write)
        faiss.write_index(self.index, writer)
        del writer  # flushes its buffer

    @classmethod
    def read(cls, file: IO[bytes]) -> Graph:
        """Raises RuntimeError or ValueError for a damaged file."""
        faiss = faiss_library()
        made = faiss.read_index(faiss.PyCallbackIOReader(file.read))
        if file.read():
            raise ValueError("it goes on behind its end")
        return cls(made.d, made)


def faiss_library() -> Any:
    """The module, untyped: it makes half of its classes and signatures when it is imported. UserError without it."""
    try:
        import faiss
    except ModuleNotFoundError:
        extra = "`pip install 'reasoningbank-harness[hnsw]'`"
        raise UserError(f"memory.index=hnsw needs FAISS: {extra}, or index=flat, which is exact.") from None
    faiss.omp_set_num_threads(1)  # more threads make small searches slower and the last bits unstable
    return faiss
