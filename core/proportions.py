"""95 % intervals of a proportion and of the difference of two."""

from __future__ import annotations

from math import hypot, sqrt


def wilson(successes: float, n: float, z: float = 1.959964) -> list[float] | None:
    """Wilson's 95 % interval of a proportion, [low, high] in [0, 1]; None for n = 0 (Wilson 1927)."""
    if n == 0:
        return None
    p, zz = successes / n, z * z
    centre = (p + zz / (2 * n)) / (1 + zz / n)
    half = z * sqrt(p * (1 - p) / n + zz / (4 * n * n)) / (1 + zz / n)
    return [max(0.0, centre - half), min(1.0, centre + half)]


def difference(n: int, won: int, other_n: int, other_won: int) -> tuple[float, float, float] | None:
    """(difference of two proportions, low, high) in [-1, 1], from Wilson's intervals; None where one has no n.

    Newcombe (1998), method 10, of two samples that are independent; of pairs that go together it is too wide.
    """
    mine, others = wilson(won, n), wilson(other_won, other_n)
    if mine is None or others is None:
        return None
    (low, high), (other_low, other_high) = mine, others
    p, other = won / n, other_won / other_n
    return p - other, p - other - hypot(p - low, other_high - other), p - other + hypot(high - p, other - other_low)
