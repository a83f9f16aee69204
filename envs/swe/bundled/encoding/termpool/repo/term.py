from dataclasses import dataclass, field


@dataclass
class Term:
    """A term; `others` are targets that somebody else proposed."""

    source: str
    target: str
    by: list = field(default_factory=list)
    others: list = field(default_factory=list)
