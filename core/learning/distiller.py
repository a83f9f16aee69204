"""Extraction: lessons from one judged attempt, with one prompt for successes and another for failures."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Protocol

from core.checks import check_choice
from core.learning.learner import Learner
from core.learning.transcript import transcript
from core.types import Extraction, Scored, Task, Trajectory, Verdict
from prompts import registry

MAX_STEPS = 1500  # characters of the content of a lesson with style=steps: 8 sentences
QUOTED = 6  # words in a row that make a quote, with style=quote


class Distills(Protocol):
    """Makes lessons from one attempt: the paper's Distiller, or a baseline (core/learning/baselines.py)."""

    def distil(
        self, task: Task, trajectory: Trajectory, verdict: Verdict, memories: list[Scored], gold: str | None
    ) -> Extraction:
        """memories: what the attempt was shown. gold: the answer, in setting=train only. Raises InfraError."""
        ...


@dataclass(kw_only=True)
class Distiller(Learner):
    """The paper's extraction (section 3.2): at most max_items lessons from one judged attempt.

    max_chars   of the trajectory in the prompt, cut in the middle
    style       paper: sentences, as the paper has it | steps: the content of a lesson is 3 to 8 numbered steps | quote:
                a lesson is a rule in the environment's own words; one that quotes no observation is dropped
    """

    max_items: int = 3
    max_chars: int = 24000
    style: str = "paper"

    def __post_init__(self) -> None:
        check_choice(self, "distiller", "style", ("paper", *registry.STYLES))

    def distil(
        self, task: Task, trajectory: Trajectory, verdict: Verdict, memories: list[Scored], gold: str | None
    ) -> Extraction:
        """Lessons from one attempt. gold is used in the failure prompt only; outside setting=train it is None."""
        failed = verdict.label != "success"
        template = registry.EXTRACT_FAILURE_PROMPT if failed else registry.EXTRACT_SUCCESS_PROMPT
        values = {"trajectory": transcript(trajectory, self.max_chars)} | ({"gold": gold} if failed else {})
        if self.style in registry.STYLES:
            template = f"{self.style}/{template}"
        if self.style == registry.STEPS:
            values |= {"max_content": MAX_STEPS}
        made = self.lessons(template, "extractor", task, self.max_items, trajectory.sample, **values)
        return made if self.style != registry.QUOTE else only_quotes(made, trajectory)


def only_quotes(made: Extraction, trajectory: Trajectory) -> Extraction:
    """Without the lessons whose content repeats no QUOTED words in a row of any observation; they count as dropped."""
    said = [_words(step.observation_without_hint) for step in trajectory.steps]
    known = {words[place : place + QUOTED] for words in said for place in range(len(words) - QUOTED + 1)}

    def quotes(text: str) -> bool:
        words = _words(text)
        return any(words[place : place + QUOTED] in known for place in range(len(words) - QUOTED + 1))

    kept = tuple(lesson for lesson in made.lessons if quotes(lesson.content))
    return replace(made, lessons=kept, n_dropped=made.n_dropped + len(made.lessons) - len(kept))


def _words(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\w+", text.lower()))
