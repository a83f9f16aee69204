"""Remove secrets from everything a run writes: known values, and texts that have the form of a credential.

GH_PAT=zq81-Kk0p..              the value of a variable or key whose name says so
postgresql://app:PASSWORD@db    a password in a URL, whatever the variable is called
sk-.., ghp_.., password=..      a text in one of the forms of `SECRETS`, wherever it stands
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any
from urllib.parse import quote, unquote

from core.escaping import printable

_BEGIN = r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_LOCAL = r"(?:localhost|127\.0\.0\.1|\[::1\])(?![\w.-])"
_NO_VALUE = r"(?![<{$%\[(\\]|\.\.\.|x{4}|your|[a-z]+:\w+/)"  # vault:kv/name is a place
# It may hold "/" and "@" itself: it ends before the first host, and what looks like a port is none.
_PASSWORD = (
    r"(?:(?!\d{1,5}/)[^\s?#\"'`<>]{1,200}?(?=@(?:\[[0-9a-fA-F:.]+\]|[\w.-]+)(?::\d+)?(?:[/?#,;\s\"'`<>)\]}]|\Z))"
    r"|[^\s/@]+)"
)
_NAMED = r"api[_-]?key|secret(?:[_-]?key)?|access[_-]?key|passw(?:or)?d|pwd|passphrase|token|credential"


def _each(letters: str, *prefixes: str) -> Iterator[tuple[str, str]]:
    """Tokens that begin with one of the prefixes and go on with so many of the letters."""
    for prefix in prefixes:
        yield prefix, rf"(?<![A-Za-z0-9_]){re.escape(prefix)}{letters}"


# The forms of credentials, as their providers publish them: (what a text must hold, the expression of the form). The
# kinds are those of detect-secrets' plugins (Yelp, Apache-2.0) and newer providers'. Nothing is taken for a secret
# because it looks random: long integers, hashes and LaTeX do so as well.
Forms = tuple[tuple[str, str], ...]
# Each of the first has a long word (`_LONG`) in it, which holds its literal: most texts have none, so no form is tried.
_IN_LONG_WORDS: Forms = (
    *_each(r"(?=[A-Za-z0-9_-]{0,99}\d)[A-Za-z0-9_-]{16,}", "sk-", "pk-", "rk-"),  # OpenAI, Anthropic and many others
    *_each(r"[A-Za-z0-9]{16,120}", "sk_live_", "sk_test_", "rk_live_", "rk_test_"),  # Stripe
    *_each(r"[A-Z0-9]{16}(?![A-Za-z0-9_])", "AKIA", "ASIA", "ABIA", "ACCA"),  # AWS
    *_each(r"[A-Za-z0-9_-]{20,}", "AIza", "ya29.", "GOCSPX-"),  # Google
    *_each(r"[A-Za-z0-9]{20,}", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "hf_", "api_org_", "gsk_", "npm_", "r8_"),
    *_each(
        r"[A-Za-z0-9_-]{20,255}", "github_pat_", "pypi-AgE", *(f"gl{kind}-" for kind in "pat dt rt cbt ptt".split())
    ),
    *_each(r"(?=[A-Za-z-]{0,99}\d)[A-Za-z0-9-]{10,200}", *(f"xox{kind}-" for kind in "abeoprs")),  # Slack
    *_each(r"[a-f0-9]{32,64}(?:-\d)?(?![A-Za-z0-9_])", "AC", "SK", "dapi", "dop_v1_", "doo_v1_", "dor_v1_"),
    # further providers of models, of search, of GPUs and of what measures them; then of databases, clouds and tools
    *_each(
        r"(?=[A-Za-z]{0,99}\d)[A-Za-z0-9]{20,300}(?![A-Za-z0-9])",
        *"xai- pplx- csk- fw_ tvly- jina_ pcsk_ rpa_ esecret_ up_ phc_ phx_ lin_api_ ntn_ NRAK- vcp_ vck_".split(),
        *"dp.pt. dp.st. AGE-SECRET-KEY- cio sntryu_".split(),
    ),
    *_each(
        r"(?=[A-Za-z_-]{0,99}\d)[A-Za-z0-9_-]{20,300}(?![A-Za-z0-9])",
        *"nvapi- tgp_v1_ lsv2_pt_ lsv2_sk_ wandb_v1_ AQ. hvs. hvb. hvr. sb_secret_ pscale_tkn_ pscale_pw_".split(),
        *"glsa_ figd_ dckr_pat_ PMAK- xapp- tskey- ATATT3 ATCTT3 sntrys_ ops_eyJ".split(),
    ),
    *_each(r"[A-Za-z0-9+/_=-]{40,300}", "ABSK", "bedrock-api-key-"),  # Amazon Bedrock
    *_each(r"[a-f0-9]{32,64}(?![A-Za-z0-9_])", "fc-", "sk_", "sbp_", "pul-", "rubygems_", "key-", "shpat_", "shpss_"),
    *_each(r"[a-f0-9]{8}-[a-f0-9]{4}-[a-f0-9-]{22}", "ms-"),  # ModelScope
    *_each(r"(?=[A-Za-z_-]{0,99}\d)[A-Za-z0-9_-]{40,50}(?![A-Za-z0-9_-])", "pa-"),  # Voyage
    *_each(r"[A-Za-z0-9]{12,32}(?![A-Za-z0-9_])", "LTAI", "AKID"),  # Alibaba, Tencent
    *_each(r"[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}", "SG."),  # SendGrid
    *_each(r"[A-Za-z0-9_-]{22,43}", "sq0atp-", "sq0csp-"),  # Square
    *_each(r"[A-Za-z0-9_-]{8,2000}\.eyJ[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{0,1000}", "eyJ"),  # JSON Web Tokens
    ("hooks.slack.com", r"https://hooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9/_-]{20,120}"),
    ("-us", r"(?<![A-Za-z0-9_])[a-f0-9]{32}-us\d{1,2}(?!\w)"),  # Mailchimp
    (".", r"(?<!\w)[MNO][A-Za-z0-9_-]{23,25}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,38}(?!\w)"),  # Discord
    (":", r"(?<!\w)\d{8,10}:[A-Za-z0-9_-]{35}(?!\w)"),  # Telegram
    ("AccountKey=", r"AccountKey=[A-Za-z0-9+/]{80,100}={0,2}"),  # Azure
    ("", r"(?i)\b(?:bearer|authorization\W{1,6}basic)\s+[a-z0-9._~+/-]{16,2000}=*"),
)
_ANYWHERE: Forms = (
    # Ends at the END line, the next BEGIN line or the end of the text, whichever comes first within 8,000 characters;
    # else it is as long as the text looks like a key. To stop at the next BEGIN keeps the time linear.
    (
        "PRIVATE KEY",
        rf"(?s){_BEGIN}(?:.{{0,8000}}?(?:-----END [A-Z0-9 ]{{0,40}}-----|(?={_BEGIN})|\Z)"
        r"|[A-Za-z0-9+/=\s\\]{0,8000})",
    ),
    # Not one word at this very machine, as in postgres://postgres:postgres@localhost: the default of a local service.
    (
        "://",
        rf"(?<=://)(?![^\s/:@]*:[a-z]{{0,12}}@{_LOCAL})[^\s/:@?#\[]*:{_PASSWORD}(?=@)"
        r"|(?<=://)(?=[^\s/:@?#]*\d)[^\s/:@?#]{12,200}(?=@)",
    ),
    ("://", rf"(?i)(?<=[?&;])(?:password|passwd|pwd)={_NO_VALUE}[^\s&;,\"'`<>)\]}}]{{6,200}}"),
    ("%3D", r"(?i)(?:password|pwd)%3D(?!%7B|[<{$])[^\s%&;,\"'<>]{6,200}"),
    ("jdbc:oracle:", r"(?<=jdbc:oracle:)(?:thin|oci8?):[^\s/@]{1,100}/[^\s@]{1,200}(?=@)"),
    *((f"@{net}(", rf"(?<![\w.:/-])[\w.-]{{1,64}}:[^\s:@]{{1,200}}(?=@{net}\()") for net in ("tcp", "unix")),
)
SECRETS: Forms = (*_IN_LONG_WORDS, *_ANYWHERE)
_LONG = re.compile(r"[A-Za-z0-9_+/=.:~-]{15,}")  # as long as the shortest of them
# What a name says in a text: password=.., the token is .., ?key=.. The value mixes letters and digits, and is no
# placeholder or formula. In a task such a text may be its very matter, so it stays in the episodes.
ASSIGNED = (
    re.compile(
        rf"(?i)(?:{_NAMED})s?[\"']?(?:\s*[:=]\s*|\s+is\s+)[\"']?(?P<value>{_NO_VALUE}(?=[^\s\"'`,;]{{0,99}}\d)"
        r"(?=[^\s\"'`,;]{0,99}[A-Za-z])[^\s\"'`,;)\]}\\^(<$]{8,200})"
    ),
    re.compile(
        rf"(?i)(?<=[?&;#])(?:[a-z0-9]{{1,20}}[_.-]){{0,3}}(?:key|sig(?:nature)?|auth|code|{_NAMED})="
        rf"(?P<value>{_NO_VALUE}(?=[^\s&#]{{0,99}}\d)[^\s&#\"'<>)\]]{{6,2000}})"
    ),
    re.compile(  # curl -u name:password, sshpass -p password
        r"\b(?:curl\b[^\n]{0,300}?\s(?:-u|--user)[ =]?[\"']?[^\s:\"'$]{1,100}:|sshpass\s+-p\s*[\"']?)"
        rf"(?P<value>{_NO_VALUE}(?=[^\s\"'`]{{0,99}}[^\sA-Za-z\"'`])[^\s\"'`]{{6,200}})"
    ),
    re.compile(r"\"auth\"\s*:\s*\"(?P<value>[A-Za-z0-9+/]{12,2000}={0,2})\""),  # Docker's config.json
)
HIDDEN = "[REDACTED]"
_SHORTEST = 8  # a shorter value would occur in harmless text by chance
_LONGEST_WORD = 20  # a value of only letters or only digits up to this length is a word, a number or a placeholder
_AROUND = " \t\r\n\0\"'`“”„‘’‚«»\u00a0\u200b\u200e\u200f\u2060\ufeff"
_SHORT = 100  # characters of a text that is often the same


@cache
def _compiled(form: str) -> re.Pattern[str]:
    """A form, compiled when a text first holds its literal: all of them would take 30 ms of each start."""
    return re.compile(form)


def secret_spans(text: str, *, assigned: bool = True) -> Iterator[tuple[int, int]]:
    """(start, end) of what has one of the forms of `SECRETS` and `ASSIGNED`, unsorted, possibly overlapping."""
    words = " ".join(_LONG.findall(text))
    for forms, within in ((_IN_LONG_WORDS, words), (_ANYWHERE, text)):
        for literal, form in forms if within else ():
            if literal in within:
                yield from (match.span() for match in _compiled(form).finditer(text))
    for form in ASSIGNED if assigned else ():
        yield from (match.span("value") for match in form.finditer(text))


# Which values of an environment, a command line or a configuration are secret.

_SECRET_NAME = re.compile(
    r"(?:API|ACCESS|APP|PRIVATE|SECRET|SIGNING|ENCRYPTION)[_.-]?KEYS?|SECRET|TOKEN(?!I[SZ])|PASSW|PASSPHRASE|CREDENTIAL"
    r"|AUTHORIZATION|(?:^|[_.-])(?:PAT|PW|PASS|AUTH|COOKIES?|JWT)$|[_.-]PWD$",
    re.IGNORECASE,
)
_KEY = re.compile(r"(?:^|[_.-])KEYS?$", re.IGNORECASE)  # many are no secret: a long value of letters and digits is
_ABOUT = re.compile(  # names that are about a secret, and are none
    r"[_.-](?:ENV|TYPE|MODE|METHOD|HOST|PORT|NAME|FILE|PATH|DIR|USER|URL|URI|TTL|LIMIT|COUNT|LENGTH|SOCK|TOKENS)$",
    re.IGNORECASE,
)
_IN_URL = re.compile(rf"(?<=://)([^\s/:@?#=\"'\[]*:({_PASSWORD}))@(?=[\w.\[-])|(?<=://)([^\s/:@?#]{{12,}})@")
_FREE_TEXT = re.compile(r"REASONINGBANK_(?:MEMORY|TASK)")  # given to a command: lessons and a task, not settings


def secrets_of_settings(settings: Any, name: str = "") -> set[str]:
    """The secrets of nested data: a configuration, the words of a command line.

    name   the key that the data stands under
    """
    if isinstance(settings, Mapping):
        return set().union(*(secrets_of_settings(value, str(key)) for key, value in settings.items()))
    if isinstance(settings, (list, tuple)):
        found = set().union(*(secrets_of_settings(value, name) for value in settings))
        for flag, value in pairwise(settings):  # --api-key VALUE
            if isinstance(flag, str) and isinstance(value, str) and re.fullmatch(r"--?[A-Za-z][\w-]*", flag):
                found |= secrets_of_settings(value, flag)
        return found
    return _of_value(name, settings) if isinstance(settings, str) else set()


def _of_value(name: str, value: str) -> set[str]:
    """The secrets in the value of a name: all of it if the name says so, and what has a secret's form in it."""
    value, found = value.strip(), set()
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    is_key = _KEY.search(name) and len(value) >= 16 and re.search(r"\d", value) and re.search("[A-Za-z]", value)
    if (is_key or _SECRET_NAME.search(name)) and not _ABOUT.search(name) and not _is_place(value):
        found |= {value, *re.split(r"[,;\s]+", value)}  # a list of several is of their parts, too
    for both, password, user in _IN_URL.findall(value):
        found |= {each for part in (both, password, user) for each in (part, unquote(part))}
    found |= {value[begin:end] for begin, end in secret_spans(value)}
    return {each for each in found if _is_telling(each)}


def _is_place(value: str) -> bool:
    """Whether a value is a path, a URL, or a {field} that is filled in later.

    Base64 may begin with "/": what holds "+" or "=" is no path.
    """
    path = re.match(r"/|~/|\.{1,2}/", value) and not re.search("[+=]", value)
    return bool(path or re.match(r"[A-Za-z]:\\|[\w+.-]+://", value) or re.fullmatch(r"\{\w+\}", value))


def _is_telling(value: str) -> bool:
    """Whether a value is long and mixed enough to be a secret, not a placeholder like "none" or "12345678"."""
    plain = value.isdecimal() or re.fullmatch(r"[A-Za-z]+(?:[-_. ][A-Za-z]+)*", value)
    return len(value) > _LONGEST_WORD if plain else len(value) >= _SHORTEST


class Redactor:
    """A callable that removes secrets from a text.

    environment   what of it is secret
    key_names     further variables that hold secrets
    settings      nested data, such as a configuration, that may hold secrets as well
    """

    def __init__(
        self, environment: Mapping[str, str], key_names: AbstractSet[str] = frozenset(), settings: Any = None
    ) -> None:
        values = secrets_of_settings(settings)
        values = values.union(*(_of_value(*pair) for pair in environment.items() if not _FREE_TEXT.match(pair[0])))
        values |= {value for name in key_names if _is_telling(value := environment.get(name, "").strip())}
        values |= {bare for value in values if len(bare := bare_key(value)) >= _SHORTEST}
        self._values = sorted({form for v in values for form in _spellings(v)}, key=lambda v: (-len(v), v))
        self._certain_of_short = lru_cache(maxsize=4096)(self._certain)  # records repeat most of these

    def values(self, text: str) -> str:
        """Remove the known values only: for what a run continues from, which must stay as it was."""
        if len(text) < _SHORTEST:
            return text
        for value in self._values:
            if value in text:
                text = text.replace(value, HIDDEN)
        return text

    def certain(self, text: str) -> str:
        """Remove the known values and what has the form of a credential: for what models wrote."""
        return self._certain_of_short(text) if len(text) <= _SHORT else self._certain(text)

    def _certain(self, text: str) -> str:
        text = self.values(text)
        return _without(text, secret_spans(text, assigned=False))

    def __call__(self, text: str) -> str:
        """`certain`, and what a name says is a secret: for logs and errors."""
        text = self.values(text)
        return _without(text, secret_spans(text))


def _without(text: str, spans: Iterable[tuple[int, int]]) -> str:
    kept, at = [], 0
    for begin, end in sorted(spans):
        if end > at:
            kept += [text[at:begin], HIDDEN] if begin >= at else []
            at = end
    return "".join((*kept, text[at:]))


def bare_key(value: str) -> str:
    """A key without what a file, a copy or a word processor has put around it: line ends, marks, quotes."""
    return value.strip(_AROUND)


def _spellings(value: str) -> tuple[str, ...]:
    """A value as it stands in a text, in a URL, in JSON (models and servers quote it) and in base64."""
    in_url = quote(value, safe="", errors="surrogateescape")  # a variable may hold bytes that are not valid text
    in_json = (json.dumps(value, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False))
    return value, in_url, *in_json, b64encode(value.encode("utf-8", "surrogateescape")).decode()


_used: list[Redactor] = []


def use(redact: Redactor) -> None:
    """Let this be the process's redactor, which knows more than this process's environment and command line."""
    _used[:] = [redact]


def redactor() -> Redactor:
    """The redactor of this process: for what it prints, and for what a provider's replies repeat."""
    return _used[0] if _used else _of_process(frozenset(os.environ.items()), tuple(sys.argv[1:]))


@lru_cache(maxsize=1)
def _of_process(environment: AbstractSet[tuple[str, str]], words: tuple[str, ...]) -> Redactor:
    return Redactor(dict(environment), settings=words)


def shown(text: str) -> str:
    """The text as it may be printed: without secrets, and with nothing that a terminal obeys."""
    return printable(redactor().certain(text))


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
