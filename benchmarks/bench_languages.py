"""Lessons in ten languages that MiniLM does not read, and in English: what is found, what is wrongly taken for equal.

    python -m benchmarks.bench_languages [--show] [--json FILE]

For each language a bank with 12 lessons on unlike subjects (data/language_lessons.jsonl; English: 24 of lessons.jsonl),
each stored under its title, and a question for each in other words.

found        questions whose lesson comes first
superseded   lessons that a round of deduplication supersedes, though all are on different subjects
before       as if the embedder read every language: cosine alone; after: by words where it does not
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from core.memory.bank import MemoryBank
from core.memory.consolidation.consolidator import Consolidator
from core.memory.consolidation.deduplicate import Deduplicate
from core.memory.policies.cosine import Cosine
from core.models.cache import CachedEmbedder
from core.models.embedding import MiniLMEmbedder
from core.types import Lesson, MemoryRecord
from scripts.command_line import parser

DATA = Path(__file__).parent / "data"
N_ENGLISH = 24


@dataclass(kw_only=True)
class ReadsAll(MiniLMEmbedder):
    """MiniLM as it was used before: for texts in any language."""

    def reads(self, text: str) -> bool:
        return True


def lessons() -> dict[str, list[dict[str, str]]]:
    """{language: [{title, content, question}]}"""
    found: dict[str, list[dict[str, str]]] = {}
    for line in (DATA / "language_lessons.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        found.setdefault(row["language"], []).append(row)
    english = (DATA / "lessons.jsonl").read_text(encoding="utf-8").splitlines()[:N_ENGLISH]
    return found | {"English": [json.loads(line) for line in english]}


def record(place: int, lesson: dict[str, str]) -> MemoryRecord:
    return MemoryRecord(
        id=str(place),
        original_query=lesson["title"],
        items=(Lesson(title=lesson["title"], description="", content=lesson["content"]),),
        source_trajectory_id=str(place),
        score=1.0,
        outcome="success",
        label_source="none",
        task_id=str(place),
    )


def figures(embedder: CachedEmbedder, given: list[dict[str, str]], key: str) -> tuple[int, int, list[str]]:
    """(questions whose lesson comes first, lessons superseded, the other questions)."""
    life = Consolidator(every=1_000, deduplicate=Deduplicate())
    with tempfile.TemporaryDirectory() as folder:
        policy = Cosine(other_languages_by_words=True)
        bank = MemoryBank(path=f"{folder}/b.sqlite", embedder=embedder, policy=policy, key=key, consolidate=life)
        with closing(bank):
            bank.add_many([record(place, lesson) for place, lesson in enumerate(given)])
            hits = [(str(place), row["question"], bank.retrieve(row["question"], 1)) for place, row in enumerate(given)]
            missed = [question for place, question, hit in hits if [each.record.id for each in hit] != [place]]
            life.consolidate(bank)
            return len(given) - len(missed), bank.statuses().get("superseded", 0), missed


def main(argv: list[str] | None = None) -> int:
    top = parser(__doc__)
    top.add_argument("--show", action="store_true", help="print the questions whose lesson is not found")
    top.add_argument("--json", metavar="FILE", help="also write the figures there")
    given = top.parse_args(argv)
    logging.disable(logging.WARNING)
    before, after = CachedEmbedder(inner=ReadsAll()), CachedEmbedder(inner=MiniLMEmbedder())
    rows = []
    print(f"{'':12}{'lessons':>8}  found before   key=both   after   key=both    superseded before   after")
    for language, known in lessons().items():
        old, new = ([figures(embedder, known, key) for key in ("query", "both")] for embedder in (before, after))
        found = [each[0] for each in old + new]
        rows.append({"language": language, "n": len(known), "found": found, "superseded": [old[0][1], new[0][1]]})
        print(
            f"{language:12}{len(known):>8}{found[0]:>14}{found[1]:>11}{found[2]:>8}{found[3]:>11}"
            f"{old[0][1]:>21}{new[0][1]:>8}"
        )
        for question in new[0][2] if given.show and language != "English" else ():
            print("   ", question)
    if given.json:
        Path(given.json).write_text(json.dumps(rows, indent=2, ensure_ascii=False), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
