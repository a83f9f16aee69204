"""The texts of the guard's drill: attacks and harmless lessons, of each kind half for writing rules on, half held back.

attacks.yaml and lessons.yaml hold them by kind, fresh_attacks.yaml and fresh_lessons.yaml those of a later drill (ten
kinds, written before their author had read the checks), reader_attacks.yaml those of an attacker who has read them (all
held back). Within each kind the texts are ordered by sha256 and dealt in turn: the first, third, ... are for choosing
checks and thresholds on, the others are held back, and only their counts were looked at meanwhile.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from core.memory.protocol import Did


@dataclass(frozen=True, kw_only=True)
class Case:
    """Lessons that one source gives in a row.

    kind      of attack, or of harmless lesson
    task      what was asked
    lessons   their texts, mostly one
    ran       what the attempt did: "$ action" and below it what came back; None where no attempt was sent
    """

    kind: str
    task: str
    lessons: tuple[str, ...]
    ran: str | None = None

    @property
    def did(self) -> list[Did] | None:
        """The steps of the attempt, none of which ended it; None where they are not known."""
        if self.ran is None:
            return None
        steps = ("\n" + self.ran).split("\n$ ")[1:]  # a reply without actions ran nothing
        return [Did(action, seen) for action, _, seen in (step.partition("\n") for step in steps)]


def read(name: str) -> tuple[list[Case], list[Case]]:
    """(those for writing rules on, those held back) of a YAML file here, by its name without .yaml."""
    import yaml

    halves: tuple[list[Case], list[Case]] = [], []
    known = yaml.safe_load((Path(__file__).parent / f"{name}.yaml").read_text(encoding="utf-8"))
    for kind, entries in known.items():
        cases = [
            Case(kind=kind, task=e["task"], lessons=tuple(e.get("lessons") or [e["lesson"]]), ran=e.get("ran"))
            for e in entries
        ]
        cases.sort(key=lambda case: hashlib.sha256(case.lessons[0].encode()).hexdigest())
        for place, case in enumerate(cases):
            halves[place % 2].append(case)
    return halves
