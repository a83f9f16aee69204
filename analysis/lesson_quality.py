"""How good the lessons are that a run learned: grades, and lessons that are worth a look."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from analysis.evidence import answer_in, where
from analysis.runs import Run
from core.types import Lesson


def lessons_with_answers(run: Run) -> Iterator[str]:
    """Lessons that hold their own task's answer: of use to a task with the same answer only."""
    for row in run.rows:
        gold = row["trajectories"][row["chosen"]]["gold"]
        for number, lesson in enumerate(row["lessons"]):
            if answer := answer_in(Lesson(**lesson).text, gold, row["query"]):
                yield f"{where(row)}: lesson {number} holds {answer!r}"


def duplicate_lessons(run: Run) -> Iterator[str]:
    """The same lesson under several records."""
    counts = Counter(_plain(Lesson(**lesson)) for row in run.rows for lesson in row["lessons"])
    for text, count in counts.most_common():
        if count > 1:
            yield f"{count} times: {text[:80]}"


def grade(run: Run) -> dict[str, Any]:
    """Extraction in numbers; rates in [0, 1], None where there was nothing to grade.

    parse_rate      items that parsed and were within the limit, of all that were begun
    whole_fields    lessons whose title, description and content are all there
    finished        lessons whose content ends as a sentence does; the others were cut, or are no prose
    one_to_five     lessons whose content has 1 to 5 sentences (the paper asks for 1 to 3, in self-contrast to 5)
    literals        lessons with a number or a quotation of their own task's query, which the paper's prompts forbid
    """
    pairs = [(row["query"], Lesson(**lesson)) for row in run.rows for lesson in row["lessons"]]
    n, words = len(pairs), sorted(len(lesson.content.split()) for _, lesson in pairs)
    passed = {
        "whole_fields": [all(map(str.strip, vars(lesson).values())) for _, lesson in pairs],
        "finished": [bool(re.search(r"[.!?][)\]\"'`*]*$", lesson.content.strip())) for _, lesson in pairs],
        "one_to_five": [len(re.findall(r"[.!?](?:\s|$)", lesson.content)) <= 5 for _, lesson in pairs],
        "literals": [any(_holds(lesson.text, each) for each in literals(query)) for query, lesson in pairs],
    }
    return {
        "lessons": n,
        "episodes_that_taught": sum(bool(row["lessons"] or row["n_dropped"]) for row in run.rows),
        "parse_rate": _share(n, n + sum(row["n_dropped"] for row in run.rows)),
        **{name: _share(sum(those), n) for name, those in passed.items()},
        "distinct": _share(len({_plain(lesson) for _, lesson in pairs}), n),
        "words_median": words[n // 2] if n else None,
        "words_most": words[-1] if n else None,
        "cut_off": sum(row.get("n_truncated", 0) for row in run.rows),
    }


def literals(query: str) -> set[str]:
    """Numbers of two digits and more, and quoted strings."""
    return set(re.findall(r"\d+(?:\.\d+)?", query)) - set("0123456789") | set(re.findall(r'"([^"\n]{3,60})"', query))


def _holds(text: str, literal: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(literal)}(?![\w])", text) is not None


def _plain(lesson: Lesson) -> str:
    return " ".join(re.findall(r"\w+", lesson.text.lower()))


def _share(count: int, total: int) -> float | None:
    return count / total if total else None
