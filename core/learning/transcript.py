"""A trajectory as text for a prompt, cut in the middle where it is too long."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from core.page import has_page, page_of, without_page
from core.reply_marks import own_turn, plain_reply
from core.tokens import cut_tokens, estimate_tokens
from core.types import Lesson, Recalled, Scored, Step, Trajectory

REPLY_ENDS = {  # by finish_reason: a reply that did not come to an end of its own
    "length": "the reply was cut off at its limit of length",
    "content_filter": "the provider's filter cut the reply off",
    "refusal": "the model declined to answer",
}
ENDS = {  # by ended_by
    "context": "the context window was full",
    "content_filter": "the provider's filter ended it",
    "budget": "its budget was used up",
    "time": "its time was over",
    "step_limit": "the limit of steps was reached",
    "stuck": "the same step was repeated without effect",
}
_STEP = re.compile(r"^Step \d+\n", re.MULTILINE)  # the heading of a step in a transcript
_ENDED = "\n\nHow it ended: "
_SHORTEST_QUOTE = 12  # characters; shorter lesson texts occur by chance


def transcript(
    trajectory: Trajectory, max_chars: int | None = None, *, thoughts: bool = True, observations: bool = True
) -> str:
    """All steps in order, cut to max_chars (None: not cut), and then how the attempt ended, if not by itself.

    thoughts       with those that a single reply has in marks
    observations   with what the environment answered

    Web pages are left out, as in the paper: a browser step has the thought, the action and the error only. A judge gets
    the last page separately (`final_state`).
    """
    steps = trajectory.steps
    if single_turn(trajectory):
        text = own_turn(steps[0].text)  # single turn: only the reply
        text = text if thoughts else plain_reply(text).strip() or text
    else:
        text = "\n".join(_step(number, step, observations) for number, step in enumerate(steps, 1))
    text = text.strip() if max_chars is None else cut(text.strip(), max_chars)
    ended = ending(trajectory)
    return f"{text}{_ENDED}{ended}.".strip() if ended else text


def ending(trajectory: Trajectory) -> str:
    """What the harness knows of an attempt's end, so that no model has to find it out; "" if it ended by itself."""
    reply = REPLY_ENDS.get(trajectory.steps[0].finish_reason) if single_turn(trajectory) else None
    known = (reply, ENDS.get(trajectory.ended_by), "no answer was stated" if trajectory.unstated else None)
    return "; ".join(filter(None, known))


def final_state(trajectory: Trajectory) -> str:
    """The last observation; in a browser, followed by the last page seen unless it has one. "" without a step."""
    if not trajectory.steps:
        return ""
    last = trajectory.steps[-1].observation_without_hint
    if has_page(last):
        return last
    seen = [*(message["content"] for message in trajectory.opening), *(step.observation for step in trajectory.steps)]
    page = next((page for text in reversed(seen) if (page := page_of(text))), "")
    return f"{last}\n\n{page}".strip() if page else last


def given_answer(trajectory: Trajectory) -> str:
    """An attempt's answer; "" if it has none, such as one found in a reply that was cut off before it stated one."""
    cut_off = any(step.finish_reason in REPLY_ENDS for step in trajectory.steps[-1:])
    return "" if trajectory.unstated and cut_off else trajectory.answer or ""


def _step(number: int, step: Step, observations: bool) -> str:
    lines = [f"Step {number}"]
    if step.thought:
        lines.append(f"Thought: {step.thought}")
    lines.append(f"Action: {step.action or '(none)'}")
    if step.finish_reason in REPLY_ENDS:
        lines.append(f"(Note: {REPLY_ENDS[step.finish_reason]}.)")
    if observations:
        lines.append(f"Observation: {without_page(step.observation_without_hint, '(a page)')}")
    return "\n".join(lines)


def steps_of(text: str) -> list[str]:
    """The steps in the text of an attempt (`transcript`), without their numbers; of one without steps its lines."""
    body = text.partition(_ENDED)[0]
    return [step.strip("\n") for step in _STEP.split(body)[1:]] or body.splitlines()


def in_order(text: str, steps: list[str]) -> str:
    """The text of an attempt with these steps, or lines, in place of its own."""
    body, *ended = text.partition(_ENDED)
    if _STEP.search(body):
        steps = [f"Step {number}\n{step}" for number, step in enumerate(steps, 1)]
    return "".join(["\n".join(steps), *ended])


def without_lessons(trajectory: Trajectory, memories: list[Scored], later: Sequence[Recalled] = ()) -> Trajectory:
    """An attempt without verbatim quotes from the lessons that it was shown; otherwise they would be learned again.

    memories   what its opening showed; later: what was shown after it

    Only the model's text and thoughts are changed. Actions and observations are kept, even if they equal a lesson's
    title; in a single turn the action, which is the whole reply, is changed too.
    """
    lessons = [item for each in (*(m.record for m in memories), *later) for item in each.items]
    if not lessons:
        return trajectory
    steps = []
    for step in trajectory.steps:
        step = replace(step, text=strip_lessons(step.text, lessons), thought=strip_lessons(step.thought, lessons))
        single = single_turn(trajectory)
        steps.append(replace(step, action=strip_lessons(step.action, lessons)) if single else step)
    return replace(trajectory, steps=tuple(steps))


def single_turn(trajectory: Trajectory) -> bool:
    return len(trajectory.steps) == 1 and not trajectory.steps[0].observation


def strip_lessons(text: str, lessons: Sequence[Lesson]) -> str:
    """The text with verbatim quotes from these lessons replaced by `[memory item]`."""
    quotes = {part.strip() for lesson in lessons for part in (lesson.content, lesson.description, lesson.title)}
    for quote in sorted(quotes, key=lambda q: (-len(q), q)):
        if len(quote) >= _SHORTEST_QUOTE:
            text = text.replace(quote, "[memory item]")
    return text


def cut(text: str, max_chars: int) -> str:
    """The text; if it is longer than max_chars, its middle is replaced by a note."""
    if len(text) <= max_chars:
        return text
    half = max_chars // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"


def fit(texts: list[str], max_tokens: int) -> list[str]:
    """The texts, cut to at most max_tokens together: the longest are cut first, in the middle."""
    sizes = [estimate_tokens(text) for text in texts]
    left, share = max_tokens, {}
    for place, number in enumerate(sorted(range(len(texts)), key=lambda n: (sizes[n], n))):
        share[number] = min(sizes[number], left // (len(texts) - place))
        left -= share[number]
    return [cut_tokens(text, share[number]) for number, text in enumerate(texts)]
