"""Remove secrets from everything a run writes: values of key variables, and texts that have the form of a key."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from core.escaping import printable
from core.secret_values import SHORTEST, of_environment, of_settings, telling

# Credentials that are recognisable by their form: one line per kind, from the providers' published formats.
#
# The kinds are those of detect-secrets' plugins (Yelp, Apache-2.0) plus newer providers. Its entropy and keyword
# plugins are left out: they mistake long integers, hexadecimal numbers and LaTeX for secrets.
#
# FORMS    certainly a credential: removed from lessons, logs and errors
# LOOSER   may also be a word ("pk-command-not-found", "Bearer instrument"): removed from logs and errors only

# The characters before and after must not continue the token.
_EDGE, _END = r"(?<![A-Za-z0-9_])", r"(?![A-Za-z0-9_])"

_BEGIN = r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"


def _token(pattern: str, end: str = _END) -> re.Pattern[str]:
    return re.compile(_EDGE + pattern + end)


FORMS: dict[str, re.Pattern[str]] = {
    # Extends to its end, the next key's beginning or the text's end; if these are far, as far as the text looks like a
    # key. Stopping at the next beginning also bounds the time on a text with many beginnings.
    "private_key": re.compile(
        rf"{_BEGIN}(?:.{{0,8000}}?(?:-----END [A-Z0-9 ]{{0,40}}-----|(?={_BEGIN})|\Z)|[A-Za-z0-9+/=\s\\]{{0,8000}})",
        re.S,
    ),
    "anthropic": _token(r"sk-ant-[A-Za-z0-9_-]{20,}"),
    "openai": _token(r"sk-[A-Za-z0-9_-]{20,}"),  # OpenRouter and others use the same form
    "stripe": _token(r"[rs]k_(?:live|test)_[A-Za-z0-9]{16,120}"),
    "aws_id": _token(r"(?:AKIA|ASIA|ABIA|ACCA|A3T[A-Z0-9])[A-Z0-9]{16}"),
    "google": _token(r"AIza[A-Za-z0-9_-]{30,}"),
    "google_oauth": _token(r"(?:ya29\.|GOCSPX-)[A-Za-z0-9_-]{20,200}"),
    "github": _token(r"gh[pousr]_[A-Za-z0-9]{20,}", end=""),
    "github_fine": _token(r"github_pat_[A-Za-z0-9_]{22,255}"),
    "gitlab": _token(r"gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|oas)-[A-Za-z0-9_-]{20,200}"),
    "huggingface": _token(r"(?:hf|api_org)_[A-Za-z0-9]{20,}", end=""),
    "slack": _token(r"xox[abeoprs]-[A-Za-z0-9-]{10,200}"),
    "slack_hook": re.compile(r"https://hooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9/_-]{20,120}"),
    "discord": _token(r"[MNO][A-Za-z0-9_-]{23,25}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,38}"),
    "telegram": _token(r"\d{8,10}:[A-Za-z0-9_-]{35}"),
    "twilio": _token(r"(?:AC|SK)[a-f0-9]{32}"),
    "sendgrid": _token(r"SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}"),
    "mailchimp": _token(r"[a-f0-9]{32}-us\d{1,2}"),
    "square": _token(r"sq0(?:atp|csp)-[A-Za-z0-9_-]{22,43}"),
    "npm": _token(r"npm_[A-Za-z0-9]{36}"),
    "pypi": _token(r"pypi-AgE[A-Za-z0-9_-]{50,400}"),
    "digitalocean": _token(r"do[opr]_v1_[a-f0-9]{64}"),
    "databricks": _token(r"dapi[a-f0-9]{32}(?:-\d)?"),
    "replicate": _token(r"r8_[A-Za-z0-9]{37}"),
    "groq": _token(r"gsk_[A-Za-z0-9]{20,}", end=""),
    "wandb": re.compile(r"(?<=WANDB_API_KEY=)[a-f0-9]{40}"),
    "azure_storage": re.compile(r"AccountKey=[A-Za-z0-9+/]{80,100}={0,2}"),
    "jwt": _token(r"eyJ[A-Za-z0-9_-]{8,2000}\.eyJ[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{0,1000}"),
    "basic_auth": re.compile(r"(?<=://)[^\s/:@]+:[^\s/@]+(?=@)"),
    "bearer": re.compile(r"(?i)\b(?:bearer|authorization\W{1,6}basic)\s+[a-z0-9._~+/-]{16,2000}=*"),
}
# What a text must hold for a form to be looked for in it: most texts hold none of these, and are long.
HINTS: dict[str, tuple[str, ...]] = {
    "private_key": ("PRIVATE KEY",),
    "anthropic": ("sk-ant-",),
    "openai": ("sk-",),
    "stripe": ("k_live_", "k_test_"),
    "aws_id": ("AKIA", "ASIA", "ABIA", "ACCA", "A3T"),
    "google": ("AIza",),
    "google_oauth": ("ya29.", "GOCSPX-"),
    "github": ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
    "github_fine": ("github_pat_",),
    "gitlab": tuple(f"gl{kind}-" for kind in "pat dt rt cbt ptt ft imt agent oas".split()),
    "huggingface": ("hf_", "api_org_"),
    "slack": ("xox",),
    "slack_hook": ("hooks.slack.com",),
    "discord": (".",),
    "telegram": (":",),
    "twilio": ("AC", "SK"),
    "sendgrid": ("SG.",),
    "mailchimp": ("-us",),
    "square": ("sq0",),
    "npm": ("npm_",),
    "pypi": ("pypi-AgE",),
    "digitalocean": ("_v1_",),
    "databricks": ("dapi",),
    "replicate": ("r8_",),
    "groq": ("gsk_",),
    "wandb": ("WANDB_API_KEY=",),
    "azure_storage": ("AccountKey=",),
    "jwt": ("eyJ",),
    "basic_auth": ("://",),
}
LOOSER: dict[str, re.Pattern[str]] = {
    "key": _token(r"[prs]k-[A-Za-z0-9_-]{16,}"),
    "header": re.compile(r"(?<=Bearer )[A-Za-z0-9._~+/-]{8,}"),
    "in_url": re.compile(
        r"(?i)(?<=[?&])(?:[a-z0-9]{1,20}[_.-])?(?:api_?key|token|secret|password|passwd|pwd)=(?=[^\s&#]*\d)[^\s&#\"'<>)\]]{6,}"
    ),
}


_HINTED = [(kind, form, HINTS.get(kind, ("",))) for kind, form in FORMS.items()]  # "" is in every text


def forms_in(text: str) -> Iterator[tuple[str, re.Pattern[str]]]:
    """(kind, pattern) of the FORMS that the text may hold."""
    for kind, form, hints in _HINTED:
        for hint in hints:
            if hint in text:
                yield kind, form
                break


HIDDEN = "[REDACTED]"
_SHORTEST_FORM = 15  # characters; of those without "://", see FORMS
_SHORT = 100  # characters of a text that is often the same


class Redactor:
    """A callable that removes secrets from a text.

    environment   what of it is secret: core/secret_values.py
    key_names     further variables that hold secrets
    settings      nested data, such as a configuration, that may hold secrets as well
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        key_names: AbstractSet[str] = frozenset(),
        settings: Any = None,
    ) -> None:
        values = of_environment(environment) | of_settings(settings)
        values |= {value for name in key_names if telling(value := environment.get(name, "").strip())}
        self._values = sorted({form for v in values for form in _forms(v)}, key=lambda v: (-len(v), v))
        self._certain_of_short = lru_cache(maxsize=4096)(self._certain)  # records repeat most of these

    def values(self, text: str) -> str:
        """Remove the known values only: for what a run continues from, which must stay as it was."""
        if len(text) < SHORTEST:
            return text
        for value in self._values:
            if value in text:
                text = text.replace(value, HIDDEN)
        return text

    def certain(self, text: str) -> str:
        """Remove the known values and what certainly is a credential by its form (FORMS): for what models wrote."""
        return self._certain_of_short(text) if len(text) <= _SHORT else self._certain(text)

    def _certain(self, text: str) -> str:
        text = self.values(text)
        if len(text) < _SHORTEST_FORM and "://" not in text:
            return text
        for _, form in forms_in(text):
            text = form.sub(HIDDEN, text)
        return text

    def __call__(self, text: str) -> str:
        """Remove the known values and everything that has the form of a key: for logs and errors."""
        text = self.values(text)
        for form in LOOSER.values():
            text = form.sub(HIDDEN, text)
        return self.certain(text)


def _forms(value: str) -> tuple[str, ...]:
    """The spellings of a value in a text: unchanged, escaped for JSON (models and servers quote it), URLs and HTML."""
    import html  # slow, and needed only where there is a secret

    # A variable may hold bytes that are not valid text.
    in_url = [quote(value, safe=safe, errors="surrogateescape") for safe in ("", "/", "!'()*")]
    in_url += [in_url[0].replace("%20", "+")]
    in_url += [re.sub("%..", lambda code: code[0].lower(), text) for text in in_url]
    as_json = [json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]]
    as_json += [re.sub(r"\\u....", lambda code: code[0].upper().replace("U", "u", 1), as_json[0])]
    as_json += [text.replace("/", "\\/") for text in as_json]
    as_json += [re.sub("[<>&]", lambda sign: f"\\u{ord(sign[0]):04x}", text) for text in as_json[:2]]  # as Go does
    as_json += [json.dumps(text)[1:-1] for text in as_json]  # JSON within JSON
    in_html = [html.escape(value), html.escape(value).replace("&quot;", "&#34;").replace("&#x27;", "&#39;")]
    return value, *as_json, *in_url, *in_html


_used: list[Redactor] = []


def use(redact: Redactor) -> None:
    """Let `current` be this redactor, which knows more than this process's environment and command line."""
    _used[:] = [redact]


def current() -> Redactor:
    """The redactor of this process: for what it prints, and for what a provider's replies repeat."""
    return _used[0] if _used else _of_process(frozenset(os.environ.items()), tuple(sys.argv[1:]))


@lru_cache(maxsize=1)
def _of_process(environment: AbstractSet[tuple[str, str]], words: tuple[str, ...]) -> Redactor:
    return Redactor(dict(environment), settings=words)


def shown(text: str) -> str:
    """The text as it may be printed: without secrets, and with nothing that a terminal obeys."""
    return printable(current().certain(text))


class RedactingFilter(logging.Filter):
    """A filter for a logging handler: redacts the message and its traceback, and makes them printable."""

    def __init__(self, redact: Redactor) -> None:
        super().__init__()
        self._redact = redact

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = printable(self._redact(record.getMessage())), None
        if record.exc_info:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
            record.exc_info = None  # some handlers would format it again from exc_info
        if record.exc_text:  # formatted here, or by another handler's filter, which knows other secrets
            record.exc_text = printable(self._redact(record.exc_text))
        return True
