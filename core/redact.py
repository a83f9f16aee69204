"""Keeps secrets out of everything a run writes: the values of key variables, and texts that have a key's form."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from urllib.parse import quote

from core.credentials import FORMS, LOOSER

HIDDEN = "[REDACTED]"
_NAMES = re.compile(r"(API_?KEY|ACCESS_?KEY|SECRET|TOKEN|PASSWORD|PASSWD|CREDENTIAL)", re.IGNORECASE)
_SHORTEST = 8  # a shorter value would be found in innocent text
_LONGEST_WORD = 20  # letters or digits alone up to here: a placeholder (OPENAI_API_KEY=none), a word, a number


class Redactor:
    """Call it with a text; what comes back holds no secret.

    environment   its variables named like keys are secret, and those named in `key_names`, whatever they are called
    """

    def __init__(self, environment: Mapping[str, str], key_names: set[str] = frozenset()) -> None:
        values = {v for name, v in environment.items() if _NAMES.search(name) and not v.startswith("/")}
        values |= {environment.get(name, "") for name in key_names}
        forms = {form for v in values if _telling(v.strip()) for form in _forms(v.strip())}
        self._values = sorted(forms, key=lambda v: (-len(v), v))

    def values(self, text: str) -> str:
        """Without the known values: for model text, in which the mere form of a key may be innocent."""
        for value in self._values:
            if value in text:
                text = text.replace(value, HIDDEN)
        return text

    def __call__(self, text: str) -> str:
        """Without the known values and without anything that has the form of a key: for logs and errors."""
        text = self.values(text)
        for form in (*LOOSER.values(), *FORMS.values()):
            text = form.sub(HIDDEN, text)
        return text


def _telling(value: str) -> bool:
    """Whether a value is long and mixed enough to be a secret, and no placeholder like "none" or "12345678"."""
    plain = value.isalpha() or value.isdecimal()
    return len(value) >= (_LONGEST_WORD + 1 if plain else _SHORTEST)


def _forms(value: str) -> tuple[str, ...]:
    """How a text may spell the value: as it is, escaped for JSON (which models and servers quote), as in a URL."""
    in_url = quote(value, safe="", errors="surrogateescape")  # a variable may hold bytes that are no text
    return value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], in_url


class RedactingFilter(logging.Filter):
    """For a logging handler: the message and its traceback leave without secrets."""

    def __init__(self, redact: Redactor) -> None:
        super().__init__()
        self._redact = redact

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = self._redact(record.getMessage()), None
        if record.exc_info:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
            record.exc_info = None  # some handlers would word it from this again
        if record.exc_text:  # worded here, or by another handler's filter, which knows other secrets
            record.exc_text = self._redact(record.exc_text)
        return True
