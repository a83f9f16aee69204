"""Evaluation (`judge=`): judges label attempts as success or failure."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import exp
from typing import Any, ClassVar, Protocol

from core.errors import InfraError, check_numbers
from core.learning.attempts import Attempts, plain_answers
from core.learning.learner import Learner
from core.learning.structured import (
    THOUGHT_CHARS,
    object_schema,
    parse_confidence,
    parse_json,
    parse_status,
    text_schema,
)
from core.learning.transcript import cut, final_state, given_answer, single_turn, transcript
from core.reply_marks import plain_reply
from core.types import CUT_OFF, Task, Trajectory, Usage, Verdict
from prompts import registry

JUDGE_FIELDS = {
    "thoughts": text_schema(2 * THOUGHT_CHARS),
    "status": {"type": "string", "enum": ["success", "failure"]},
}
JUDGE_SCHEMA = object_schema(JUDGE_FIELDS)
CONFIDENCE_SCHEMA = object_schema(JUDGE_FIELDS | {"confidence": {"type": "number", "minimum": 0, "maximum": 1}})


class Judge(Protocol):
    """Labels attempts. A subclass implements `judge`; with compares=True also `judge_all`.

    uses_gold   True: the judge knows the answer; an error in a setting without gold labels
    compares    True: the judge needs all attempts at a task together, so `judge_all` is called instead of `judge`
    n_more      number of extra attempts that `judge_all` requests; 0: none
    """

    uses_gold: ClassVar[bool] = False
    compares: ClassVar[bool] = False
    n_more: int = 0

    @abstractmethod
    def judge(self, task: Task, trajectory: Trajectory) -> Verdict:
        """The verdict on an attempt. Raises InfraError if a model breaks; the attempt then has no label."""
        ...

    def judge_all(self, attempts: Attempts, more: Callable[[int], list[Trajectory]]) -> list[Verdict]:
        """A verdict on each attempt. more: a function (n) -> n further attempts at the task. Raises InfraError."""
        raise NotImplementedError


@dataclass(kw_only=True)
class LLMJudge(Learner, Judge):
    """judge=llm, as in the paper (section 3.2): a model at temperature 0 reads the attempt, not the reference answer.

    max_chars    maximum characters of the trajectory in the prompt; longer ones are cut in the middle
    confidence   also ask the model for the probability that its label is right; off in the paper
    """

    max_chars: int = 24000
    confidence: bool = False

    def judge(self, task: Task, trajectory: Trajectory) -> Verdict:
        """success or failure. An unreadable reply counts as failure and is marked as not parsed."""
        last = trajectory.steps[-1].action if trajectory.steps and not trajectory.unstated else ""
        answer = given_answer(trajectory) or last
        values: dict[str, Any] = {
            "trajectory": transcript(trajectory, self.max_chars),
            "final_state": cut(final_state(trajectory), self.max_chars // 4) or "(no further state)",
            "answer": cut(answer, self.max_chars // 4) or "(none)",
        }
        template = registry.JUDGE_CONFIDENCE_PROMPT if self.confidence else registry.JUDGE_PROMPT
        schema = CONFIDENCE_SCHEMA if self.confidence else JUDGE_SCHEMA
        reply = self.ask(template, "judge", task, schema, trajectory.sample, **values)
        label, thoughts = parse_status(reply.text), parse_json(reply.text, "thoughts")
        truncated = reply.finish_reason == "length"
        # In a truncated reply the last number may be cut off; without a label there is no confidence in it.
        readable = self.confidence and label is not None and not truncated
        sure = parse_confidence(reply.text) if readable else None
        return Verdict(
            label=label or "failure",
            source="llm",
            confidence=sure,
            confidence_parsed=sure is not None or not self.confidence,
            reason=str(thoughts["thoughts"]) if thoughts else plain_reply(reply.text).strip(),
            parsed=label is not None,
            truncated=truncated,
            usage=reply.usage,
        )


@dataclass(kw_only=True)
class OracleJudge(Judge):
    """judge=oracle: the env's own evaluation, if the setting allows gold labels."""

    uses_gold: ClassVar[bool] = True

    def judge(self, task: Task, trajectory: Trajectory) -> Verdict:
        """The truth, with confidence 1."""
        return Verdict(label="success" if trajectory.success else "failure", source="oracle", confidence=1.0)


@dataclass(kw_only=True)
class Consensus(Judge):
    """judge=consensus: an attempt succeeds if it has the answer that most attempts at the task agree on.

    No model judges and no truth is used (self-consistency, Wang et al. 2023). Answers are compared as in
    select=majority. No majority (all answers differ, or a tie): all fail. No verdict, and so nothing to learn, if no
    attempt has an answer (multi-turn), or if there is only one attempt.
    """

    source: ClassVar[str] = "consensus"
    compares: ClassVar[bool] = True

    def judge(self, task: Task, trajectory: Trajectory) -> Verdict:
        """No verdict: one attempt agrees with nobody."""
        return Verdict(label=None, source=self.source, reason="one answer")

    def judge_all(self, attempts: Attempts, more: Callable[[int], list[Trajectory]]) -> list[Verdict]:
        """A verdict on each attempt; its confidence is the agreed answer's share of the attempts, extra ones included.

        The first verdict bears the usage of the extra attempts. Raises InfraError if one of them broke: a vote with
        missing answers would not be reproducible.
        """
        answers = plain_answers(attempts.trajectories)
        asked = more(self.n_more) if self.n_more and any(answers) else []
        if broken := next((each for each in asked if each.ended_by == "infra_error"), None):
            kind, _, message = (broken.error or "").partition(": ")
            raise InfraError(message, kind)
        cost = sum((each.usage for each in asked), Usage())
        votes = Counter(answer for answer in answers + plain_answers(asked) if answer)
        (agreed, count), *others = votes.most_common() or [("", 0)]
        clear = count > 1 and (not others or others[0][1] < count)
        alone = len(answers) + len(asked) < 2
        reason = f"{count} of {len(answers) + len(asked)} answers agree"
        return [
            Verdict(
                label=None if alone or not votes else "success" if clear and answer == agreed else "failure",
                source=self.source,
                confidence=round(count / (len(answers) + len(asked)), 4) if clear else None,
                reason=reason if clear else "no answer has most votes",
                usage=cost if place == 0 else Usage(),
            )
            for place, answer in enumerate(answers)
        ]


@dataclass(kw_only=True)
class SelfConsistency(Consensus):
    """judge=self_consistency: the same vote, with extra attempts, so that a single attempt can be judged.

    n_more   number of extra attempts, made for the vote only
    """

    source: ClassVar[str] = "self_consistency"
    n_more: int = 4

    def __post_init__(self) -> None:
        check_numbers(self, "judge", "n_more", least=1, whole=True)


@dataclass(kw_only=True)
class HeuristicJudge(Judge):
    """judge=heuristic: by rules, without a model and without the truth (`heuristic_verdict`)."""

    def judge(self, task: Task, trajectory: Trajectory) -> Verdict:
        """The verdict by the rules; every attempt gets a label."""
        return heuristic_verdict(trajectory)


# The rules of judge=heuristic detect visible signs of failure: an error at the end, a reply that was cut off, refusals,
# repetition. They cannot detect a well-written wrong answer. docs/workflows.md has their accuracy.

BASE_LOG_ODDS = 0.2  # log-odds of success without any signal
OUTPUT_CHARS = 4000  # characters read of the last output, from its end

SPEAKER = re.compile(r"^\(\w+\) ", re.MULTILINE)  # prefix of a turn in a conversation: "(tool) 2 failed"
# The line in which a shell, a test runner or a compiler says that it failed.
FAILED = re.compile(
    r"\b[1-9]\d* (?:tests? )?failed\b|^Traceback \(most recent call last\)|\bcommand not found\b"
    r"|^(?:[\w./-]+:(?:\d+:)*[ ]*)?(?:fatal error|fatal|(?:\w+\.)*\w*(?:Error|error|ERROR))(?:\[\w+\])?:",
    re.MULTILINE,
)
EXIT_STATUS = re.compile(
    r"\b(?:exit(?:ed)?(?: with)?[ _-]?(?:status|code)|return[ _-]?code)\W{1,3}(\d{1,3})\b", re.IGNORECASE
)
REFUSED = re.compile(
    r"\s*(?:\(\w+\) )?(?:nothing happens|no known action|no action could be read|i (?:don['’]t|do not) understand"
    r"|(?:that is )?(?:an )?(?:invalid|unknown) (?:action|command))",
    re.IGNORECASE,
)


def heuristic_verdict(trajectory: Trajectory, *, exit_status: int | None = None) -> Verdict:
    """Label an attempt by its own text; reads no reward, outcome, reference answer or fact of the env.

    exit_status   of the command that was the attempt, if it was one

    The confidence is the probability of the label by the rules' weights.
    """
    seen = list(signals(trajectory, exit_status))
    p = 1 / (1 + exp(-(BASE_LOG_ODDS + sum(weight for _, weight in seen))))
    return Verdict(
        label="success" if p >= 0.5 else "failure",
        source="heuristic",
        confidence=round(max(p, 1 - p), 4),
        reason="; ".join(words for words, _ in seen) or "no sign of failure",
    )


def signals(trajectory: Trajectory, exit_status: int | None = None) -> Iterator[tuple[str, float]]:
    """(words for the verdict's reason, what it adds to the log-odds of success) for each sign of success or failure.

    Arguments as in `heuristic_verdict`.
    """
    if exit_status is not None:
        yield f"exit status {exit_status}", -3.0 if exit_status else 1.5
    # "goal" and "end" are not signals: only the env knows which of them ended the attempt.
    if trajectory.ended_by in ("step_limit", "stuck", *CUT_OFF):
        yield f"ended by {trajectory.ended_by}", -3.0
    if not trajectory.has_output:
        if exit_status is None:  # many a command says nothing when it succeeds
            yield "nothing was said", -4.0
        return
    last = trajectory.steps[-1]
    if last.finish_reason == "length":
        yield "the last reply was cut off", -2.0
    if not single_turn(trajectory):
        yield from _of_steps(trajectory)
    elif not (trajectory.answer or "").strip():
        yield "no answer", -4.0
    output = last.observation_without_hint or ("" if exit_status is None else last.text)  # a command's is its reply
    output = SPEAKER.sub("", output[-OUTPUT_CHARS:])
    if stated := EXIT_STATUS.findall(output):
        yield f"exit status {stated[-1]} in the output", -2.0 if int(stated[-1]) else 1.0
    if failed := FAILED.search(output):
        yield f"output {' '.join(failed[0].split())[:40]!r}", -2.0


def _of_steps(trajectory: Trajectory) -> Iterator[tuple[str, float]]:
    """Signals from the last action, and from refused and repeated actions."""
    steps = trajectory.steps
    refused = [not step.valid or bool(REFUSED.match(step.observation)) for step in steps]
    if not steps[-1].action.strip():
        yield "no action at the end", -2.0
    elif refused[-1]:
        yield "the last action was refused", -2.0
    else:
        yield "the last action was taken", 0.8
    if sum(refused) > 1:
        yield f"{sum(refused)} of {len(steps)} actions refused", -2 * sum(refused) / len(steps)
    done = [(step.action, step.observation) for step in steps if step.action.strip()]
    if (repeated := len(done) - len(set(done))) > 1:
        yield f"{repeated} of {len(steps)} steps repeated", -4 * repeated / len(steps)
