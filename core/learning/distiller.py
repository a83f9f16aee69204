"""Extraction: lessons from one judged attempt, with one prompt for successes and another for failures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from core.learning.schemas import lessons_schema
from core.learning.structured import parse_lessons
from core.learning.transcript import transcript
from core.models.base import Role
from core.seeding import derive_seed
from core.types import Extraction, Scored, Task, Trajectory, Verdict
from prompts import registry


class Distills(Protocol):
    """Makes lessons from one attempt: the paper's Distiller, or a baseline (core/learning/baselines.py)."""

    def distil(
        self, task: Task, trajectory: Trajectory, verdict: Verdict, memories: list[Scored], gold: str | None
    ) -> Extraction:
        """memories: what the attempt was shown. gold: the answer, in setting=train only. Raises InfraError."""
        ...


@dataclass(kw_only=True)
class Distiller:
    """The paper's extraction (section 3.2): at most max_items lessons from one judged attempt.

    max_chars   of the trajectory in the prompt, cut in the middle
    """

    role: Role
    seed: int
    max_items: int = 3
    max_chars: int = 24000

    def distil(
        self, task: Task, trajectory: Trajectory, verdict: Verdict, memories: list[Scored], gold: str | None
    ) -> Extraction:
        """Lessons from one attempt. gold is used in the failure prompt only; outside setting=train it is None."""
        failed = verdict.label != "success"
        values = {"gold": gold} if failed else {}
        prompt = registry.render(
            registry.EXTRACT_FAILURE_PROMPT if failed else registry.EXTRACT_SUCCESS_PROMPT,
            query=task.query,
            trajectory=transcript(trajectory, self.max_chars, memories),
            max_items=self.max_items,
            structured=self.role.llm.supports_schema,
            **values,
        )
        return ask_for_lessons(self.role, self.seed, task, trajectory.sample, "extractor", prompt, self.max_items)


def ask_for_lessons(
    role: Role,
    seed: int,
    task: Task,
    sample: int,
    purpose: str,
    prompt: str,
    max_items: int,
    max_content: int = 600,
) -> Extraction:
    """One call whose reply is read as lessons. purpose: a name for the call, which its seed depends on."""
    reply = role.chat(
        [{"role": "user", "content": prompt}],
        task=task.id,
        sample=sample,
        seed=derive_seed(seed, task.id, sample, purpose),
        schema=lessons_schema(max_items, max_content),
    )
    cut_off = reply.finish_reason == "length"
    lessons, dropped = parse_lessons(reply.text, max_items, truncated=cut_off)
    return Extraction(lessons=tuple(lessons), n_dropped=dropped, n_truncated=int(cut_off), usage=reply.usage)
