"""The paper's baselines. They differ in what is stored of an attempt; retrieval and storage are those of the bank."""

from __future__ import annotations

from dataclasses import dataclass

from core.learning.learner import Learner
from core.learning.transcript import cut, transcript
from core.types import Extraction, Lesson, Scored, Task, Trajectory, Verdict
from prompts import registry

MAX_WORKFLOW = 900  # characters of one workflow


@dataclass(kw_only=True)
class Synapse:
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
class WorkflowInducer(Learner):
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
        return self.lessons(template, "workflows", task, self.max_items, trajectory.sample, MAX_WORKFLOW, **values)
