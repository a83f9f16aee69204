"""Prompts that a server cut without a word: it reports far fewer tokens than the prompt can have.

Ollama does so with what is longer than its num_ctx, llama-server with --context-shift. The front is lost, and with it
the lessons. All that tells is the number of prompt tokens, which is compared with a lower bound.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from core.types import Message

LEAST_WINDOW = 32  # tokens; what reports fewer for every prompt counts nothing
FEWEST = 0.75  # of the lower bound: tokenizers that join words and signs stay above
MOST_OF_A_REST = 4  # tokens, per counted part of a text
_KEPT = 16  # prompts whose beginnings a server may have cached
# One part is at least one token to any tokenizer that splits at blanks and signs: a word of Latin letters, a number, a
# run of anything else (in a script without blanks a whole clause). A lone sign before a word may belong to it.
_LATIN = "A-Za-z\u00c0-\u024f"
_PARTS = re.compile(rf"[{_LATIN}]+(?:['’][{_LATIN}]+)*|\d+|[^\s\d{_LATIN}](?:[^\s\d{_LATIN}]+|(?![{_LATIN}]))")


def least_tokens(text: str) -> int:
    """A lower bound of a text's tokens for nearly every tokenizer, and far below the number for other scripts."""
    return len(_PARTS.findall(text))


@dataclass(kw_only=True)
class PromptWatch:
    """Compares the prompts sent to one model with the tokens it says it read. Thread-safe."""

    _windows: set[int] = field(default_factory=set, init=False)  # counts at which prompts were surely cut
    _sent: deque[str] = field(default_factory=lambda: deque(maxlen=_KEPT), init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def cut(self, messages: Sequence[Message], read: int) -> int:
        """The least number of tokens that the prompt had, if it was cut; else 0.

        read   the prompt tokens that the server reports, 0 if it reports none
        """
        if read < LEAST_WINDOW:
            return 0
        shown = [each["content"] for each in messages if each["role"] != "assistant"]  # whose thoughts may be left out
        text = "\n".join(shown)
        least = least_tokens(text)
        with self._lock:
            known = self._is_cut(text, least, read)
            self._sent.append(text)
        return max(least, read) if known else 0

    def _is_cut(self, text: str, least: int, read: int) -> bool:
        if read >= FEWEST * least or (read not in self._windows and self._may_be_the_rest(text, read)):
            return False
        self._windows.add(read)
        return True

    def _may_be_the_rest(self, text: str, read: int) -> bool:
        """Whether the count may be that of the prompt's end alone, from a server that leaves out what it had cached."""
        ends = (text[_common(text, other) :] for other in self._sent if text[:50] == other[:50])
        return any(read <= MOST_OF_A_REST * least_tokens(end) for end in ends)


def _common(one: str, other: str) -> int:
    """The length of two texts' common beginning."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle - 1)
    return low
