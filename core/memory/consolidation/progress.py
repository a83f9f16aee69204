"""How far consolidation has come, as it is stored in the bank."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace

from core.errors import UserError
from core.types import Usage


class LaterVersion(UserError):
    """What is stored can be read by a later version only."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """One for each run and namespace of a bank."""

    folded: int = 0  # episodes with a lower index have been counted
    fresh: tuple[str, ...] = ()  # ids of the records that wait for a round
    round: tuple[str, ...] = ()  # ids of the records of the round under way, those that it made included
    step: int = 0  # policies of this round that are done
    usage: Usage = field(default_factory=Usage)  # of all models asked so far
    arrived: tuple[str, ...] = ()  # ids of the records that `deduplicate.on_add` has yet to look at

    def begun(self, every: int) -> Progress:
        """With the next round begun, if none is under way and enough records wait."""
        if self.round or len(self.fresh) < every:
            return self
        return replace(self, fresh=(), round=self.fresh, step=0)

    def to_text(self) -> str:
        """As JSON; without `arrived` where there are none, as versions that did not know it have it."""
        values = asdict(self)
        if not self.arrived:
            del values["arrived"]
        return json.dumps(values, sort_keys=True)

    @classmethod
    def from_text(cls, text: str | None) -> Progress:
        """From JSON; the beginning for None. LaterVersion for what only a later version can read."""
        if text is None:
            return cls()
        values = json.loads(text)
        if unknown := sorted((values.keys() - vars(cls())) | (values["usage"].keys() - vars(Usage()))):
            raise LaterVersion(f"the bank's consolidation was begun by a later version: {', '.join(unknown)} is its.")
        ids = {name: tuple(values.get(name, ())) for name in ("fresh", "round", "arrived")}
        return cls(**values | ids | {"usage": Usage(**values["usage"])})
