"""Whether a lesson is found by what it says, and what deduplication takes for a repetition: with MiniLM.

    python -m benchmarks.recall [--json FILE] [--quick]

200 lessons (data/lessons.jsonl) enter a bank through the tools of the MCP server, one after the other, without
consolidation; then each one's question is asked, which has no word of its title and, in 164 of the 200, no content word
of the lesson at all. recall@k: of the questions whose lesson is among the first k. stranger: of 100 questions that no
lesson answers (data/strangers.txt), those with a hit that reaches min_score=0.3; passes: of the 200 those whose own
lesson does.

For each of ten languages that MiniLM does not read, 12 lessons on unlike subjects (data/language_lessons.jsonl), each
stored under its title, and a question for each: found first; and superseded by a round of deduplication, wrongly.

260 pairs of lessons (data/lesson_pairs.jsonl): in 120 both say the same in other words, in 140 the later one corrects
the earlier one in a number, a name, a flag, a unit, a negation, an order and the like. found: repetitions that are
superseded; lost: corrections of which one lesson would be. Without --quick also by words alone, and by RRF.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.lines import Lines, lines_parser
from core.memory.bank import MemoryBank
from core.memory.consolidation.consolidator import Consolidator
from core.memory.consolidation.deduplicate import Deduplicate
from core.memory.consolidation.differences import difference
from core.memory.policies.cosine import Cosine
from core.models.cache import CachedEmbedder
from core.models.embedding import MiniLMEmbedder
from core.types import Lesson, MemoryRecord
from mcp_server.config import load_config
from mcp_server.service import Service
from mcp_server.tools import MemoryTools
from scripts.command_line import plain_errors

DATA = Path(__file__).parent / "data"
TOP = 10
REPETITION = "repetition"
WAYS = {  # name: (the tool that stores a lesson, settings of the server, whether --quick has it, least recall@5)
    "save_lesson, memory.key=query": ("save_lesson", ("memory.key=query",), True, 0.5),
    "save_lesson": ("save_lesson", (), True, 0.75),
    "add_insight": ("add_insight", (), True, 0.75),
    "add_insight, retrieval=lexical": ("add_insight", ("retrieval=lexical",), False, 0.0),
    "add_insight, retrieval=rrf": ("add_insight", ("retrieval=rrf",), False, 0.0),
}


def rows_of(name: str) -> list[dict[str, Any]]:
    """The rows of a file of the data."""
    return [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def lessons() -> list[dict[str, Any]]:
    """[{domain, title, tags, content, question, hard}]; hard: question and content share no word of 4 letters."""
    return rows_of("lessons")


def strangers() -> list[str]:
    """Questions that no lesson answers, half of them about the lessons' own subjects."""
    return (DATA / "strangers.txt").read_text(encoding="utf-8").splitlines()


def language_lessons() -> dict[str, list[dict[str, str]]]:
    """{language: [{title, content, question}]}, English as well."""
    found: dict[str, list[dict[str, str]]] = {}
    for row in rows_of("language_lessons"):
        found.setdefault(row["language"], []).append(row)
    return found | {"English": lessons()[:24]}


def record(place: int, lesson: dict[str, str]) -> MemoryRecord:
    """A lesson as it is stored under its title."""
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


class LessonPair(NamedTuple):
    """Two lessons, the later one last. kind: `repetition`, or what the later one corrects."""

    kind: str
    one: Lesson
    other: Lesson


def pairs() -> list[LessonPair]:
    """The pairs of which one lesson repeats or corrects the other."""
    made = lambda pair: Lesson(title=pair[0], description="", content=pair[1])  # noqa: E731
    return [LessonPair(row["kind"], made(row["one"]), made(row["other"])) for row in rows_of("lesson_pairs")]


def store(tools: MemoryTools, tool: str, lesson: dict[str, Any]) -> str:
    """Store a lesson with a tool, and return its id."""
    title, tags, content = lesson["title"], lesson["tags"], lesson["content"]
    if tool == "add_insight":
        return tools.add_insight(title=title, content=content, tags=tags).structured_content["id"]
    return tools.save_lesson(title, title, content, tags=tags).structured_content["memory_id"]


def measure(tool: str, words: tuple[str, ...]) -> dict[str, float]:
    """The shares of one way to store and search."""
    rows = lessons()
    with tempfile.TemporaryDirectory() as folder:
        config = load_config(["memory.consolidate=null", "retrieval.min_score=0.3", *words])
        with closing(Service(Path(folder) / "bank.sqlite", config)) as service:
            tools = MemoryTools(service)
            ids = [store(tools, tool, row) for row in rows]
            policy = service.bank.policy
            passed = [id in search(service.bank, row["question"]) for id, row in zip(ids, rows)]
            false = [bool(search(service.bank, question)) for question in strangers()]
            policy.min_score = None
            found = [search(service.bank, row["question"]) for row in rows]
    ranks = [hits.index(id) + 1 if id in hits else TOP + 1 for id, hits in zip(ids, found)]
    shares = {f"recall@{k}": sum(rank <= k for rank in ranks) / len(rows) for k in (1, 5)}
    return shares | {"passes": sum(passed) / len(rows), "stranger": sum(false) / len(false)}


def search(bank: Any, question: str) -> list[str]:
    """The ids of the first TOP, best first."""
    return [hit.record.id for hit in bank.retrieve(question, TOP)]


def of_language(embedder: CachedEmbedder, given: list[dict[str, str]]) -> tuple[int, int]:
    """(questions whose lesson comes first, lessons that are superseded)."""
    life = Consolidator(every=1_000, deduplicate=Deduplicate())
    with tempfile.TemporaryDirectory() as folder:
        policy = Cosine(other_languages_by_words=True)
        bank = MemoryBank(path=f"{folder}/b.sqlite", embedder=embedder, policy=policy, consolidate=life)
        with closing(bank):
            bank.add_many([record(place, lesson) for place, lesson in enumerate(given)])
            found = sum(search(bank, row["question"])[:1] == [str(place)] for place, row in enumerate(given))
            life.consolidate(bank)
            return found, bank.statuses().get("superseded", 0)


class Cosines:
    """The one method of a ConsolidationContext that `Deduplicate.near` calls."""

    def __init__(self, embedder: CachedEmbedder) -> None:
        self._embedder = embedder

    def cosine(self, one: str, other: str) -> float:
        rows = self._embedder.embed([one, other])
        return round(float(rows[0] @ rows[1]), 6)


@plain_errors()
def main(arguments: list[str] | None = None) -> int:
    given = lines_parser(__doc__, quick=True).parse_args(arguments)
    lines, embedder = Lines(), CachedEmbedder(inner=MiniLMEmbedder())
    logging.disable(logging.WARNING)  # that the guard sets lessons aside, and of other languages
    for name, (tool, words, quick, least) in WAYS.items():
        if quick or not given.quick:
            got = measure(tool, words)
            note = f"recall@1 {got['recall@1']:.3f}, passes {got['passes']:.3f}"
            lines.add(f"recall@5, {name}", got["recall@5"], least, "", least=True, note=note)
            lines.add(f"stranger, {name}", got["stranger"], 1.0, "")
    for language, known in language_lessons().items():
        if language != "English":
            found, superseded = of_language(embedder, known)
            note = f"{superseded} superseded"
            lines.add(f"{language}, found first of {len(known)}", found, 12, "", least=True, note=note)
    rule, cosines, taken = Deduplicate(), Cosines(embedder), {True: 0, False: 0}
    for pair in pairs():
        same = rule.near(cosines, pair.one, pair.other) and difference(pair.one, pair.other) is None
        taken[pair.kind == REPETITION] += same
    lines.add("repetitions in other words, found", taken[True], 0, "of 120", least=True)
    lines.add("corrections, lost", taken[False], 0, "of 140")
    logging.disable(logging.NOTSET)
    return lines.end(given.json)


if __name__ == "__main__":
    sys.exit(main())
