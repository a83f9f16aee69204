"""Repetitions and corrections: what the deduplication of a bank makes of 200 pairs of lessons.

    python -m benchmarks.bench_corrections [--half tuned|held|fresh] [--show] [--json FILE]

100 pairs (data/lesson_pairs.jsonl) say the same in other words, as two attempts are distilled; in 100 the later lesson
corrects the earlier one in a number, a version, a name, a file, a flag, a unit, a negation, a direction, an order or a
word for its opposite; 60 more (`fresh`) are of both kinds. `difference` was written without a look at them; the share
of words from which two lessons are not merged (`may_correct`) was chosen on all of them.

found   repetitions that are taken for such; near: those that MiniLM finds (cosine >= 0.9, or nearly equal titles)
lost    corrections of which one lesson would be superseded
before  by the cosine and the titles alone; after: with core/memory/consolidation/differences.py
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from core.memory.consolidation.deduplicate import Deduplicate
from core.memory.consolidation.differences import difference
from core.models.embedding import MiniLMEmbedder
from core.types import Lesson
from scripts.command_line import parser

DATA = Path(__file__).parent / "data" / "lesson_pairs.jsonl"
REPETITION = "repetition"
PARTS = ("tuned", "held", "fresh")


@dataclass(frozen=True, kw_only=True)
class LessonPair:
    """Two lessons, the later one last. kind: `repetition`, or what the later one corrects."""

    kind: str
    half: str
    one: Lesson
    other: Lesson


@dataclass(frozen=True, kw_only=True)
class JudgedPair:
    """A pair, whether it is near by the rules of `Deduplicate`, and the difference found (None: the same)."""

    pair: LessonPair
    near: bool
    difference: str | None

    @property
    def is_superseded(self) -> bool:
        return self.near and self.difference is None


class Cosines:
    """The one method of a ConsolidationContext that `Deduplicate.near` calls."""

    def __init__(self) -> None:
        self._embedder = MiniLMEmbedder()

    def cosine(self, one: str, other: str) -> float:
        rows = self._embedder.embed([one, other])
        return round(float(rows[0] @ rows[1]), 6)


def pairs(half: str | None = None) -> list[LessonPair]:
    """The pairs of one half, or of both."""
    found = []
    for line in DATA.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        one, other = (Lesson(title=title, description="", content=text) for title, text in (row["one"], row["other"]))
        found.append(LessonPair(kind=row["kind"], half=row["half"], one=one, other=other))
    return [pair for pair in found if half in (None, pair.half)]


def judged(given: list[LessonPair]) -> list[JudgedPair]:
    rule, cosines = Deduplicate(), Cosines()
    return [
        JudgedPair(
            pair=pair,
            near=rule.near(cosines, pair.one, pair.other),
            difference=difference(pair.one, pair.other),
        )
        for pair in given
    ]


def table(found: list[JudgedPair]) -> dict[str, dict[str, int]]:
    """{kind: {n, near, before, after}}; before, after: pairs of which one lesson is superseded."""
    rows: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(("n", "near", "before", "after"), 0))
    for each in found:
        kinds = [each.pair.kind] if each.pair.kind == REPETITION else [each.pair.kind, "corrections"]
        for kind in kinds:
            row = rows[kind]
            row["n"] += 1
            row["near"] += each.near
            row["before"] += each.near
            row["after"] += each.is_superseded
    return dict(rows)


def main(argv: list[str] | None = None) -> int:
    top = parser(__doc__)
    top.add_argument("--half", choices=PARTS, help="only this half")
    top.add_argument("--show", action="store_true", help="print the repetitions not found and the corrections lost")
    top.add_argument("--json", metavar="FILE", help="also write the figures there")
    given = top.parse_args(argv)
    found = {half: judged(pairs(half)) for half in ((given.half,) if given.half else PARTS)}
    figures = {half: table(each) for half, each in found.items()}
    for half, rows in figures.items():
        print(f"{half:12}{'pairs':>7}{'near':>7}  superseded before{'after':>7}")
        for kind, row in rows.items():
            print(f"{kind:12}{row['n']:>7}{row['near']:>7}{row['before']:>19}{row['after']:>7}")
        repeated, corrected = rows[REPETITION], rows["corrections"]
        print(
            f"repetitions found: before {repeated['before']}, after {repeated['after']} of {repeated['n']} "
            f"({repeated['near']} near); corrections lost: before {corrected['before']}, after {corrected['after']} "
            f"of {corrected['n']}\n"
        )
    for each in [each for half in found.values() for each in half] if given.show else ():
        if each.near and (each.difference is None) != (each.pair.kind == REPETITION):
            print(each.pair.kind, each.difference, f"\n  {each.pair.one.text!r}\n  {each.pair.other.text!r}")
    if given.json:
        Path(given.json).write_text(json.dumps(figures, indent=2), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
