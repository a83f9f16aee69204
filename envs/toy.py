"""env=toy: families of locked boxes, a world in which the effect of memory is known exactly.

Every box of a family opens to the same word. A wrong word locks the box for good, and the feedback names the right
one: so the first box of a family teaches what the others need, and only an agent that remembers can use it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from core.seeding import derive_seed
from core.types import Lesson, Task, content_id
from envs.base import BaseEnv

FAMILIES = "amber birch cedar dune ember fjord grove heath".split()
SYLLABLES = "ba ce di fo gu ha je ki lo mu na pe".split()


@dataclass(kw_only=True)
class ToyEnv(BaseEnv):
    """`families` x `boxes_per_family` tasks, interleaved: box 1 of every family, then box 2, ...

    p_word    probability that the family's word opens a box
    p_guess   probability that any other word opens it; the feedback names the right word in either case
    """

    families: int = 4
    boxes_per_family: int = 10
    p_word: float = 1.0
    p_guess: float = 0.0
    _task: Task | None = field(default=None, init=False, repr=False)
    _won: bool = field(default=False, init=False, repr=False)

    def word(self, family: str) -> str:
        """The word that opens a family's boxes; depends on the seed and the family alone."""
        number = derive_seed(self.seed, family, "word")
        return "".join(SYLLABLES[(number // 12**place) % 12] for place in range(4))

    def lessons(self) -> list[tuple[Task, Lesson]]:
        """One (example task, ideal lesson) pair per family."""
        first = self.first_of_type()
        return [
            (
                first[family],
                Lesson(
                    title=f"Word of the {family} family",
                    description=f"All boxes of the {family} family open to one word.",
                    content=f'The word of the {family} family is "{self.word(family)}".',
                ),
            )
            for family in FAMILIES[: self.families]
        ]

    def _tasks(self, split: str | None) -> list[Task]:
        return [
            Task(
                id=f"toy/{family}/{box}",
                query=f"Open the {family} box: box {box} of the {family} family.",
                type=family,
            )
            for box in range(1, self.boxes_per_family + 1)
            for family in FAMILIES[: self.families]
        ]

    def _reset(self, task: Task) -> str:
        self._task, self._won = task, False
        return f"{task.query} It is locked and listens for one word. You may say a word once."

    def _step(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        verb, _, said = action.strip().partition(" ")
        if verb.lower() != "say" or not said.strip():
            return "Nothing happens. (Known action: say WORD)", 0.0, False, {"valid": False, "won": False}
        word = self.get_ground_truth()
        right = said.strip().strip("\"'.").lower() == word
        luck = derive_seed(self.seed, self._task.id, "luck") / 2**31  # the same for every agent that tries this box
        self._won = luck < (self.p_word if right else self.p_guess)
        text = "The box is open: the" if self._won else "The box stays locked for good. The"
        known = "was indeed" if right else "would have been"
        text += f' word of the {self._task.type} family {known} "{word}".'
        return text, float(self._won), True, {"valid": True, "won": self._won}

    def walkthrough(self) -> list[str]:
        return [f"say {self.get_ground_truth()}"]

    def admissible(self) -> list[str]:
        return [f"say {self.word(family)}" for family in FAMILIES[: self.families]]

    def describe(self) -> dict[str, Any]:
        words = [self.word(family) for family in FAMILIES[: self.families]]
        return {"dataset": "toy", "sha256": content_id(words, self.boxes_per_family, self.p_word, self.p_guess)}

    def get_ground_truth(self) -> str:
        return self.word(self._task.type)

    def evaluate(self, prediction: str | None) -> bool:
        return self._won
