"""How far consolidation has come, as it is stored in the bank."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace

from core.types import Usage


@dataclass(frozen=True, kw_only=True)
class Progress:
    """One for each run and namespace of a bank."""

    folded: int = 0  # episodes with a lower index have been counted
    fresh: tuple[str, ...] = ()  # ids of the records that wait for a round
    round: tuple[str, ...] = ()  # ids of the records of the round under way, those that it made included
    step: int = 0  # policies of this round that are done
    usage: Usage = field(default_factory=Usage)  # of all models asked so far

    def begun(self, every: int) -> Progress:
        """With the next round begun, if none is under way and enough records wait."""
        if self.round or len(self.fresh) < every:
            return self
        return replace(self, fresh=(), round=self.fresh, step=0)

    def to_text(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_text(cls, text: str | None) -> Progress:
        """From JSON; the beginning for None."""
        if text is None:
            return cls()
        values = json.loads(text)
        values |= {name: tuple(values[name]) for name in ("fresh", "round")} | {"usage": Usage(**values["usage"])}
        return cls(**values)
