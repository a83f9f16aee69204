"""Extraction: make lessons from attempts, by the paper's prompts, by the baselines, and by comparing attempts."""

from __future__ import annotations

import re
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Protocol

from core.errors import UserError, check_choice
from core.learning.attempts import Attempts
from core.learning.learner import MAX_QUERY, Extractor
from core.learning.transcript import cut, fit, transcript
from core.types import Extraction, Lesson, Scored, Task, Trajectory, Verdict
from prompts import registry

# Maximum characters of a lesson's content where CONTENT_CHARS is too low.
STEPS_CHARS = 1500  # with style=steps: 8 sentences
WORKFLOW_CHARS = 900
CONTRAST_CHARS = 900  # up to 5 sentences
QUOTE_WORDS = 6  # with style=quote: consecutive words that count as a quote


class Distills(Protocol):
    """Makes lessons from one attempt: the paper's Distiller, or a baseline.

    max_items   maximum lessons from one attempt
    max_chars   maximum characters that it reads or stores of an attempt; longer ones are cut in the middle
    least_attempts   a task with fewer attempts teaches nothing
    """

    max_items: int
    max_chars: int
    least_attempts: int = 1

    @abstractmethod
    def distil(
        self, task: Task, trajectory: Trajectory, verdict: Verdict, memories: list[Scored], gold: str | None
    ) -> Extraction:
        """Lessons from one attempt. Raises InfraError.

        memories   the records that the attempt was shown
        gold       the reference answer, in setting=train only; else None
        """
        ...


@dataclass(kw_only=True)
class Reads:
    """What extraction reads, or stores, of an attempt.

    observations     with what the environment answered; False: thoughts and actions only
    whole_attempts   attempts are not cut: overrides max_chars and max_tokens
    """

    observations: bool = True
    whole_attempts: bool = False

    def text_of(self, trajectory: Trajectory, max_chars: int | None = None, *, thoughts: bool = True) -> str:
        """The attempt as text, cut to max_chars; None: not cut. thoughts: as in `transcript`."""
        most = None if self.whole_attempts else max_chars
        return transcript(trajectory, most, thoughts=thoughts, observations=self.observations)


@dataclass(kw_only=True)
class NoLessons(Distills):
    """Makes no lessons: attempts are judged and nothing else (scripts/judges.py)."""

    max_items: int = 0
    max_chars: int = 0
    least_attempts: int = 1

    def distil(
        self, task: Task, trajectory: Trajectory, verdict: Verdict, memories: list[Scored], gold: str | None
    ) -> Extraction:
        return Extraction()


@dataclass(kw_only=True)
class Distiller(Extractor, Reads, Distills):
    """The paper's extraction (section 3.2): at most max_items lessons from one judged attempt.

    max_chars   maximum characters of the trajectory in the prompt; longer ones are cut in the middle
    style       paper: sentences, as in the paper | steps: a lesson's content is 3 to 8 numbered steps | quote: a lesson
                is a rule in the environment's own words; lessons that quote no observation are dropped
    rule_exception   lessons may keep, literally, a rule that the environment itself stated
    judge_thoughts   the model judge's reasons follow the trajectory
    """

    max_items: int = 3
    max_chars: int = 24000
    style: str = "paper"
    rule_exception: bool = True
    judge_thoughts: bool = False

    def __post_init__(self) -> None:
        check_choice(self, "distiller", "style", ("paper", *registry.STYLES))
        if self.style in registry.STYLES and not self.rule_exception:
            raise UserError(f"distiller.style={self.style} keeps stated rules: it needs details.rule_exception=true.")
        if self.style == registry.QUOTE and (self.raw_replies or not self.observations):
            raise UserError(
                "distiller.style=quote needs observations, and lessons that are read: give details.observations=true "
                "and details.raw_replies=false."
            )

    def distil(
        self, task: Task, trajectory: Trajectory, verdict: Verdict, memories: list[Scored], gold: str | None
    ) -> Extraction:
        """Lessons from one attempt. gold is used in the failure prompt only; outside setting=train it is None."""
        failed = verdict.label != "success"
        template = registry.EXTRACT_FAILURE_PROMPT if failed else registry.EXTRACT_SUCCESS_PROMPT
        text = self.text_of(trajectory, self.max_chars)
        if self.judge_thoughts and verdict.source == "llm" and verdict.reason:
            text += f"\n\nWhy the attempt was called a {verdict.label}:\n{verdict.reason}"
        values: dict[str, Any] = {"trajectory": text} | ({"gold": gold} if failed else {})
        if self.style in registry.STYLES:
            template = f"{self.style}/{template}"
        if self.style == registry.STEPS:
            values |= {"max_content": STEPS_CHARS}
        values |= {"variant": variant_for(self.rule_exception)}
        made = self.lessons(template, "extractor", task, self.max_items, trajectory.sample, **values)
        return made if self.style != registry.QUOTE else only_quotes(made, trajectory)


def variant_for(rule_exception: bool) -> str | None:
    """The variant of the prompts of extraction (`Prompts.render`)."""
    return None if rule_exception else registry.NO_RULE_EXCEPTION


def only_quotes(made: Extraction, trajectory: Trajectory) -> Extraction:
    """Drop the lessons whose content quotes no observation (QUOTE_WORDS consecutive words).

    The steps whose observations are quoted are the evidence.
    """
    observed = [_word_runs(step.observation_without_hint) for step in trajectory.steps]
    quoted = [
        [number for number, runs in enumerate(observed, 1) if not runs.isdisjoint(_word_runs(lesson.content))]
        for lesson in made.lessons
    ]
    kept = tuple(lesson for lesson, steps in zip(made.lessons, quoted, strict=True) if steps)
    evidence = tuple(sorted({number for steps in quoted for number in steps}))
    return replace(made, lessons=kept, evidence=evidence, n_dropped=made.n_dropped + len(made.lessons) - len(kept))


def _word_runs(text: str) -> set[tuple[str, ...]]:
    """All runs of QUOTE_WORDS consecutive words, in lower case."""
    words = tuple(re.findall(r"\w+", text.lower()))
    return {words[place : place + QUOTE_WORDS] for place in range(len(words) - QUOTE_WORDS + 1)}


# The paper's baselines. They differ in what is stored from an attempt; retrieval and storage are the bank's.


@dataclass(kw_only=True)
class Synapse(Reads, Distills):
    """memory=synapse: whole attempts as exemplars (Zheng et al. 2024). Calls no model.

    failures    also store attempts judged failed, as in the paper's figure 7
    max_items   0 stores nothing; an attempt is one item
    max_chars   maximum characters of the stored attempt, cut in the middle; keep it below the agent's
                max_memory_chars, or it would never be shown (details.whole_attempts lifts both)
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
        text = self.text_of(trajectory, self.max_chars, thoughts=False)
        whole = text == self.text_of(trajectory, thoughts=False)
        item = Lesson(title=f"{kind} attempt at an earlier task", description=cut(task.query, MAX_QUERY), content=text)
        return Extraction(lessons=(item,), evidence=tuple(range(1, len(trajectory.steps) + 1)) if whole else None)


@dataclass(kw_only=True)
class WorkflowInducer(Extractor, Reads, Distills):
    """memory=awm: reusable workflows induced from successes (Agent Workflow Memory, Wang et al. 2024).

    failures    also induce from attempts judged failed, as in the paper's figure 7
    max_items   maximum workflows from one attempt
    max_chars   maximum characters of the attempt in the prompt; longer ones are cut in the middle
    workflows_temperature   of its calls; None: the role's
    workflows_example       the prompt has a worked example
    """

    failures: bool = False
    max_items: int = 3
    max_chars: int = 24000
    workflows_temperature: float | None = None
    workflows_example: bool = False

    def distil(
        self, task: Task, trajectory: Trajectory, verdict: Verdict, memories: list[Scored], gold: str | None
    ) -> Extraction:
        """Workflows from one attempt. gold is not used. Raises InfraError."""
        if verdict.label != "success" and not self.failures:
            return Extraction()
        template = registry.INDUCE_WORKFLOWS_PROMPT
        values = {
            "trajectory": self.text_of(trajectory, self.max_chars),
            "variant": registry.WORKFLOWS_EXAMPLE if self.workflows_example else None,
            "temperature": self.workflows_temperature,
        }
        return self.lessons(template, "workflows", task, self.max_items, trajectory.sample, WORKFLOW_CHARS, **values)


@dataclass(kw_only=True)
class Contrast(Extractor, Reads):
    """Lessons from several attempts at a task, by one call over all of them (section 3.3; `contrast=` of MaTTS).

    In the paper the model gets no labels and has to find out what went well. With contrast=null each attempt is
    distilled by itself.

    labels      none | judge: whether each attempt is shown with its verdict
    max_items   maximum lessons from all attempts together
    max_tokens  maximum estimated tokens of all attempts together; the longest are cut first, in the middle
    rule_exception         as in Distiller
    contrast_temperature   of its calls; None: the role's
    notes       what the model says of the comparison is kept with the lessons (`notes` in the record's provenance)
    """

    labels: str = "none"
    max_items: int = 5
    max_tokens: int = 24000
    rule_exception: bool = True
    contrast_temperature: float | None = None
    notes: bool = False

    def __post_init__(self) -> None:
        check_choice(self, "contrast", "labels", ("none", "judge"))

    def parallel(self, attempts: Attempts) -> Extraction:
        """Lessons from contrasting parallel attempts (self-contrast). Raises InfraError."""
        return self._ask(registry.MATTS_PARALLEL_CONTRAST_PROMPT, "contrast", attempts)

    def sequential(self, rounds: Attempts) -> Extraction:
        """Lessons from an attempt and its refinement rounds. Raises InfraError."""
        return self._ask(registry.MATTS_SEQUENTIAL_EXTRACT_PROMPT, "refinement", rounds)

    def _ask(self, template: str, purpose: str, attempts: Attempts) -> Extraction:
        texts = [self.text_of(trajectory) for trajectory in attempts.read()]
        labels = [verdict.label for verdict in attempts.verdicts()] if self.labels == "judge" else []
        values = {
            "trajectories": texts if self.whole_attempts else fit(texts, self.max_tokens),
            "labels": labels,
            "variant": variant_for(self.rule_exception),
            "temperature": self.contrast_temperature,
            "keep_notes": self.notes,
        }
        return self.lessons(template, purpose, attempts.task, self.max_items, 0, CONTRAST_CHARS, **values)
