"""Which records a search may see. The filter is applied inside the search, so a small tenant still gets its k."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

STATUSES = ("active", "quarantined", "archived", "superseded")

PRIOR = {"success": 0.7, "failure": 0.6}  # confidence of a record without a confidence of its own, by its outcome
Attributes = tuple[str, str, str, str, tuple[str, ...]]  # namespace, status, outcome, domain, tags


def normalised(text: str) -> str:
    """A text without differences in case, width of letters and runs of blanks."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def normal_tag(tag: str) -> str:
    """A tag as it is compared: "React" is "react", "Machine  Learning" is "machine-learning"."""
    return normalised(tag).replace(" ", "-")


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

    @property
    def domains(self) -> tuple[str, ...] | None:
        """The domains of which a record must have one; None: any."""
        return (self.domain,) if isinstance(self.domain, str) else self.domain

    def passes(self, attributes: Attributes) -> bool:
        """Whether a record with these attributes may be seen. The namespace must have been filled in.

        min_confidence is no attribute: it changes with every use (`Store.rowids_below`).
        """
        namespace, status, outcome, domain, tags = attributes
        return (
            (self.everyone or namespace == self.namespace)
            and status in self.statuses
            and self.outcome in (None, outcome)
            and (self.domains is None or domain in self.domains)
            and {normal_tag(tag) for tag in self.tags} <= {normal_tag(tag) for tag in tags}
        )
