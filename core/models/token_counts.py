"""The token counts that a server reports, whatever their types and contradictions.

Servers disagree on whether `completion_tokens` holds the thinking and `prompt_tokens` what was cached, and some send
counts that are negative, larger than their sum, text or null. `counts_of` makes of them four numbers that are at least
0 and agree with the reported total.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

_MOST = 10**9  # a larger count is a negative one that overflowed
_NO_COUNT = -1
_NAMES = {  # OpenAI's names, and those of its Responses and of Anthropic
    "prompt": ("prompt_tokens", "input_tokens"),
    "completion": ("completion_tokens", "output_tokens"),
    "total": ("total_tokens",),
    "cached": ("prompt_tokens_details.cached_tokens", "input_tokens_details.cached_tokens", "prompt_cache_hit_tokens"),
    "reasoning": ("completion_tokens_details.reasoning_tokens", "output_tokens_details.reasoning_tokens"),
}


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Tokens of one response. All are at least 0; `cached` is a part of `prompt`, `reasoning` a part of `completion`.

    read        the most prompt tokens that the server can mean to have read, if it counts cached ones apart
    corrected   the counts as reported, if they contradicted each other or were none; else ""
    """

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    reasoning: int = 0
    read: int = 0
    corrected: str = ""


def counts_of(usage: Any, *, of_text: bool = True) -> Counts:
    """The counts in a response's `usage`: a mapping or an object, None if there is none.

    of_text   whether the response has text, which may hold tokens that only the total counts; else it is an embedding
    """
    said = {part: _reported(usage, names) for part, names in _NAMES.items()}
    prompt, completion, total, cached, reasoning = (max(0, value) for value in said.values())
    as_reported = prompt, completion, cached, reasoning
    prompt, completion = _completed(prompt, completion, cached, reasoning, total, of_text)
    whole = prompt, completion, min(cached, prompt), min(reasoning, completion)
    odd = whole != as_reported or _NO_COUNT in said.values()
    return Counts(
        **dict(zip(("prompt", "completion", "cached", "reasoning"), whole, strict=True)),
        read=prompt + cached,
        corrected=_told(said) if odd else "",
    )


def counts_of_response(response: Any) -> Counts:
    """The counts of a response in litellm's form."""
    return counts_of(getattr(response, "usage", None), of_text=bool(getattr(response, "choices", None)))


def _completed(prompt: int, completion: int, cached: int, reasoning: int, total: int, of_text: bool) -> tuple[int, int]:
    """(prompt, completion) with the tokens that are reported beside them. The total rules where there is one.

    A total below its parts is left alone: it lacks what its server does not count, and a budget must not.
    """
    beside = total - prompt - completion
    if not total:
        return prompt, completion + (reasoning if reasoning > completion else 0)  # too large to be a part of it
    if beside <= 0:
        return prompt, completion
    if not of_text:
        return prompt + beside, completion
    if not prompt and completion:  # the prompt's own count is missing
        return beside, completion
    if cached and beside != reasoning and beside in (cached, cached + reasoning):
        return prompt + cached, completion + beside - cached
    return prompt, completion + beside


def _reported(usage: Any, names: tuple[str, ...]) -> int:
    """The first positive count under these names; else 0, or `_NO_COUNT` if one of them holds something else."""
    found = [value for name in names if (value := _value(usage, name)) is not None]
    counts = [_NO_COUNT if (count := as_count(value)) is None or count < 0 else count for value in found]
    return next((count for count in counts if count > 0), min(counts, default=0))


def _told(said: dict[str, int]) -> str:
    counts = [f"{part} {'no count' if value == _NO_COUNT else value}" for part, value in said.items() if value]
    return ", ".join(counts) or "no count at all"


def _value(usage: Any, path: str) -> Any:
    for name in path.split("."):
        usage = usage.get(name) if isinstance(usage, Mapping) else getattr(usage, name, None)
    return usage


def as_count(value: Any) -> int | None:
    """The whole number that a reported count stands for, also one in a text; None if it is no number of tokens."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value) or abs(value) >= _MOST:
        return None
    return round(value)
