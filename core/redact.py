"""Keeps secrets out of everything a run writes: the values of key variables, and texts that have a key's form."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from urllib.parse import quote

HIDDEN = "[REDACTED]"
_NAMES = re.compile(r"(API_?KEY|ACCESS_?KEY|SECRET|TOKEN|PASSWORD|PASSWD|CREDENTIAL)", re.IGNORECASE)
_FORMS = re.compile(
    r"\b(?:sk|pk|rk)-(?:ant-|proj-|or-)?[A-Za-z0-9_-]{16,}|\bAIza[A-Za-z0-9_-]{30,}|\bhf_[A-Za-z0-9]{20,}"
    r"|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgsk_[A-Za-z0-9]{20,}|\bAKIA[A-Z0-9]{16}\b|(?<=Bearer )[A-Za-z0-9._~+/-]{8,}"
    r"|(?<=://)[^/\s:@\"']+:[^/\s@\"']+(?=@)"
)
_SHORTEST = 8  # a shorter value would be found in innocent text


class Redactor:
    """Call it with a text; what comes back holds no secret.

    environment   its variables named like keys are secret, and those named in `key_names`, whatever they are called
    """

    def __init__(self, environment: Mapping[str, str], key_names: set[str] = frozenset()) -> None:
        values = {v for name, v in environment.items() if _NAMES.search(name)}
        values = {v for v in values if len(v) >= _SHORTEST and not v.isalpha() and not v.startswith("/")}
        values |= {v for name in key_names if len(v := environment.get(name, "")) >= _SHORTEST // 2}
        forms = {form for v in values for form in (v, json.dumps(v)[1:-1], quote(v, safe=""))}
        self._values = sorted(forms, key=lambda v: (-len(v), v))

    def values(self, text: str) -> str:
        """Without the known values: for model text, in which the mere form of a key may be innocent."""
        for value in self._values:
            if value in text:
                text = text.replace(value, HIDDEN)
        return text

    def __call__(self, text: str) -> str:
        """Without the known values and without anything that has the form of a key."""
        return _FORMS.sub(HIDDEN, self.values(text))


class RedactingFilter(logging.Filter):
    """For a logging handler: the message and its traceback leave without secrets."""

    def __init__(self, redact: Redactor) -> None:
        super().__init__()
        self._redact = redact

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = self._redact(record.getMessage()), None
        if record.exc_info:
            record.exc_text = self._redact(logging.Formatter().formatException(record.exc_info))
        return True
