"""Which records a search may see. The filter is applied inside the search, so a small tenant still gets its k.

That is a rule of safety: a record of another tenant, one in quarantine, or what the task itself has taught must never
be shown. So it is said here, once (`visible`), in terms that each search renders (`Rendering`): as SQL of SQLite or
PostgreSQL, or as a test of the attributes that an index keeps of its entries.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeVar

STATUSES = ("active", "quarantined", "archived", "superseded")

PRIOR = {"success": 0.7, "failure": 0.6}  # confidence of a record without a confidence of its own, by its outcome
Term = TypeVar("Term")


def normalised(text: str) -> str:
    """A text without differences in case, width of letters and runs of blanks."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def normal_tag(tag: str) -> str:
    """A tag as it is compared: "React" is "react", "Machine  Learning" is "machine-learning"."""
    return normalised(tag.replace("\0", " ")).replace(" ", "-")


def folded_tags(tags: Iterable[str]) -> list[str]:
    """The tags of a record as they are stored to be compared, each once, sorted."""
    return sorted({normal_tag(tag) for tag in tags})


@dataclass(frozen=True, kw_only=True)
class Filter:
    """What a record must have; None and () do not restrict, but for the namespace.

    namespace   None is the bank's own namespace, never everyone's
    everyone    the records of every namespace, whatever `namespace` says
    domain      exactly this one, or any of these
    tags        all of these, whatever their case
    outcome     success | failure
    min_confidence   believed in at least so much; one that was never rated has the prior of its outcome
    statuses    any of these; the default is what retrieval may ever show
    """

    namespace: str | None = None
    everyone: bool = False
    domain: str | tuple[str, ...] | None = None
    tags: tuple[str, ...] = ()
    outcome: str | None = None
    min_confidence: float | None = None
    statuses: tuple[str, ...] = ("active",)

    @cached_property
    def domains(self) -> tuple[str, ...] | None:
        """The domains of which a record must have one; None: any."""
        return (self.domain,) if isinstance(self.domain, str) else self.domain


class Rendering(Protocol[Term]):
    """How one search says what `visible` asks of a record."""

    def one_of(self, column: str, values: tuple[str, ...]) -> Term:
        """Its namespace, status, outcome or domain is one of these."""

    def has_tag(self, tag: str) -> Term:
        """It has a tag, both as `normal_tag` gives them."""

    def believed(self, least: float) -> Term:
        """Its confidence, or the prior of its outcome where it has none, is at least so much."""

    def not_from(self, task_id: str) -> Term:
        """Neither it nor, if it was merged, any record behind it came from a task."""


def visible(where: Filter, exclude_task: str | None, say: Rendering[Term]) -> list[Term]:
    """What must be true of a record that a search may show.

    where          with its namespace filled in, unless it is for everyone's records
    exclude_task   the task that searches; None: it may be shown what it taught itself
    """
    return [*by_attributes(where, say), *by_history(where, exclude_task, say)]


def by_attributes(where: Filter, say: Rendering[Term]) -> list[Term]:
    """The part of `visible` that follows from what a record is: the same for every task, and whoever uses it."""
    terms = [] if where.everyone else [say.one_of("namespace", (where.namespace,))]
    terms.append(say.one_of("status", where.statuses))
    if where.outcome is not None:
        terms.append(say.one_of("outcome", (where.outcome,)))
    if where.domains is not None:
        terms.append(say.one_of("domain", where.domains))
    return terms + [say.has_tag(tag) for tag in folded_tags(where.tags)]


def by_history(where: Filter, exclude_task: str | None, say: Rendering[Term]) -> list[Term]:
    """The part of `visible` that follows from who taught a record, and from how its uses ended."""
    terms = [] if where.min_confidence is None else [say.believed(where.min_confidence)]
    return terms if exclude_task is None else [*terms, say.not_from(exclude_task)]
