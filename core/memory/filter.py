"""Which records a search may see. The filter is applied inside the search, so a small tenant still gets its k.

It is a safety rule: a search must never return a record of another tenant, a quarantined one, or one learned from the
task that searches. It is defined once in `visible`; each backend translates it to SQL or index tests (`FilterBackend`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeVar

from core.normal_form import folded

STATUSES = ("active", "quarantined", "archived", "superseded")

PRIOR = {"success": 0.7, "failure": 0.6}  # by outcome: confidence of a record that has none of its own
Term = TypeVar("Term", covariant=True)


def normal_tag(tag: str) -> str:
    """A tag normalised for comparison: "React" to "react", "Machine  Learning" to "machine-learning"."""
    return folded(tag.replace("\0", " ")).replace(" ", "-")


def folded_tags(tags: Iterable[str]) -> list[str]:
    """The tags of a record normalised for comparison, each once, sorted."""
    return sorted({normal_tag(tag) for tag in tags})


@dataclass(frozen=True, kw_only=True)
class Filter:
    """What a record must have. None and () mean no restriction, except namespace=None, which means the bank's own.

    namespace   None: the bank's own namespace, never all of them
    everyone    True: all namespaces, and `namespace` is ignored
    domain      this domain, or one of these
    tags        all of these, in any case
    outcome     success | failure
    min_confidence   least confidence; a record without one has the prior of its outcome (PRIOR)
    statuses    one of these; default: active, the only status retrieval returns
    """

    namespace: str | None = None
    everyone: bool = False
    domain: str | tuple[str, ...] | None = None
    tags: tuple[str, ...] = ()
    outcome: str | None = None
    min_confidence: float | None = None
    statuses: tuple[str, ...] = ("active",)

    @property
    def named(self) -> str:
        """`namespace`, which the bank has filled in by the time of a search (`MemoryBank._within`)."""
        assert self.namespace is not None
        return self.namespace

    @cached_property
    def domains(self) -> tuple[str, ...] | None:
        """`domain` as a tuple; None: no restriction."""
        return (self.domain,) if isinstance(self.domain, str) else self.domain


class AttributeBackend(Protocol[Term]):
    """Translates the conditions of `by_attributes` for one backend. Each method returns one condition on a record."""

    def one_of(self, column: str, values: tuple[str, ...]) -> Term:
        """The column (namespace, status, outcome or domain) has one of these values."""
        ...

    def has_tag(self, tag: str) -> Term:
        """The record has a tag; both are normalised (`normal_tag`)."""
        ...


class SourceBackend(Protocol[Term]):
    """Translates the conditions of `by_source_and_confidence`, as AttributeBackend does its own."""

    def believed(self, least: float) -> Term:
        """The confidence, or without one the prior of the outcome, is at least `least`."""
        ...

    def not_from(self, task_id: str) -> Term:
        """The record is not from this task and, if merged, has no original from it."""
        ...


class FilterBackend(AttributeBackend[Term], SourceBackend[Term], Protocol[Term]):
    """Translates all filter conditions for one backend."""


def visible(where: Filter, exclude_task: str | None, backend: FilterBackend[Term]) -> list[Term]:
    """All conditions that a record must meet to be returned by a search.

    where          with its namespace filled in, unless `everyone` is set
    exclude_task   id of the task that searches; None: records learned from it are allowed
    """
    return [*by_attributes(where, backend), *by_source_and_confidence(where, exclude_task, backend)]


def by_attributes(where: Filter, backend: AttributeBackend[Term]) -> list[Term]:
    """The conditions of `visible` on attributes that an index stores: namespace, status, outcome, domain, tags."""
    terms = [] if where.everyone else [backend.one_of("namespace", (where.named,))]
    terms.append(backend.one_of("status", where.statuses))
    if where.outcome is not None:
        terms.append(backend.one_of("outcome", (where.outcome,)))
    if where.domains is not None:
        terms.append(backend.one_of("domain", where.domains))
    return terms + [backend.has_tag(tag) for tag in folded_tags(where.tags)]


def by_source_and_confidence(where: Filter, exclude_task: str | None, backend: SourceBackend[Term]) -> list[Term]:
    """The conditions of `visible` on confidence and source task, which change with use or depend on who searches."""
    terms = [] if where.min_confidence is None else [backend.believed(where.min_confidence)]
    return terms if exclude_task is None else [*terms, backend.not_from(exclude_task)]
