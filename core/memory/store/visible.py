"""Which records a search may return, as SQL of both databases.

It is a safety rule: a search must never return a record of another tenant, a quarantined one, or one learned from the
task that searches. The conditions are part of the search, so a small tenant still gets its k.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from core.memory.filter import PRIOR, Filter, folded_tags
from core.memory.store.schema import placeholders

# A record's confidence, or the prior of its outcome.
BELIEVED = f"coalesce(r.confidence, CASE r.outcome WHEN 'success' THEN {PRIOR['success']} ELSE {PRIOR['failure']} END)"


@dataclass(kw_only=True)
class Conditions:
    """Conditions of one query on its record `r`. values: those of its placeholders so far."""

    values: list[Any] = field(default_factory=list)

    def visible(self, where: Filter, exclude_task: str | None) -> list[str]:
        """All conditions that a record must meet to be returned.

        where          with its namespace filled in, unless `everyone` is set
        exclude_task   id of the task that searches; None: records learned from it are allowed
        """
        terms = [self.one_of(f"r.{column}", values) for column, values in where.columns.items()]
        tag = "EXISTS (SELECT 1 FROM json_each(r.folded_tags) t WHERE t.value = {})"
        terms += [tag.format(self.place(each)) for each in folded_tags(where.tags)]
        if where.min_confidence is not None:
            terms.append(f"{BELIEVED} >= CAST({self.place(where.min_confidence)} AS DOUBLE PRECISION)")
        return [*terms, self.not_from(exclude_task, "r")]

    def not_from(self, task_id: str | None, row: str) -> str:
        """The record `row` is not from this task and, if merged, has no original from it. None: from any."""
        if task_id is None:
            return "1 = 1"
        own, merged = self.place(task_id), self.one_of("l.task_id", in_lineage(task_id))
        return f"{row}.task_id <> {own} AND {row}.rowid NOT IN (SELECT l.record FROM lineage l WHERE {merged})"

    def one_of(self, column: str, values: tuple[str, ...]) -> str:
        """The column has one of these values."""
        if not values:
            return "1 = 0"
        self.values += values
        return f"{column} IN ({placeholders(len(values), after=len(self.values) - len(values))})"

    def place(self, value: Any) -> str:
        """Add a value; returns its placeholder."""
        self.values.append(value)
        return f"${len(self.values)}"


def in_lineage(task_id: str) -> tuple[str, ...]:
    """The forms in which a task's id may stand in `lineage`, which json_each fills.

    Of a text with a NUL byte SQLite's has what precedes it, and that of PostgreSQL (tables.sql) a blank in its place.
    """
    return tuple(dict.fromkeys((task_id, task_id.partition("\0")[0], task_id.replace("\0", " "))))
