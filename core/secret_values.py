"""Which values of an environment, a command line or a configuration are secret: by name, by place and by how random.

GH_PAT=zq81-Kk0p..              a name that says so
postgresql://app:PASSWORD@db    a place that says so: in a URL, in `password=..`, in a JSON object
SERVICE=Xk29dLq0Zp41MvBt77Qw    looks drawn at random, and its name does not call it an id or a hash
"""

from __future__ import annotations

import math
import re
from binascii import b2a_base64
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any
from urllib.parse import unquote

SHORTEST = 8  # a shorter value would occur in harmless text by chance
_LONGEST_WORD = 20  # a value of only letters or only digits up to this length is a word, a number or a placeholder
_LONGEST = 8_000  # a longer value is a text; a private key in JSON is shorter

_CERTAIN = re.compile(
    r"API[_-]?KEY|ACCESS[_-]?KEY|SECRET|TOKEN(?!I[SZ])|PASSW(?:OR)?D|PASSPHRASE|CREDENTIAL", re.IGNORECASE
)
_SURE = set("pat pwd pw pass pword passcode authorization bearer cookie cookies jwt cred creds salt".split())
_UNSURE = set("key auth sas sig signature otp".split())  # may be about something else: the value must not be words
# What comes last in a name that is about a secret, and is none.
_ABOUT = set(
    "env type mode method host port name file path dir user username email enabled timeout ttl limit size count length "
    "max min algorithm region sock provider scheme version backend plugin helper header field required tokens".split()
)
# Random by nature, and public.
_PUBLIC = set(
    "sha sha1 sha256 md5 commit rev revision hash digest checksum fingerprint id uuid guid ref trace span etag "
    "build version seed pin tag gpg public pub".split()
)
_ADDRESS = set("proxy url uri dsn".split())  # what comes last in the name of an address
_FREE_TEXT = re.compile(r"REASONINGBANK_(?:MEMORY|TASK)")  # given to a command: lessons and a task, not settings

_BARE = r"([^\s/:@?#=\"']*):([^\s/?#\"']+)@(?=[\w.\[-])"  # user:password@host
_IN_URL = re.compile(rf"(?<=://){_BARE}|(?<=://)([^\s/:@?#]{{12,}})@")
# Its scheme may be forgotten: bob:password@db:5432. Not of a package (npm:x@1.2), an image (x:1@sha256:..) or a time.
_HOST = r"(?=(?!sha\d+:)[A-Za-z][\w.-]*(?::\d{1,5}\b|[/\s\"']|$)|\d+(?:\.\d+){3}|\[|(?:tcp|unix)\d?\()"
_TYPED = re.compile(rf"(?:(?<![^\s=\"'])(?=[A-Za-z_:][^\s@]*@{_HOST})|(?<=://)){_BARE}|(?<=://)([^\s/:@?#]{{12,}})@")
# password=.. ; 'token': ".." ; Authorization: Bearer ..
_ASSIGNED = re.compile(
    r"(?<![\w.])([A-Za-z][\w.-]{0,60})[\"']?\s*[:=]\s*(?:(?:bearer|basic)\s+)?"
    r"(?=\"([^\"\n]{1,500})\"|'([^'\n]{1,500})'|[\"']?([^\s\"';&,}]+))",
    re.IGNORECASE,
)
_SCHEMES = re.compile(r"(?:bearer|basic|token)\s+(\S+)", re.IGNORECASE)
_WORDS = re.compile(r"[A-Za-z]+(?:[-_. ][A-Za-z]+)*")
_NUMBERED = re.compile(rf"{_WORDS.pattern}[-_]?\d{{0,2}}")  # column_1


def of_environment(environment: Mapping[str, str]) -> set[str]:
    """The secrets of an environment."""
    found: set[str] = set()
    for name, value in environment.items():
        if not _FREE_TEXT.match(name):
            found |= _of_value(name, value, _TYPED if _ADDRESS.intersection(_words(name)) else _IN_URL)
            found |= {value.strip()} if _drawn(value.strip()) and not _PUBLIC.intersection(_words(name)) else set()
    return found


def of_settings(settings: Any, name: str = "") -> set[str]:
    """The secrets of nested data: a configuration, the words of a command line.

    name   the key that the data stands under
    """
    if isinstance(settings, Mapping):
        return set().union(*(of_settings(value, str(key)) for key, value in settings.items()))
    if isinstance(settings, (list, tuple)):
        found = set().union(*(of_settings(value, name) for value in settings))
        for flag, value in pairwise(settings):  # --api-key VALUE
            if isinstance(flag, str) and isinstance(value, str) and re.fullmatch(r"--?[A-Za-z][\w-]*", flag):
                found |= of_settings(value, flag)
        return found
    return _of_value(name, settings, _TYPED) if isinstance(settings, str) else set()


def telling(value: str) -> bool:
    """Whether a value is long and mixed enough to be a secret, not a placeholder like "none" or "12345678"."""
    plain = value.isdecimal() or ((value.isalpha() or _WORDS.fullmatch(value)) and not _jumps(value))
    return len(value) >= (_LONGEST_WORD + 1 if plain else SHORTEST)


def _of_value(name: str, value: str, users: re.Pattern[str]) -> set[str]:
    value = value.strip()
    found = {value, *_parts(value)} if _says_secret(name, value) else set()
    if len(value) <= _LONGEST:
        found |= set(_within(value, users))
    if (scheme := _SCHEMES.fullmatch(value)) and (found or re.search(r"\d", scheme[1])):
        found.add(scheme[1])
    return {each for each in found if telling(each)}


def _parts(value: str) -> Iterator[str]:
    """The secrets of a list of several, and of cookies: sid=..; theme=dark."""
    pieces = [piece.rpartition("=") for piece in re.split(r"[,;\s]+", value)]
    if len(pieces) > 1 or pieces[0][1]:
        yield from (secret for *_, secret in pieces if re.search(r"\d", secret))


def _is_place(value: str) -> bool:
    """Whether a value is a path or a URL. What begins with a slash and goes on as base64 does is none."""
    if re.match(r"[/~]|\.{1,2}/", value):
        return not (re.fullmatch(r"[\w/~.-]*[+=][\w/+=~.-]*", value) or _jumps(re.sub(r"[/~.]", "", value)))
    return re.match(r"[A-Za-z]:\\|[\w+.-]+://", value) is not None


def _says_secret(name: str, value: str) -> bool:
    """Whether a name says that its value is secret. A path is none."""
    words = _words(name)
    if _ABOUT.intersection(words[-1:]) or _is_place(value):
        return False  # of a URL only what stands within it
    if _CERTAIN.search(name) or _SURE.intersection(words):
        return True
    mixed = re.search(r"\d", value) and re.search(r"[^\W\d]", value) and not _NUMBERED.fullmatch(value)
    return bool(_UNSURE.intersection(words) and not _PUBLIC.intersection(words) and (mixed or _jumps(value)))


def _within(value: str, users: re.Pattern[str]) -> Iterator[str]:
    """Passwords within a value: of a URL, and where a name says so."""
    for user, password, only in users.findall(value):
        secret = password or only
        if password or re.search(r"\d", only):
            yield from (secret, unquote(secret))
        if password:  # as a client sends it
            yield b2a_base64(
                f"{unquote(user)}:{unquote(password)}".encode("utf-8", "surrogatepass"), newline=False
            ).decode()
    for name, *quoted in _ASSIGNED.findall(value):
        part = "".join(quoted)  # one of the three
        if _says_secret(name, part):
            yield from (part, unquote(part))


def _drawn(value: str) -> bool:
    """Whether a value is one word that looks drawn at random: long hexadecimal, or mixed letters and digits."""
    if not re.fullmatch(r"[A-Za-z0-9+/_.~=-]{20,500}", value) or _is_place(value):
        return False
    if re.fullmatch(r"[0-9a-f]{32,}|[0-9A-F]{32,}", value):
        return not value.isdecimal()
    if re.search(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", value, re.IGNORECASE):
        return False  # a UUID
    pieces = (re.sub("[_-]", "", piece) for piece in re.findall(r"[A-Za-z0-9_-]{20,}", value))
    return any(len({*map(_kind, piece)}) == 3 and _jumps(piece) for piece in pieces)


def _jumps(text: str) -> bool:
    """Whether its letters and digits are mixed as at random; names in camel case change seldom, and repeat letters."""
    kinds = [*map(_kind, text)]
    changes = sum(a != b for a, b in pairwise(kinds))
    bits = -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values())
    return len(text) >= 12 and changes >= 0.45 * len(text) and bits >= 3


def _kind(letter: str) -> str:
    return "upper" if letter.isupper() else "digit" if letter.isdigit() else "lower"


def _words(name: str) -> list[str]:
    """The words of a name such as DB_PASS, dbPass or x-db-pass, in lower case."""
    words = re.split(r"[^A-Za-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name))
    return [word.lower() for word in words if word]
