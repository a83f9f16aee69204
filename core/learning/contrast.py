"""MaTTS's aggregation (`contrast`): lessons from several attempts at one task together. `contrast=null` has none."""

from __future__ import annotations

from dataclasses import dataclass

from core.errors import UserError
from core.learning.attempts import Attempts
from core.learning.distiller import ask_for_lessons
from core.learning.transcript import fit, transcript
from core.models.base import Role
from core.types import Extraction, Scored
from prompts import registry

MAX_CONTENT = 900  # characters of one item: up to 5 sentences


@dataclass(kw_only=True)
class Contrast:
    """One call over all attempts (section 3.3). The paper's gives no labels: the model finds out what went well.

    labels      none | judge: whether each attempt stands there with its verdict
    max_items   lessons of all attempts together
    max_tokens  of all attempts together, by estimate; the middle of the longest goes first
    """

    role: Role
    seed: int
    labels: str = "none"
    max_items: int = 5
    max_tokens: int = 24000

    def __post_init__(self) -> None:
        if self.labels not in ("none", "judge"):
            raise UserError(f"contrast.labels={self.labels}: choose none or judge.")

    def parallel(self, attempts: Attempts, memories: list[Scored]) -> Extraction:
        """Self-contrast of attempts made side by side. Raises InfraError."""
        return self._ask(registry.MATTS_PARALLEL_CONTRAST_PROMPT, "contrast", attempts, memories)

    def sequential(self, rounds: Attempts, memories: list[Scored]) -> Extraction:
        """What an attempt and the checks after it teach, the notes on the way included. Raises InfraError."""
        return self._ask(registry.MATTS_SEQUENTIAL_EXTRACT_PROMPT, "refinement", rounds, memories)

    def _ask(self, template: str, purpose: str, attempts: Attempts, memories: list[Scored]) -> Extraction:
        texts = [transcript(trajectory, memories=memories) for trajectory in attempts.trajectories]
        prompt = registry.render(
            template,
            query=attempts.task.query,
            trajectories=fit(texts, self.max_tokens),
            labels=[verdict.label for verdict in attempts.verdicts()] if self.labels == "judge" else [],
            max_items=self.max_items,
            structured=self.role.llm.supports_schema,
        )
        return ask_for_lessons(self.role, self.seed, attempts.task, 0, purpose, prompt, self.max_items, MAX_CONTENT)
