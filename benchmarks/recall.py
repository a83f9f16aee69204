"""Whether a lesson is found by what it says, and what deduplication takes for a repetition: with MiniLM.

    python -m benchmarks.recall [--json FILE] [--quick]

What a coding agent's memory finds (data/coding_memory.jsonl): 200 lessons, 320 questions that one of them answers, and
100 strangers that none does. Four hands wrote a quarter each, of one field each (back ends, front ends, operations,
systems), without having seen this project or each other's. Half of the questions are what an agent asks amid its work:
error messages, paths, commands; half are paraphrases without three words in a row of the lesson, ten of them in other
languages. The lessons enter through save_lesson. first and in three: of the questions whose lesson is shown first, or
among three; refused: of the strangers to which nothing is shown; precision: of what is shown to questions. Once with
min_score, as served, once without. FTS5 and bare MiniLM, ten lines each, are what a memory has to be better than.

200 lessons (data/lessons.jsonl) enter a bank through the tools of the MCP server, one after the other, without
consolidation; then each one's question is asked, which has no word of its title and, in 164 of the 200, no content word
of the lesson at all. recall@k: of the questions whose lesson is among the first k. stranger: of 100 questions that no
lesson answers (data/strangers.txt), those to which the server shows something; passes: of the 200 those to which it
shows their own lesson.

For each of ten languages that MiniLM does not read, 12 lessons on unlike subjects (data/language_lessons.jsonl), each
stored under its title, and a question for each: found first; and superseded by a round of deduplication, wrongly.

260 pairs of lessons (data/lesson_pairs.jsonl): in 120 both say the same in other words, in 140 the later one corrects
the earlier one in a number, a name, a flag, a unit, a negation, an order and the like. found: repetitions that are
superseded; lost: corrections of which one lesson would be. Without --quick also by words alone, and by RRF.
"""

from __future__ import annotations

import json
import logging
import re
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.lines import Lines, lines_parser
from core.memory.bank import MemoryBank
from core.memory.consolidation.consolidator import Consolidator
from core.memory.consolidation.deduplicate import Deduplicate
from core.memory.consolidation.differences import difference
from core.memory.policies.convex import Convex
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
SERVERS = {  # name: settings of the server, and whether --quick has it
    "as served": ((), True),
    "memory.key=query": (("memory.key=query",), False),
    "memory.key=item": (("memory.key=item",), False),
    "retrieval=cosine": (("retrieval=cosine", "retrieval.min_score=0.45"), False),
    "retrieval=rrf": (("retrieval=rrf", "retrieval.min_score=0.45"), False),
    "the paper's bank": (("memory.key=query", "retrieval=cosine", "retrieval.min_score=0.45"), False),
}
WAYS = {  # name: (the tool that stores a lesson, settings of the server, whether --quick has it, least recall@5)
    "save_lesson, memory.key=query": ("save_lesson", ("memory.key=query",), True, 0.5),
    "save_lesson": ("save_lesson", (), True, 0.7),
    "add_insight": ("add_insight", (), True, 0.7),
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
        config = load_config(["memory.consolidate=null", *words])
        with closing(Service(Path(folder) / "bank.sqlite", config)) as service:
            tools = MemoryTools(service)
            ids = [store(tools, tool, row) for row in rows]
            policy = service.bank.policy
            passed = [id in search(service.bank, row["question"]) for id, row in zip(ids, rows)]
            false = [bool(search(service.bank, question)) for question in strangers()]
            without_limits(policy)
            found = [search(service.bank, row["question"]) for row in rows]
    ranks = [hits.index(id) + 1 if id in hits else TOP + 1 for id, hits in zip(ids, found)]
    shares = {f"recall@{k}": sum(rank <= k for rank in ranks) / len(rows) for k in (1, 5)}
    return shares | {"passes": sum(passed) / len(rows), "stranger": sum(false) / len(false)}


def coding(kind: str) -> list[dict[str, str]]:
    """The rows of a kind (lesson, question, stranger) of the coding agent's memory."""
    return [row for row in rows_of("coding_memory") if row["kind"] == kind]


def shares(ids: list[str], find: Callable[[str], list[str]]) -> dict[str, float]:
    """The shares of a way to find lessons. ids: of the stored lessons; find: ids for a question, at most 3."""
    right = {row["id"]: id for row, id in zip(coding("lesson"), ids, strict=True)}
    questions = coding("question")
    shown = [find(row["text"]) for row in questions]
    ranks = [each.index(right[q["lesson"]]) if right[q["lesson"]] in each else 3 for q, each in zip(questions, shown)]
    return {
        "first": sum(rank == 0 for rank in ranks) / len(ranks),
        "in three": sum(rank < 3 for rank in ranks) / len(ranks),
        "precision": sum(rank < 3 for rank in ranks) / max(sum(map(len, shown)), 1),
        "refused": sum(not find(row["text"]) for row in coding("stranger")) / len(coding("stranger")),
    }


def served(words: tuple[str, ...]) -> tuple[dict[str, float], dict[str, float]]:
    """The shares of the server with these settings: as they are, and without min_score."""
    with tempfile.TemporaryDirectory() as folder:
        config = load_config(["memory.consolidate=null", *words])
        with closing(Service(Path(folder) / "bank.sqlite", config)) as service:
            tools, bank = MemoryTools(service), service.bank
            kept = [
                tools.save_lesson(row["task"], row["title"], row["content"], row["description"])
                for row in coding("lesson")
            ]
            ids = [each.structured_content["memory_id"] for each in kept]
            find = lambda question: [hit.record.id for hit in bank.retrieve(question, 3)]  # noqa: E731
            as_served = shares(ids, find)
            without_limits(bank.policy)
            return as_served, shares(ids, find)


def without_limits(policy: Any) -> None:
    """Let a policy show what it ranks, whatever the scores."""
    policy.min_score = None
    if isinstance(policy, Convex):
        policy.of_best = 0.0


def ten_lines_of_fts5() -> dict[str, float]:
    """SQLite's full-text index over the whole text of each lesson, any word of the question, by its BM25."""
    db = sqlite3.connect(":memory:")
    db.execute("CREATE VIRTUAL TABLE lessons USING fts5(text)")
    db.executemany("INSERT INTO lessons VALUES (?)", [(whole_text(row),) for row in coding("lesson")])

    def find(question: str) -> list[str]:
        words = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", question))
        query = "SELECT rowid FROM lessons WHERE lessons MATCH ? ORDER BY rank LIMIT 3"
        return [str(rowid) for (rowid,) in db.execute(query, (words,))]

    return shares([str(1 + place) for place in range(len(coding("lesson")))], find)


def ten_lines_of_minilm(embedder: CachedEmbedder) -> dict[str, float]:
    """The cosine of the question and the whole text of each lesson."""
    stored = np.array(embedder.embed([whole_text(row) for row in coding("lesson")]))

    def find(question: str) -> list[str]:
        return [str(place) for place in np.argsort(-(stored @ embedder.embed([question])[0]))[:3]]

    return shares([str(place) for place in range(len(stored))], find)


def whole_text(lesson: dict[str, str]) -> str:
    return "\n".join(lesson[part] for part in ("task", "title", "description", "content"))


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


def add_shares(lines: Lines, name: str, got: dict[str, float]) -> None:
    note = ", ".join(f"{share} {value:.3f}" for share, value in got.items() if share != "first")
    lines.add(f"first, {name}", got["first"], 0.0, "", least=True, note=note)


@plain_errors()
def main(arguments: list[str] | None = None) -> int:
    given = lines_parser(__doc__, quick=True).parse_args(arguments)
    lines, embedder = Lines(), CachedEmbedder(inner=MiniLMEmbedder())
    logging.disable(logging.WARNING)  # that the guard sets lessons aside, and of other languages
    for name, (words, quick) in SERVERS.items():
        if quick or not given.quick:
            for how, got in zip(("", ", no min_score"), served(words), strict=True):
                add_shares(lines, f"{name}{how}", got)
    add_shares(lines, "ten lines of FTS5", ten_lines_of_fts5())
    add_shares(lines, "ten lines of MiniLM", ten_lines_of_minilm(embedder))
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
