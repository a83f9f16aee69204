"""Evaluation and extraction: judges that label an attempt, and the distiller that turns attempts into lessons."""

from __future__ import annotations

from dataclasses import dataclass, field

from core.learning.structured import parse_json, parse_lessons, parse_status
from core.learning.transcript import cut, transcript
from core.models.base import Role
from core.seeding import derive_seed
from core.types import Extraction, Scored, Task, Trajectory, Verdict
from prompts import registry


def object_schema(properties: dict) -> dict:
    """A JSON object with just these keys, all of them required."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def text_schema(longest: int) -> dict:
    """A text of 1 to `longest` characters."""
    return {"type": "string", "minLength": 1, "maxLength": longest}


JUDGE_SCHEMA = object_schema(
    {"thoughts": text_schema(400), "status": {"type": "string", "enum": ["success", "failure"]}}
)


def lessons_schema(max_items: int, max_content: int = 600) -> dict:
    """At most max_items of {title, description, content}.

    A decoder that is held to the lengths stops in mid-sentence there: they keep a small model from running on, and must
    leave room for the sentences that the prompt asks for.
    """
    item = object_schema(
        {"title": text_schema(100), "description": text_schema(240), "content": text_schema(max_content)}
    )
    return object_schema({"items": {"type": "array", "items": item, "minItems": 1, "maxItems": max_items}})


@dataclass(kw_only=True)
class LLMJudge:
    """judge=llm, the paper's: a model reads the attempt, temperature 0, no reference answer (section 3.2).

    max_chars   of the trajectory that the judge sees; the middle goes first
    """

    role: Role
    seed: int
    max_chars: int = 24000
    uses_gold: bool = field(default=False, init=False)

    def judge(self, task: Task, trajectory: Trajectory) -> Verdict:
        """A binary label. A reply that cannot be read is a failure, and marked as not parsed."""
        last = trajectory.steps[-1] if trajectory.steps else None
        state = last.happened if last else ""
        prompt = registry.render(
            registry.JUDGE_PROMPT,
            query=task.query,
            trajectory=transcript(trajectory, self.max_chars),
            final_state=cut(state, self.max_chars // 4) or "(no further state)",
            answer=cut(trajectory.answer or (last.action if last else ""), self.max_chars // 4) or "(none)",
            structured=self.role.llm.supports_schema,
        )
        seed = derive_seed(self.seed, task.id, trajectory.sample, "judge")
        reply = self.role.chat(
            [{"role": "user", "content": prompt}],
            task=task.id,
            sample=trajectory.sample,
            seed=seed,
            schema=JUDGE_SCHEMA,
        )
        label = parse_status(reply.text)
        return Verdict(
            label=label or "failure",
            source="llm",
            reason=_thoughts(reply.text),
            parsed=label is not None,
            truncated=reply.finish_reason == "length",
            usage=reply.usage,
        )


def _thoughts(text: str) -> str:
    answer = parse_json(text, "thoughts")
    return str(answer["thoughts"]) if answer else text.strip()


@dataclass(kw_only=True)
class OracleJudge:
    """judge=oracle: the env's own evaluation. Only where the setting allows gold."""

    role: Role | None = None
    seed: int = 0
    uses_gold: bool = field(default=True, init=False)

    def judge(self, task: Task, trajectory: Trajectory) -> Verdict:
        """The truth, with confidence 1."""
        return Verdict(label="success" if trajectory.success else "failure", source="oracle", confidence=1.0)


@dataclass(kw_only=True)
class Distiller:
    """Turns one judged attempt into at most max_items lessons, by different prompts for success and failure.

    max_chars   of the trajectory that is shown; the middle goes first
    """

    role: Role
    seed: int
    max_items: int = 3
    max_chars: int = 24000

    def distil(
        self, task: Task, trajectory: Trajectory, verdict: Verdict, memories: list[Scored], gold: str | None
    ) -> Extraction:
        """Lessons from one attempt. gold is None in every setting but train, and helps the failure prompt only."""
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
    """One call that is answered by memory items."""
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
