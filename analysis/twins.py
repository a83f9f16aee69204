"""Checks for the same question under several ids: among a run's tasks, and between them and its bank."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from analysis.evidence import Check, known_records, stored_before, where
from analysis.runs import Run, read_records_of
from core.memory.records import was_told
from core.normal_form import folded
from core.types import MemoryRecord

ALIKE = 95  # two queries are nearly the same from this rapidfuzz ratio (0 to 100) on
MOST_TASKS = 2000  # tasks whose queries are compared, each with every other; also the records of a bank
MOST_NAMED = 3
KINDS = ("the same", "the same but for a number", "nearly the same")


def in_stream(run: Run) -> str:
    """How many tasks of a run have nearly the same query as another one, in words; "" for none."""
    queries = {row["task_id"]: row["query"] for row in run.rows}
    found = alike_before(tuple(sorted(queries.items())))
    first = "".join(f" ({name} and {like[0]})" for name, like in list(found.items())[:1])
    return f"{len(found)} of {len(queries)} tasks are nearly the same as another one{first}" if found else ""


def near_duplicate_tasks(run: Run) -> Iterator[str]:
    """Tasks whose queries are nearly the same, in the stream or in a given bank: one may teach the other's answer."""
    queries = list({row["task_id"]: row["query"] for row in run.rows}.items())[:MOST_TASKS]
    for name, like in alike_before(tuple(queries)).items():
        yield f"{name} is like {like[0]}" + (f" and {len(like) - 1} others" if len(like) > 1 else "")
    if (given := run.memory.get("path")) is None:
        return
    made, before = {record["id"] for row in run.rows for record in row["records"]}, stored_before(run)
    held = [each for each in read_records_of(run, given) if before is None or each.id in before]
    stored = [each for each in held if before is not None or each.id not in made][:MOST_TASKS]
    pairs = twins_of(queries, stored)
    if pairs:
        first = "; ".join(f"{name} and {twin.task_id}" for name, _, twin in pairs[:MOST_NAMED])
        yield f"{counted([(query, twin) for _, query, twin in pairs], len(queries))} in the given bank: {first}"


@lru_cache(maxsize=8)  # the seeds of a sweep have the same tasks
def alike_before(queries: tuple[tuple[str, str], ...]) -> dict[str, list[str]]:
    """{task: those before it with nearly the same query}, of the first MOST_TASKS of (task, query)."""
    from rapidfuzz import fuzz, process

    names, texts = [name for name, _ in queries[:MOST_TASKS]], [query for _, query in queries[:MOST_TASKS]]
    scores = process.cdist(texts, texts, scorer=fuzz.ratio, score_cutoff=ALIKE)  # 0 where it is lower
    found = {name: [names[other] for other in scores[one, :one].nonzero()[0]] for one, name in enumerate(names)}
    return {name: like for name, like in found.items() if like}


def twins_retrieved(run: Run) -> Iterator[str]:
    """Tasks that were shown a lesson of nearly their own question, under another id."""
    records, pairs, first = known_records(run), [], []
    for row in run.rows:
        found = [record for hit in row["retrieved"] for record in records[hit["id"]]]
        for _, query, twin in twins_of([(row["task_id"], row["query"])], found):
            pairs.append((query, twin))
            first += [f"{where(row)} that of {twin.task_id}"] if len(first) < MOST_NAMED else []
    if pairs:
        yield f"{counted(pairs, len(run.rows))} among the lessons that it was shown: {'; '.join(first)}"


def counted(pairs: list[tuple[str, MemoryRecord]], n: int) -> str:
    """How many tasks have a twin, by how alike the queries are. n: of how many tasks."""
    alike = [kind(query, twin.original_query) for query, twin in pairs]
    kinds = ", ".join(f"{alike.count(name)} {KINDS[name]}" for name in range(len(KINDS)) if name in alike)
    return f"{len(pairs)} of {n} tasks have a twin ({kinds})"


def twins_of(queries: list[tuple[str, str]], records: list[MemoryRecord]) -> list[tuple[str, str, MemoryRecord]]:
    """(task, query, record) for each (task, query) that a record of another task has nearly the same query as.

    The words may be in another order. Of several records it is the one that is the most alike.
    """
    import numpy as np
    from rapidfuzz import fuzz, process

    texts = [[plain(query) for _, query in queries], [plain(record.original_query) for record in records]]
    if not all(texts):
        return []
    scores = np.maximum(*(process.cdist(*texts, scorer=scorer) for scorer in (fuzz.ratio, fuzz.token_sort_ratio)))
    found = []
    for (task, query), text, row in zip(queries, texts[0], scores, strict=True):
        others = (n for n, record in enumerate(records) if record.task_id != task and not was_told(record))
        alike = [number for number in others if row[number] >= ALIKE]
        if text and alike:
            found.append((task, query, records[max(alike, key=lambda number: row[number])]))
    return found


def kind(query: str, other: str) -> int:
    """The place in KINDS of two queries that are twins."""
    one, two = plain(query), plain(other)
    return 0 if one == two else 1 if re.sub(r"\d+", "0", one) == re.sub(r"\d+", "0", two) else 2


def plain(text: str) -> str:
    """The words and signs of a text, without case, spacing and punctuation."""
    return " ".join(re.findall(r"\w+|[^\w\s.,;:!?\"'`()\[\]]", folded(text)))


LOOK: tuple[Check, ...] = (near_duplicate_tasks, twins_retrieved)
