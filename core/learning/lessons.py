"""Extraction: what is learned from attempts, by the paper's prompts, by the baselines, and by comparing attempts."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Protocol

from core.errors import check_choice
from core.learning.attempts import Attempts
from core.learning.learner import Learner
from core.learning.transcript import cut, fit, transcript
from core.types import Extraction, Lesson, Scored, Task, Trajectory, Verdict
from prompts import registry

# Characters of a lesson's content, where CONTENT_CHARS are too few.
STEPS_CHARS = 1500  # with style=steps: 8 sentences
WORKFLOW_CHARS = 900
CONTRAST_CHARS = 900  # up to 5 sentences
QUOTE_WORDS = 6  # words in a row that make a quote, with style=quote


class Distills(Protocol):
    """Makes lessons from one attempt: the paper's Distiller, or a baseline.

    max_items   lessons from one attempt
    max_chars   of the attempt that it reads or stores, cut in the middle
    """

    max_items: int
    max_chars: int

    def distil(
        self, task: Task, trajectory: Trajectory, verdict: Verdict, memories: list[Scored], gold: str | None
    ) -> Extraction:
        """memories: what the attempt was shown. gold: the answer, in setting=train only. Raises InfraError."""
        ...


@dataclass(kw_only=True)
class Distiller(Learner, Distills):
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
            values |= {"max_content": STEPS_CHARS}
        made = self.lessons(template, "extractor", task, self.max_items, trajectory.sample, **values)
        return made if self.style != registry.QUOTE else only_quotes(made, trajectory)


def only_quotes(made: Extraction, trajectory: Trajectory) -> Extraction:
    """Without the lessons whose content quotes no observation (QUOTE_WORDS words in a row); they count as dropped."""
    observed = {run for step in trajectory.steps for run in _word_runs(step.observation_without_hint)}
    kept = tuple(lesson for lesson in made.lessons if observed.intersection(_word_runs(lesson.content)))
    return replace(made, lessons=kept, n_dropped=made.n_dropped + len(made.lessons) - len(kept))


def _word_runs(text: str) -> set[tuple[str, ...]]:
    """Every QUOTE_WORDS words in a row."""
    words = tuple(re.findall(r"\w+", text.lower()))
    return {words[place : place + QUOTE_WORDS] for place in range(len(words) - QUOTE_WORDS + 1)}


# The paper's baselines. They differ in what is stored of an attempt; retrieval and storage are those of the bank.


@dataclass(kw_only=True)
class Synapse(Distills):
    """memory=synapse: whole attempts as exemplars (Zheng et al. 2024). No model is asked.

    failures    also store attempts judged failed, as in the paper's figure 7
    max_items   0 stores nothing; an attempt is one item
    max_chars   of the stored attempt, cut in the middle; more than the agent's max_memory_chars would never be shown
    """

    failures: bool = False
    max_items: int = 1
    max_chars: int = 4500

    def distil(
        self, task: Task, trajectory: Trajectory, verdict: Verdict, memories: list[Scored], gold: str | None
    ) -> Extraction:
        """The attempt itself. gold is not used."""
        if self.max_items < 1 or (verdict.label != "success" and not self.failures):
            return Extraction()
        kind = "Successful" if verdict.label == "success" else "Failed"
        text = transcript(trajectory, self.max_chars)
        whole = text == transcript(trajectory)
        item = Lesson(title=f"{kind} attempt at an earlier task", description=cut(task.query, 600), content=text)
        return Extraction(lessons=(item,), evidence=tuple(range(1, len(trajectory.steps) + 1)) if whole else None)


@dataclass(kw_only=True)
class WorkflowInducer(Learner, Distills):
    """memory=awm: reusable workflows induced from successes (Agent Workflow Memory, Wang et al. 2024).

    failures    also induce from attempts judged failed, as in the paper's figure 7
    max_items   workflows from one attempt
    max_chars   of the attempt in the prompt, cut in the middle
    """

    failures: bool = False
    max_items: int = 3
    max_chars: int = 24000

    def distil(
        self, task: Task, trajectory: Trajectory, verdict: Verdict, memories: list[Scored], gold: str | None
    ) -> Extraction:
        """Workflows from one attempt. gold is not used. Raises InfraError."""
        if verdict.label != "success" and not self.failures:
            return Extraction()
        template = registry.INDUCE_WORKFLOWS_PROMPT
        values = {"trajectory": transcript(trajectory, self.max_chars)}
        return self.lessons(template, "workflows", task, self.max_items, trajectory.sample, WORKFLOW_CHARS, **values)


@dataclass(kw_only=True)
class Contrast(Learner):
    """Lessons from several attempts at a task, by one call over all of them (section 3.3; `contrast=` of MaTTS).

    In the paper the model gets no labels and finds out what went well. With contrast=null each attempt is distilled
    alone.

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
        return self.lessons(template, purpose, attempts.task, self.max_items, 0, CONTRAST_CHARS, **values)
