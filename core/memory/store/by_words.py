"""The search by words in SQLite: BM25 as FTS5 has it."""

from __future__ import annotations

import math

from core.memory.store.filter import PRIOR, Filter, normal_tag

# How far a record is believed in.
BELIEVED = f"coalesce(r.confidence, iif(r.outcome = 'success', {PRIOR['success']}, {PRIOR['failure']}))"


def as_in_lineage(task_id: str | None) -> str | None:
    """A task's id as `lineage` has it, which is filled by SQLite's json_each: that ends a text at a NUL byte."""
    return None if task_id is None else task_id.partition("\0")[0]


def by_words(words: list[str], k: int, where: Filter, exclude_task: str | None) -> tuple[str, tuple]:
    """The query for (rowid, BM25) of the k best records that have any of the words, and its values."""
    marks = ", ".join("?" * len(where.statuses))
    domains = "" if where.domains is None else f" AND r.domain IN ({', '.join('?' * len(where.domains))})"
    same = "t.value = ? OR lower(replace(trim(t.value), ' ', '-')) = ?"  # SQLite's lower: ASCII alone
    tags = "".join(f" AND EXISTS (SELECT 1 FROM json_each(r.tags) t WHERE {same})" for _ in where.tags)
    query = (
        "SELECT r.rowid, round(-bm25(lexicon), 9) AS score FROM lexicon JOIN records r ON r.rowid = lexicon.rowid "
        "WHERE lexicon MATCH ?1 AND (?6 OR r.namespace = ?2) AND r.task_id IS NOT ?3 "
        "AND NOT EXISTS (SELECT 1 FROM lineage l WHERE l.task_id IN (?3, ?5) AND l.record = r.rowid) "
        "AND coalesce(?4, r.outcome) = r.outcome "
        f"AND {BELIEVED} >= ?7 "
        f"AND r.status IN ({marks}){domains}{tags} ORDER BY score DESC, r.rowid LIMIT {int(k)}"
    )
    expression = " OR ".join(f'"{word}"' for word in words)  # quoted: nothing in a text is an operator
    fixed = (expression, where.namespace, exclude_task, where.outcome, as_in_lineage(exclude_task), where.everyone)
    fixed = (*fixed, -math.inf if where.min_confidence is None else where.min_confidence)
    spelled = [spelling for tag in where.tags for spelling in (tag, normal_tag(tag))]
    return query, (*fixed, *where.statuses, *(where.domains or ()), *spelled)
