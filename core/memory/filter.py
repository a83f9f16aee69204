"""Which records a caller wants to see. What a search may return is told in core/memory/store/visible.py."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from core.normal_form import folded

STATUSES = ("active", "quarantined", "archived", "superseded")

PRIOR = {"success": 0.7, "failure": 0.6}  # by outcome: confidence of a record that has none of its own


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
    def columns(self) -> dict[str, tuple[str, ...]]:
        """{column: values of which a record must have one}, for namespace, status, outcome and domain."""
        found: dict[str, tuple[str, ...]] = {} if self.everyone else {"namespace": (self.named,)}
        found["status"] = self.statuses
        if self.outcome is not None:
            found["outcome"] = (self.outcome,)
        if self.domain is not None:
            found["domain"] = (self.domain,) if isinstance(self.domain, str) else self.domain
        return found
