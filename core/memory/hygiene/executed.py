"""Finds commands, addresses, packages and credentials in a lesson that its own attempt never used successfully.

Text that an attempt only read proves nothing: a page or a tool's reply may have planted the name. Only actions count
whose observations report no failure, and names in the task itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from core.memory.protocol import Steps

_TOP = "com|net|org|io|dev|app|ru|cn|xyz|info|co|page|site|ai|me|cloud|online|top|link|store|tech|live|host|example"
_HOST = re.compile(
    rf"(?i)\b(?:https?|ftps?|ssh|git\+\w+)://([^\s/`'\")\]>]{{1,200}})|(?<![\w./@-])((?:[a-z0-9-]{{1,60}}\.){{1,6}}(?:{_TOP}))(?![\w-]|\.\w)"
)
# Programs whose name is no English word, so that a command is recognised without quotes, with its subcommand.
_LINE = re.compile(
    r"(?<![\w./-])(?:(?:pip3?|pipx|npm|npx|pnpm|yarn|apt|apt-get|brew|cargo|conda|docker|podman|kubectl|git|systemctl)"
    r"(?: -\S{1,40}){0,4} [a-z][\w@./:-]{0,80}|(?:curl|wget|ssh|scp|rsync|psql|mysql|chmod|sudo)(?= ))"
)
_QUOTED = re.compile(r"`([^`\n ]{1,60} [^`\n]{1,200})`|^\s*\$ (.{3,200})$", re.MULTILINE)
_COMMAND = re.compile(r"(?:sudo )?([a-z][\w.+-]*|\./[\w./-]+)((?: \S+)*)")
_INSTALL = r"(?:pip3?|pipx|uv|npm|pnpm|yarn|apt|apt-get|brew|cargo|gem|conda|poetry) (?:pip )?(?:install|add|get|i)"
_PACKAGE = re.compile(rf"(?i)\b{_INSTALL} (?:-\S{{1,40}} ){{0,6}}([@a-z][\w@./\[\]=<>~^-]{{0,60}})")
_CREDENTIAL = re.compile(
    r"\b[A-Z][A-Z0-9_]*(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD)[A-Z0-9_]*\b|~?/?\.(?:aws/credentials|netrc|pgpass|kube/config)"
)
_NEGATED = re.compile(
    r"(?i)\b(?:not|n't|never|avoid|instead of|rather than|cannot|without|beware of|refuses?)\b[^.;:!?\n]{0,100}$"
)
_FAILED = re.compile(
    r"(?i)\b(?:error|exception|traceback|failed|failure|denied|fatal|rejected|refused|not found|no such|"
    r"unknown command|nothing happens|not recogni[sz]ed|could not|cannot|can't|unable to|invalid|HTTP/\S+ [45]\d\d)\b"
)
# Reports that do not count as a failure: "0 errors", and failed tests, since they were run.
_NO_FAILURE = re.compile(r"(?i)\b(?:0|no|without) (?:error|failure|exception)s?\b|\b\d+ failed\b")


def successful(did: Steps) -> tuple[str, ...]:
    """The actions whose observations report no failure. did: steps of the attempts."""
    return tuple(step.action for step in did if not _FAILED.search(_NO_FAILURE.sub("", step.observation)))


def never_executed(text: str, known: Sequence[str]) -> tuple[str, ...]:
    """Names in a lesson's text that no known text has, sorted. known: its task and the `successful` actions."""
    lines = [line.lower() for source in known for line in source.splitlines()]
    return tuple(sorted({name for name, words in _named(text) if not _in_order(words, lines)}))


def _named(text: str) -> Iterable[tuple[str, list[str]]]:
    """(name as written, words that one line of an action must contain in this order to have used it)."""
    for match in _HOST.finditer(text):
        host = (match[1] or match[2]).split("@")[-1]
        yield host, [host.lower().removeprefix("www.")]
    for match in _CREDENTIAL.finditer(text):
        yield match[0], [match[0].lower().lstrip("~/")]
    for match in _PACKAGE.finditer(text):
        name = re.split(r"[\[=<>~^]", match[1])[0].rstrip(".,/").lower()
        if not _NEGATED.search(text, max(0, match.start() - 100), match.start()):
            yield name, [name]
    quoted = [(next(filter(None, m.groups())), m.start()) for m in _QUOTED.finditer(text)]
    for line, start in [*quoted, *((m[0], m.start()) for m in _LINE.finditer(text))]:
        command = _COMMAND.fullmatch(line.strip())
        if command and not _NEGATED.search(text, max(0, start - 100), start):
            words = [word for word in command[2].split() if re.match(r"[a-z][\w@./:-]*$", word)]
            yield line.strip(), [command[1].lower(), *(word.lower() for word in words[:1])]


def _in_order(words: list[str], lines: list[str]) -> bool:
    parts = (rf"(?<![\w-]){re.escape(word)}(?![\w-]|\.\w)" for word in words)
    pattern = re.compile(".*".join(parts))
    return any(pattern.search(line) for line in lines)
