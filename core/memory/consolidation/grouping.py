"""Groups of records that are alike, all of them pairwise: a chain of neighbours is no group."""

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
    alike        whether two records may share a group; asked of every pair, so that a group has no far ends
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
            if other.id in taken or any(other.id == member.id for member in group):
                continue
            if all(alike(member, other) for member in group):
                group.append(other)
        if len(group) >= least:
            taken.update(member.id for member in group)
            found.append(group)
    return found
