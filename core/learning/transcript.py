"""A trajectory as text for the judge and the distiller: whole where it fits, cut in the middle where not."""

from __future__ import annotations

import re

from core.types import Scored, Step, Trajectory

_SHORTEST_QUOTE = 12  # shorter lesson texts occur by chance
# About what a tokenizer makes one token of; rather too many, so that what is cut to a size fits it with every model.
_TOKEN = re.compile(r"\s?[A-Za-z]{1,6}|\s?\d{1,3}|\s?[^\sA-Za-z\d]|\s+")


def transcript(trajectory: Trajectory, max_chars: int | None = None, memories: list[Scored] = ()) -> str:
    """All steps in order; max_chars None cuts nothing.

    Retrieved lessons that the model quoted are taken out, or they would be learned again.
    """
    steps = trajectory.steps
    if len(steps) == 1 and not steps[0].observation:
        text = steps[0].text  # single turn: the reply is everything
    else:
        text = "\n".join(_step(number, step) for number, step in enumerate(steps, 1))
    text = strip_lessons(text.strip(), memories)
    return text if max_chars is None else cut(text, max_chars)


def _step(number: int, step: Step) -> str:
    lines = [f"Step {number}"]
    if step.thought:
        lines.append(f"Thought: {step.thought}")
    lines += [f"Action: {step.action or '(none)'}", f"Observation: {step.observation_without_hint}"]
    return "\n".join(lines)


def strip_lessons(text: str, memories: list[Scored]) -> str:
    """The text without verbatim passages of the lessons that were in the prompt."""
    quotes = {
        part.strip()
        for memory in memories
        for item in memory.record.items
        for part in (item.content, item.description, item.title)
    }
    for quote in sorted(quotes, key=lambda q: (-len(q), q)):
        if len(quote) >= _SHORTEST_QUOTE:
            text = text.replace(quote, "[memory item]")
    return text


def cut(text: str, max_chars: int) -> str:
    """The text with its middle left out and a note in its place, when it is longer than max_chars."""
    if len(text) <= max_chars:
        return text
    half = max_chars // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"


def fit(texts: list[str], max_tokens: int) -> list[str]:
    """The texts, cut in the middle so that together they have at most max_tokens; the longest give way first."""
    sizes = [count_tokens(text) for text in texts]
    left, share = max_tokens, {}
    for place, number in enumerate(sorted(range(len(texts)), key=lambda n: (sizes[n], n))):
        share[number] = min(sizes[number], left // (len(texts) - place))
        left -= share[number]
    return [cut_tokens(text, share[number]) for number, text in enumerate(texts)]


def count_tokens(text: str) -> int:
    """An estimate that needs no tokenizer and errs upwards."""
    return sum(1 for _ in _TOKEN.finditer(text))


def cut_tokens(text: str, max_tokens: int) -> str:
    """The text with its middle left out and a note in its place, when it has more than max_tokens."""
    if len(text) <= max_tokens:  # no token is shorter than a character
        return text
    ends = [match.end() for match in _TOKEN.finditer(text)]
    if len(ends) <= max_tokens:
        return text
    head, tail = max_tokens // 2, max_tokens - max_tokens // 2
    first = text[: ends[head - 1]] if head else ""
    return f"{first}\n[... about {len(ends) - head - tail} tokens left out ...]\n{text[ends[-tail - 1] :]}"
