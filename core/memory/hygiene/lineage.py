"""Trust that is handed down: a record is trusted no more than anything it was made from."""

from __future__ import annotations

from collections.abc import Iterable

from core.types import MemoryRecord


def least_trust(parents: Iterable[MemoryRecord], own: float = 1.0) -> float:
    """The least of a record's own trust and that of its parents, each of which carries the least of its own lineage."""
    return min((own, *(parent.trust for parent in parents)))
