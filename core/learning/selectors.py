"""Which of several attempts is the answer (`select=`). None of these knows the truth."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from core.learning.attempts import Attempts
from core.learning.schemas import object_schema, text_schema
from core.learning.structured import parse_json
from core.learning.transcript import fit, transcript
from core.models.base import Role
from core.seeding import derive_seed
from core.types import Selection
from prompts import registry


class Selector(Protocol):
    """Names the attempt that is the answer. `uses_judge`: attempts are judged for it, even where nothing is learned."""

    uses_judge: ClassVar[bool]

    def pick(self, attempts: Attempts) -> Selection:
        """An index into attempts, of which none is broken. Raises InfraError."""
        ...


@dataclass(kw_only=True)
class First:
    """select=first: the first attempt that did not break. What a single attempt would have given."""

    uses_judge: ClassVar[bool] = False

    def pick(self, attempts: Attempts) -> Selection:
        return Selection(index=0, by="first")


@dataclass(kw_only=True)
class Judged(First):
    """select=judge: the first attempt that the judge called a success, else the first."""

    uses_judge: ClassVar[bool] = True

    def pick(self, attempts: Attempts) -> Selection:
        labels = [verdict.label for verdict in attempts.verdicts()]
        return Selection(index=labels.index("success") if "success" in labels else 0, by="judge")


@dataclass(kw_only=True)
class Majority(First):
    """select=majority: the answer that most attempts gave (self-consistency, Wang et al. 2023), the earlier of equals.

    Answers count as equal when they are equal but for case and blanks; without any answer (multi turn) the first.
    """

    def pick(self, attempts: Attempts) -> Selection:
        answers = [" ".join((attempt.answer or "").lower().split()) for attempt in attempts.trajectories]
        votes = Counter(answer for answer in answers if answer)
        if not votes:
            return Selection(index=0, by="majority", reason="no attempt gave an answer")
        answer, count = votes.most_common(1)[0]  # of equals the first that was counted
        return Selection(index=answers.index(answer), by="majority", reason=f"{count} of {len(attempts)}")


SCHEMA = object_schema({"analysis": text_schema(600), "index": {"type": "integer", "minimum": 1}})


@dataclass(kw_only=True)
class BestOfN(First):
    """select=bon, the paper's: a model reads all attempts and names the best (section 3.3 and appendix A).

    max_tokens  of all attempts together, by estimate; the middle of the longest goes first
    """

    role: Role
    seed: int
    max_tokens: int = 24000

    def pick(self, attempts: Attempts) -> Selection:
        """A reply that cannot be read takes the first attempt, and is marked as not parsed."""
        prompt = registry.render(
            registry.SELECT_BEST_PROMPT,
            query=attempts.task.query,
            trajectories=fit([transcript(attempt) for attempt in attempts.trajectories], self.max_tokens),
            structured=self.role.llm.supports_schema,
        )
        reply = self.role.chat(
            [{"role": "user", "content": prompt}],
            task=attempts.task.id,
            seed=derive_seed(self.seed, attempts.task.id, "selector"),
            schema=SCHEMA,
        )
        said = parse_json(reply.text, "index") or {}
        number = _number(said.get("index"))
        readable = number is not None and 1 <= number <= len(attempts)
        return Selection(
            index=number - 1 if readable else 0,
            by="bon",
            reason=str(said.get("analysis", "")) or reply.text.strip(),
            parsed=readable,
            truncated=reply.finish_reason == "length",
            usage=reply.usage,
        )


def _number(value: Any) -> int | None:
    """2 from 2, "2" or [2], as models write it."""
    if isinstance(value, list):
        value = value[0] if value else None
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    text = str(value).strip()
    return int(text) if text.isdecimal() and len(text) < 9 else None
