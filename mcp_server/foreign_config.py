"""Settings in the layouts of other systems, read into overrides of this server: a file of data for each in foreign/.

    below   the keys under which its section lies
    keys    {its key, dotted: what that is here}
            our.key          the same value
            our.key=TEXT     TEXT, with the value for {}
            null             changes nothing here
            {VALUE: {set: [override], drop: [its key or the beginning of keys]}}
                             for this value set this and ignore those; `absent`: where the key is not given.
                             * stands for anything, {} for the value, {-} for it with hyphens for dots
    why     {beginning of a key: advice added to "has no equivalent here"}

A key that is not listed is refused with one sentence that names it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import reduce
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.textfile import read_text
from mcp_server.override_words import override

FOLDER = Path(__file__).parent / "foreign"
CLAUDE_FLOW = ("claude_flow_outline", "claude_flow")  # of which a settings file may be one as well
_VARIABLE = re.compile(r"\$\{(\w+)(\?|:[^}]*)?\}")


def read_foreign(path: Path) -> list[str]:
    """The overrides (key=value) equivalent to a file (`--config`). Raises UserError for keys without equivalent."""
    data = parse_yaml(read_text(path.expanduser(), f"--config {path}"), f"--config {path} is")
    try:
        words = foreign_words(data, (*CLAUDE_FLOW, "reasoningbank_mcp"))
    except UserError as error:
        raise UserError(f"--config {path}: {error}") from None
    if words is None:
        raise UserError(f"--config {path}: the file holds no keys.")
    return words


def foreign_words(data: Any, systems: tuple[str, ...]) -> list[str] | None:
    """The overrides for settings in the layout of the first of these systems that they fit; None: of none."""
    for system in systems:
        layout = layout_of(system)
        place = layout["below"]
        section = reduce(lambda node, name: node.get(name) if isinstance(node, dict) else None, place, data)
        if isinstance(section, dict):
            return _words(layout, section, "".join(f"{name}." for name in place))
    return None


def layout_of(system: str) -> dict[str, Any]:
    """A system's file of data."""
    return parse_yaml((FOLDER / f"{system}.yaml").read_text(encoding="utf-8"), f"{system} is")


def parse_yaml(text: str, file_is: str) -> Any:
    """The data of a YAML text. UserError begins with `file_is`, e.g. "--config FILE is", and does not quote the text:
    it may hold keys of providers."""
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" in line {mark.line + 1}"
        raise UserError(f"{file_is} no YAML{where}.") from None


def _words(layout: dict[str, Any], section: dict[str, Any], above: str) -> list[str]:
    keys = layout["keys"]
    try:
        given = dict(_leaves(section, keys))
        if unknown := next((key for key in given if key not in keys), None):
            why = next((why for start, why in layout.get("why", {}).items() if unknown.startswith(start)), "remove it")
            raise UserError(f"{unknown} has no equivalent here: {why}.")
        chosen = {key: _choice(key, given.get(key), rule) for key, rule in keys.items() if isinstance(rule, dict)}
    except UserError as error:
        raise UserError(f"{above}{error}") from None
    dropped, words = [], []
    for key, choice in chosen.items():
        if not key.startswith(tuple(dropped)):
            words += choice.get("set", [])
            dropped += [each for each in choice.get("drop", []) if each != key]
    for key, rule in keys.items():
        if key in given and isinstance(rule, str) and given[key] != "" and not key.startswith(tuple(dropped)):
            own, equals, text = rule.partition("=")
            words.append(override(own, text.format(given[key]) if equals else given[key]))
    return words


def _choice(key: str, value: Any, rule: dict[str, Any]) -> dict[str, Any]:
    """What a value sets and drops, with the value in its place."""
    if value is None:
        return rule.get("absent", {})
    text = str(value).lower() if isinstance(value, bool) else str(value)
    known = [name for name in rule if name != "absent"]
    if (found := next((name for name in known if fnmatchcase(text, name)), None)) is None:
        raise UserError(f"{key}={text} has no equivalent here: give {' or '.join(map(json.dumps, known))}.")
    filled = [_with_value(word, text) for word in rule[found].get("set", [])]
    return rule[found] | {"set": filled}


def _with_value(word: str, value: str) -> str:
    own, _, text = word.partition("=")
    if "{" not in text:
        return word
    return override(own, text.replace("{-}", value.replace(".", "-")).replace("{}", value))


def _leaves(node: Any, keys: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of nested mappings, without values that are None."""
    for name, value in node.items():
        key = f"{above}{name}"
        if isinstance(value, dict):
            yield from _leaves(value, keys, f"{key}.")
        elif value is not None and any(each.startswith(f"{key}.") for each in keys):
            raise UserError(f"{key} holds no keys.")
        elif value is not None:
            yield key, _variable_of_key(key, value) if key.endswith("api_key") else _filled(key, value)


def _variable_of_key(key: str, value: Any) -> str:
    """The name of the variable that holds a provider's key; "" where the file leaves it empty."""
    match = _VARIABLE.fullmatch(str(value).strip())
    if value != "" and (match is None or (match[2] or "").startswith(":")):
        raise UserError(
            f"{key} holds a key itself: put it into an environment variable and write its name, "
            '"${NAME}", into the file.'
        )
    return match[1] if match else ""


def _filled(key: str, value: Any) -> Any:
    """A value with ${NAME}, ${NAME?} and ${NAME:default} replaced from the environment."""

    def variable(match: re.Match[str]) -> str:
        name, rest = match[1], match[2]
        if (found := os.environ.get(name)) is not None:
            return found
        if rest is None:
            raise UserError(f"{key} names the environment variable {name}, which is not set.")
        return rest[1:]

    return _VARIABLE.sub(variable, value) if isinstance(value, str) else value
