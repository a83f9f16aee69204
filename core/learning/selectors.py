"""Selectors (`select=`): choose which of several attempts is the task's answer. None knows the true outcome."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from core.learning.attempts import Attempts, plain_answers
from core.learning.learner import Learner
from core.learning.structured import THOUGHT_CHARS, object_schema, parse_json, text_schema
from core.learning.transcript import fit, transcript
from core.reply_marks import plain_reply
from core.types import Selection
from prompts import registry


class Selector(Protocol):
    """Picks one attempt. `uses_judge`: it reads verdicts, so attempts are judged even if the run does not learn."""

    uses_judge: ClassVar[bool] = False

    @abstractmethod
    def pick(self, attempts: Attempts) -> Selection:
        """Select one of the attempts, none of which is broken. Raises InfraError."""
        ...


@dataclass(kw_only=True)
class First(Selector):
    """select=first: the first attempt, as if there were no others."""

    def pick(self, attempts: Attempts) -> Selection:
        return Selection(index=0, by="first")


@dataclass(kw_only=True)
class Judged(Selector):
    """select=judge: the first attempt that the judge labelled success, else the first."""

    uses_judge: ClassVar[bool] = True

    def pick(self, attempts: Attempts) -> Selection:
        labels = [verdict.label for verdict in attempts.verdicts()]
        return Selection(index=labels.index("success") if "success" in labels else 0, by="judge")


@dataclass(kw_only=True)
class Majority(Selector):
    """select=majority: the most frequent answer (self-consistency, Wang et al. 2023); of a tie the earliest.

    Answers are compared in one notation (`plain_answer`): `(1,2)` and `$(1, 2)$` are equal. If no attempt has an answer
    (multi-turn), the first attempt is picked.
    """

    def pick(self, attempts: Attempts) -> Selection:
        answers = plain_answers(attempts.trajectories)
        votes = Counter(answer for answer in answers if answer)
        if not votes:
            return Selection(index=0, by="majority", reason="no attempt gave an answer")
        answer, count = votes.most_common(1)[0]  # of a tie the earliest
        return Selection(index=answers.index(answer), by="majority", reason=f"{count} of {len(attempts)}")


SCHEMA = object_schema({"analysis": text_schema(THOUGHT_CHARS), "index": {"type": "integer", "minimum": 1}})


@dataclass(kw_only=True)
class BestOfN(Learner, Selector):
    """select=bon, as in the paper (section 3.3 and appendix A): a model reads all attempts and names the best.

    max_tokens  maximum estimated tokens of all attempts together; the longest are cut first, in the middle
    """

    max_tokens: int = 24000

    def pick(self, attempts: Attempts) -> Selection:
        """The attempt that the model names; the first, marked as not parsed, if its reply is unreadable."""
        texts = fit([transcript(attempt) for attempt in attempts.read()], self.max_tokens)
        reply = self.ask(registry.SELECT_BEST_PROMPT, "selector", attempts.task, SCHEMA, trajectories=texts)
        answer = parse_json(reply.text, "index") or {}
        number = _number(answer.get("index"))
        readable = number is not None and 1 <= number <= len(attempts)
        index = number - 1 if number is not None and readable else 0
        return Selection(
            index=index,
            by="bon",
            reason=str(answer.get("analysis", "")) or plain_reply(reply.text).strip(),
            parsed=readable,
            truncated=reply.finish_reason == "length",
            usage=reply.usage,
        )


def _number(value: Any) -> int | None:
    """2 for each of 2, 2.0, "2" and [2], all of which models write; None for anything else."""
    text = str(value[0] if isinstance(value, list) and value else value).strip().removesuffix(".0")
    return int(text) if text.isdecimal() and len(text) < 9 else None
