"""Whether a sentence is more like an attack than like a lesson, by a linear rule over the bank's own embeddings.

examples.json has texts of the published kinds of attack and plain lessons, all written for this. The rule finds orders
that no pattern lists, as far as the embedder understands meaning: with `hashing` it is of little use.
"""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from core.models.embedding import Embedder

if TYPE_CHECKING:
    import numpy as np

RIDGE = 3.0
_SENTENCE = re.compile(r"(?<=[.!?;:])\s+|\n+")
_SHORTEST = 20  # characters of a sentence that is judged alone


def examples() -> dict[str, list[str]]:
    """{"attack": texts, "lesson": texts}."""
    return json.loads((Path(__file__).parent / "examples.json").read_text(encoding="utf-8"))


def sentences(text: str) -> list[str]:
    """The text as a whole and its sentences: an order hidden in a good lesson is one sentence of it."""
    parts = [part.strip() for part in _SENTENCE.split(text)]
    return list(dict.fromkeys([text.strip(), *(part for part in parts if len(part) >= _SHORTEST)]))


class Likeness:
    """Ridge regression of attack (1) against lesson (-1) on the examples, fitted at first use. Thread-safe."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        self._lock = threading.Lock()
        self._weights: np.ndarray | None = None

    def of(self, text: str) -> float:
        """How much like an attack the worst sentence is: about -1 (a lesson) to 1 (an attack)."""
        with self._lock:
            if self._weights is None:
                self._weights = self._fit()
        return float((_features(self.embedder.embed(sentences(text))) @ self._weights).max())

    def _fit(self) -> np.ndarray:
        import numpy as np

        known = examples()
        rows = _features(self.embedder.embed(known["attack"] + known["lesson"]))
        counts = np.array([len(known["attack"]), len(known["lesson"])])
        labels = np.repeat([1.0, -1.0], counts)
        weighted = rows * np.repeat(counts.sum() / (2 * counts), counts)[:, None]  # both kinds weigh the same
        penalty = np.diag([RIDGE] * (rows.shape[1] - 1) + [1e-6])  # the constant is hardly penalised
        return np.linalg.solve(weighted.T @ rows + penalty, weighted.T @ labels)


def _features(vectors: np.ndarray) -> np.ndarray:
    import numpy as np

    return np.hstack([np.asarray(vectors, dtype=np.float64), np.ones((len(vectors), 1))])
