"""The vector index of a bank: all of its vectors, with filters. A cache, rebuilt from the bank's file."""

from __future__ import annotations

import json
import logging
import os
import zipfile
from collections.abc import Set
from pathlib import Path
from typing import Any, NamedTuple

from core.errors import StopRun
from core.memory.filter import Filter, folded_tags
from core.memory.sqlite.vectors import Flat, Graph, faiss_library
from core.memory.store.hits import RowHit, best_of_each, in_order
from core.memory.store.keys import KINDS, QUERY

DELETED = 0  # combination id of an entry whose record was changed or removed
TAIL = 10_000  # entries, or a twentieth of all if more, that are searched exactly before they are added to a graph
GRAPH_FROM = 20_000  # below this size index=hnsw searches exactly, which is as fast
MASKS = 256  # size of the filter cache


class Attributes(NamedTuple):
    """The attributes of an entry that filters test. tags: JSON list of normalised tags."""

    namespace: str
    status: str
    outcome: str
    domain: str
    tags: str


# rowid, place (as in Hit), Attributes, the key's origin, float32 vector
Entry = tuple[int, int, str, str, str, str, str, int, bytes]


def _passes(attributes: Attributes, where: Filter) -> bool:
    """Whether a record with these attributes passes a filter, but for its confidence."""
    has = all(getattr(attributes, column) in values for column, values in where.columns.items())
    return has and set(folded_tags(where.tags)) <= set(json.loads(attributes.tags))


class VectorIndex:
    """Entries (rowid, place, attributes, origin, vector) and their search. Not thread-safe: the owner must lock it.

    Exact inner product; with graph=True, from GRAPH_FROM entries on, a graph, and a flat tail of the newest entries.
    Attribute combinations are few, so each entry stores a combination id (`code`), and filters are evaluated per
    combination. Raises UserError for a graph without FAISS.
    """

    def __init__(self, dim: int, graph: bool = False) -> None:
        import numpy as np

        if graph:
            faiss_library()  # missing, it is said now and not at the 20 000th entry
        self.dim, self.graph = dim, graph
        self.main: Flat | Graph = Flat(dim)
        self.merged = 0  # number of merges into the graph
        self.codes: dict[Attributes | None, int] = {None: DELETED}
        self._tail = Flat(dim)  # what is not in the graph yet
        self._keys = np.empty((1024, 4), dtype=np.int64)  # rowid, place, code, origin; grows by doubling
        self._size = 0
        self._counts = [0]  # number of entries of each code
        self._masks: dict[Filter, Any] = {}

    def __len__(self) -> int:
        return self._size

    @property
    def keys(self) -> Any:
        """int64 (n, 4): rowid, place, code (combination id) and origin of each entry."""
        return self._keys[: self._size]

    def restore(self, main: Any, keys: Any, codes: dict[Attributes | None, int]) -> None:
        """Load the contents of a cache file."""
        import numpy as np

        self.main, self._keys, self._size, self.codes = main, keys, len(keys), codes
        self._counts = np.bincount(keys[:, 2], minlength=len(codes)).tolist()

    def add(self, rows: list[Entry]) -> None:
        """Append entries."""
        import numpy as np

        if not rows:
            return
        if self._size + len(rows) > len(self._keys):
            self._keys = np.resize(self._keys, (max(2 * len(self._keys), self._size + len(rows)), 4))
        keys = [(row[0], row[1], self._code(Attributes(*row[2:7])), row[7]) for row in rows]
        self._keys[self._size : self._size + len(rows)] = keys
        self._size += len(rows)
        self._masks.clear()
        vectors = np.frombuffer(b"".join(row[8] for row in rows), dtype=np.float32).reshape(len(rows), -1)
        (self._tail if isinstance(self.main, Graph) else self.main).add(vectors)
        if len(self._tail) > max(TAIL, self._size // 20) or (self.graph and len(self.main) >= GRAPH_FROM):
            self.merge()

    def merge(self) -> None:
        """With a graph: build it if there are enough entries, and move the tail into it."""
        if self.graph and isinstance(self.main, Flat) and self._size >= GRAPH_FROM:
            self._tail, self.main = self.main, Graph(self.dim)
        if len(self._tail):
            self.main.add(self._tail.rows)
            self._tail = Flat(self.dim)
            self.merged += 1

    def mark_deleted(self, rowids: set[int]) -> None:
        """Mark the entries that lead to these records or come from them as deleted, so that no search returns them."""
        import numpy as np

        if rowids:
            self.keys[np.isin(self.keys[:, [0, 3]], list(rowids)).any(axis=1), 2] = DELETED
            self._counts = np.bincount(self.keys[:, 2], minlength=len(self.codes)).tolist()
            self._masks.clear()

    def share_deleted(self) -> float:
        """The share of entries marked as deleted."""
        return self._counts[DELETED] / max(1, self._size)

    def search(
        self,
        vector: Any,
        k: int,
        where: Filter,
        exclude: Set[int] = frozenset(),
        exclude_origins: Set[int] = frozenset(),
        distinct: bool = False,
    ) -> list[RowHit]:
        """The k nearest, best first. Scores are rounded to 6 digits, ties go to the oldest.

        Equal scores come in any order, so the number asked for is enlarged until ties at the cut are complete.

        exclude           rowids of records to leave out
        exclude_origins   rowids of records whose keys are left out
        distinct          keep only the best entry per record; else per record and place
        """
        allowed = self._allowed(where)
        total = self._size if allowed is None else len(allowed)
        wanted = k + len(exclude | exclude_origins)
        while True:
            n = min(total, wanted + 4)
            if n == 0 or k <= 0:
                return []
            scores, places = self._nearest(vector, n, allowed)
            keys = self._keys[places].tolist()
            found = [(key[0], key[1], round(score, 6)) for key, score in zip(keys, scores.tolist())]
            hits = found
            if exclude or exclude_origins:
                kept = (key[0] not in exclude and key[3] not in exclude_origins for key in keys)
                hits = [hit for hit, keep in zip(found, kept) if keep]
            hits = best_of_each(in_order(hits), by_place=not distinct)[:k]
            if n == total or len(found) < n or (len(hits) == k and hits[-1][2] > found[-1][2]):
                return hits
            wanted *= 2

    def _nearest(self, query: Any, n: int, allowed: Any) -> tuple[Any, Any]:
        """(scores, positions) of the n best allowed entries of main index and tail, best first, ties in any order."""
        import numpy as np

        parts = []
        for part, start in ((self.main, 0), (self._tail, len(self.main))):
            inside = None if allowed is None else (allowed >= start) & (allowed < start + len(part))
            if len(part) and (inside is None or inside.any()):
                scores, places = part.nearest(query, n, None if allowed is None else allowed[inside] - start)
                parts.append((scores, places + start))
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
        """Positions of the entries that pass a filter, cached; None: all pass."""
        import numpy as np

        if where not in self._masks:
            if len(self._masks) == MASKS:
                self._masks.clear()
            passes = [a is not None and _passes(a, where) for a in self.codes]
            everything = all(yes for yes, count in zip(passes, self._counts) if count)
            self._masks[where] = None if everything else np.flatnonzero(np.array(passes)[self.keys[:, 2]])
        return self._masks[where]


# The index's file beside a bank: `<bank>.index`. Only a cache: if wrong, damaged or missing, it is rebuilt from SQLite.
#
# A zip archive, whose checksums detect damage: facts.json {format, embedder, dim, graph, kind, state, journal, codes},
# keys.npy, and the vectors, as Flat or Graph writes them. `kind` is that of the keys; `journal` is the last journal
# entry, to detect that the cache belongs to another bank.

FORMAT = 5
WORTH = 5_000  # entries from which a file is worth it: fewer are read from SQLite as fast


def path_of(bank: Path, kind: str) -> Path:
    """Path of the file of a bank's index of keys of a kind."""
    return bank.with_name(bank.name + (".index" if kind == QUERY else f".{kind}.index"))


def remove(bank: Path) -> None:
    """Remove a bank's index files."""
    for kind in KINDS:
        path_of(bank, kind).unlink(missing_ok=True)


def save(path: Path, index: VectorIndex, facts: dict[str, Any]) -> None:
    """Write an index file, whole or not at all, after merging the tail. Raises StopRun on a full disk."""
    import numpy as np

    index.merge()
    facts = facts | {"format": FORMAT, "dim": index.dim, "graph": index.graph, "codes": list(index.codes)}
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with zipfile.ZipFile(temporary, "w") as archive:
            archive.writestr("facts.json", json.dumps(facts))
            with archive.open("keys.npy", "w", force_zip64=True) as part:
                np.save(part, index.keys)
            with archive.open(type(index.main).__name__, "w", force_zip64=True) as part:
                index.main.write(part)
        temporary.replace(path)
    except OSError as error:
        raise StopRun(f"{path} cannot be written: {error.strerror}.") from error
    finally:
        temporary.unlink(missing_ok=True)


def load(path: Path, facts: dict[str, Any]) -> tuple[VectorIndex, dict[str, Any]] | None:
    """(index, its facts) from a file that is whole and has these facts. None if there is no file.

    None, with a logged warning, if the file is damaged or differs in a fact.
    """
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
            kind = Graph if Graph.__name__ in archive.namelist() else Flat
            with archive.open(kind.__name__) as part:
                main = kind.read(part)
    except (zipfile.BadZipFile, ValueError, LookupError, TypeError, RuntimeError, OSError, EOFError) as error:
        logging.getLogger(__name__).warning(f"{path} is not used ({error}): the index is made anew from the bank.")
        return None
    index = VectorIndex(found["dim"], found["graph"])
    index.restore(main, keys, {None if a is None else Attributes(*a): code for code, a in enumerate(found["codes"])})
    return index, found
