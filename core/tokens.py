"""The estimate of a text's tokens, without a tokenizer, which would fit one provider only. Rather too high than low."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"[A-Za-z]{1,6}|[^\sA-Za-z]")


def estimate_tokens(text: str) -> int:
    """A word counts one token per 6 letters, rounded up; a digit, a sign and a letter of another script one each."""
    return len(_TOKEN.findall(text))


def cut_tokens(text: str, max_tokens: int) -> str:
    """The text; if it has more than max_tokens, its middle is replaced by a note."""
    if len(text) <= max_tokens:  # no token is shorter than a character
        return text
    ends = [match.end() for match in _TOKEN.finditer(text)]
    if len(ends) <= max_tokens:
        return text
    head, tail = max_tokens // 2, max_tokens - max_tokens // 2
    first = text[: ends[head - 1]] if head else ""
    return f"{first}\n[... about {len(ends) - head - tail} tokens left out ...]\n{text[ends[-tail - 1] :]}"
