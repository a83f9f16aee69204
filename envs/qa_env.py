"""env=gpqa_diamond|mmlu_pro, or a file of one's own: a question with 3 to 10 options, answered by a letter.

The options are shown in an order drawn by a hash of seed and id, so that no position carries the key; the order is in
the record. GPQA's authors ask to keep its questions out of plain text on the web: do not publish such run directories.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from envs.math_env import SingleTurnEnv
from single_turn_bench.choice import LETTERS, find_choice, shuffle_options
from single_turn_bench.datasets import Row


@dataclass(kw_only=True)
class ChoiceEnv(SingleTurnEnv):
    """Multiple choice, scored by the letter that the reply states last."""

    multiple_choice: ClassVar[bool] = True

    def question(self, row: Row) -> str:
        options, _, _ = self._shown(row)
        lines = [f"({letter}) {option}" for letter, option in zip(LETTERS, options, strict=False)]
        return "\n".join([row.question, "", *lines])

    def read(self, response: str) -> tuple[str | None, dict[str, Any]]:
        found = find_choice(response, len(self._row.options))
        _, _, order = self._shown(self._row)
        return found.answer, {"rule": found.rule, "stated": found.stated, "order": ",".join(map(str, order))}

    def get_ground_truth(self) -> str:
        return self._shown(self._row)[1]

    def walkthrough(self) -> list[str]:
        return [f"The answer is ({self.get_ground_truth()})."]

    def admissible(self) -> list[str]:
        return [f"The answer is ({letter})." for letter in LETTERS[: len(self._row.options)]]

    def evaluate(self, prediction: str | None) -> bool:
        return find_choice(prediction or "", len(self._row.options)).answer == self.get_ground_truth()

    def _shown(self, row: Row) -> tuple[tuple[str, ...], str, tuple[int, ...]]:
        """(options, letter of the right one, order) as this seed shows them."""
        return shuffle_options(row.options, row.answer_index, self.seed, row.id)
