"""Lessons from several attempts at one task together (`contrast`, of MaTTS). With null each is distilled alone."""

from __future__ import annotations

from dataclasses import dataclass

from core.checks import check_choice
from core.learning.attempts import Attempts
from core.learning.learner import Learner
from core.learning.transcript import fit, transcript
from core.types import Extraction
from prompts import registry

MAX_CONTENT = 900  # characters of one lesson: up to 5 sentences


@dataclass(kw_only=True)
class Contrast(Learner):
    """One call over all attempts (section 3.3). In the paper the model gets no labels and finds out what went well.

    labels      none | judge: whether each attempt is shown with its verdict
    max_items   lessons from all attempts together
    max_tokens  of all attempts together, by estimate; the longest are cut first, in the middle
    """

    labels: str = "none"
    max_items: int = 5
    max_tokens: int = 24000

    def __post_init__(self) -> None:
        check_choice(self, "contrast", "labels", ("none", "judge"))

    def parallel(self, attempts: Attempts) -> Extraction:
        """Self-contrast of attempts made side by side. Raises InfraError."""
        return self._ask(registry.MATTS_PARALLEL_CONTRAST_PROMPT, "contrast", attempts)

    def sequential(self, rounds: Attempts) -> Extraction:
        """Lessons from an attempt and the rounds of checks after it. Raises InfraError."""
        return self._ask(registry.MATTS_SEQUENTIAL_EXTRACT_PROMPT, "refinement", rounds)

    def _ask(self, template: str, purpose: str, attempts: Attempts) -> Extraction:
        texts = [transcript(trajectory) for trajectory in attempts.read()]
        labels = [verdict.label for verdict in attempts.verdicts()] if self.labels == "judge" else []
        values = {"trajectories": fit(texts, self.max_tokens), "labels": labels}
        return self.lessons(template, purpose, attempts.task, self.max_items, 0, MAX_CONTENT, **values)
