"""Groups of records in which every pair is alike; a mere chain of neighbours is not a group."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from core.types import MemoryRecord


def groups(
    seeds: Iterable[MemoryRecord],
    neighbours: Callable[[MemoryRecord], list[MemoryRecord]],
    alike: Callable[[MemoryRecord, MemoryRecord], bool],
    least: int,
    most: int,
) -> list[list[MemoryRecord]]:
    """Disjoint groups of `least` to `most` records around the seeds, in the seeds' order.

    seeds        records to start from, one group at most each
    neighbours   what may join a seed, nearest first
    alike        whether two records may share a group; asked of every pair
    """
    taken: set[str] = set()
    found = []
    for seed in seeds:
        if seed.id in taken:
            continue
        group = [seed]
        for other in neighbours(seed):
            if len(group) == most:
                break
            known = other.id in taken or any(other.id == member.id for member in group)
            if not known and all(alike(member, other) for member in group):
                group.append(other)
        if len(group) >= least:
            taken.update(member.id for member in group)
            found.append(group)
    return found
