"""Evaluation (`judge=`): whether an attempt is taken for a success."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from core.learning.learner import Learner
from core.learning.schemas import THOUGHTS, object_schema, text_schema
from core.learning.structured import parse_json, parse_status
from core.learning.transcript import cut, transcript
from core.types import Task, Trajectory, Verdict
from prompts import registry

JUDGE_SCHEMA = object_schema(
    {"thoughts": text_schema(2 * THOUGHTS), "status": {"type": "string", "enum": ["success", "failure"]}}
)


class Judge(Protocol):
    """Labels one attempt. `uses_gold`: it knows the answer, and is refused in a setting that must not."""

    uses_gold: bool

    def judge(self, task: Task, trajectory: Trajectory) -> Verdict:
        """The verdict on an attempt. Raises InfraError when a model breaks; the attempt then has no label."""
        ...


@dataclass(kw_only=True)
class LLMJudge(Learner):
    """judge=llm, as in the paper (section 3.2): a model at temperature 0 reads the attempt, not the reference answer.

    max_chars   of the trajectory in the prompt, cut in the middle
    """

    max_chars: int = 24000
    uses_gold: bool = field(default=False, init=False)

    def judge(self, task: Task, trajectory: Trajectory) -> Verdict:
        """success or failure. A reply that cannot be read counts as failure and is marked as not parsed."""
        last = trajectory.steps[-1] if trajectory.steps else None
        state = last.observation_without_hint if last else ""
        values = {
            "trajectory": transcript(trajectory, self.max_chars),
            "final_state": cut(state, self.max_chars // 4) or "(no further state)",
            "answer": cut(trajectory.answer or (last.action if last else ""), self.max_chars // 4) or "(none)",
        }
        reply = self.ask(registry.JUDGE_PROMPT, "judge", task, JUDGE_SCHEMA, trajectory.sample, **values)
        label, thoughts = parse_status(reply.text), parse_json(reply.text, "thoughts")
        return Verdict(
            label=label or "failure",
            source="llm",
            reason=str(thoughts["thoughts"]) if thoughts else reply.text.strip(),
            parsed=label is not None,
            truncated=reply.finish_reason == "length",
            usage=reply.usage,
        )


@dataclass(kw_only=True)
class OracleJudge:
    """judge=oracle: the env's own evaluation, where the setting allows it."""

    uses_gold: bool = field(default=True, init=False)

    def judge(self, task: Task, trajectory: Trajectory) -> Verdict:
        """The truth, with confidence 1."""
        return Verdict(label="success" if trajectory.success else "failure", source="oracle", confidence=1.0)
