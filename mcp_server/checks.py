"""Checks of a tool's arguments. Each raises UserError with one sentence that says what to give instead."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from core.errors import UserError
from core.memory.filter import normal_tag
from core.memory.hygiene.scrub import scrub
from core.models.reply_text import without_surrogates
from core.types import Lesson
from mcp_server.config import ServerSettings

NAMESPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/-]{0,63}")
NULL = ("null", "none", "undefined", "nil")  # what clients fill optional arguments with
NEEDED_WITHIN = ("role", "content", "trajectory")  # of a turn, and of one of several attempts
LONGEST_SECRET = 9_000  # characters of the longest credential, a private key


def given(arguments: dict[str, Any], required: Iterable[str]) -> dict[str, Any]:
    """The arguments that have a value: None has none, nor has an optional one that a client has filled with "null".

    So it is with what lists of objects hold: the turns of a trajectory, and attempts.
    """
    filled = {name: value for name, value in arguments.items() if name in required or not _is_null(value)}
    return {name: _inner(value) for name, value in filled.items() if value is not None}


def _inner(value: Any) -> Any:
    if isinstance(value, list):
        return [given(each, NEEDED_WITHIN) if isinstance(each, dict) else each for each in value]
    return value


def _is_null(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(map(_is_null, value))
    return isinstance(value, str) and value.strip().casefold() in NULL


def text(name: str, value: str, most: int, *, empty: bool = False) -> str:
    """A text of at most `most` characters, which may be blank only with empty=True."""
    if not empty and not value.strip():
        raise UserError(f"{name} is empty: give 1 to {most} characters.")
    if len(value) > most:
        raise UserError(f"{name} has {len(value)} characters: give at most {most}.")
    return without_surrogates(value)


def whole_number(name: str, value: int, least: int, most: int) -> int:
    """A whole number within limits."""
    if not least <= value <= most:
        raise UserError(f"{name}={value}: give a whole number from {least} to {most}.")
    return value


def query(value: str, settings: ServerSettings) -> str:
    """A task as it was asked, or a question."""
    return text("query", value, settings.max_query_chars)


def lesson(title: str, description: str, content: str) -> Lesson:
    """A lesson: title of 1 to 200 characters, content of 1 to 10 000, description of at most 1000."""
    return Lesson(
        title=text("title", title.strip(), 200),
        description=text("description", description.strip(), 1000, empty=True),
        content=text("content", content.strip(), 10_000),
    )


def tags(values: list[str], least: int = 0) -> tuple[str, ...]:
    """`least` to 10 tags of 1 to 50 characters in their normal form (React is react), each once."""
    if not least <= len(values) <= 10:
        raise UserError(f"tags has {len(values)} entries: give {least} to 10.")
    return tuple(dict.fromkeys(normal_tag(text("a tag", tag, 50)) for tag in values))


def url(value: str) -> str:
    """ "" or an http or https address of at most 2000 characters."""
    text("sourceUrl", value, 2000, empty=True)
    if value and not re.match(r"https?://[^\s/]+", value):
        raise UserError("sourceUrl is no address: give one that begins with http:// or https://.")
    return value


def namespace(agent_id: str) -> str:
    """An agent's id, which is the name of its namespace in the bank."""
    if not NAMESPACE.fullmatch(agent_id):
        raise UserError("agent_id: give 1 to 64 letters, digits or . _ : @ / -, beginning with a letter or a digit.")
    return agent_id


def attempt(trajectory: list[dict[str, Any]], task: str, settings: ServerSettings) -> dict[str, Any]:
    """The checked attempt in the form of the queue: {query, trajectory}. Raises UserError if it is empty or too long.

    A turn is {role, content} and, if the client gave any, `metadata`: JSON text, scrubbed and cut at its own limit.
    """
    task = query(task, settings)
    if not trajectory:
        raise UserError("trajectory is empty: give the steps of the attempt.")
    size = _characters(trajectory)
    if size > settings.max_trajectory_chars or len(trajectory) > settings.max_trajectory_steps:
        raise UserError(
            f"the trajectory has {len(trajectory)} steps and {size} characters: give at most "
            f"{settings.max_trajectory_steps} steps and {settings.max_trajectory_chars} characters."
        )
    if not any(turn["content"].strip() for turn in trajectory):
        raise UserError("trajectory is blank: give the steps of the attempt with their content.")
    return {"query": task, "trajectory": [_turn(turn, settings.max_metadata_chars) for turn in trajectory]}


def attempts(values: list[dict[str, Any]], task: str, pattern: str, settings: ServerSettings) -> dict[str, Any]:
    """Several attempts at one task as they wait in the queue: {query, pattern, attempts}.

    values    [{trajectory, success_signal}], in the order in which they were made
    pattern   parallel | sequential
    """
    if pattern not in ("parallel", "sequential"):
        raise UserError(f"pattern={pattern[:40]}: give parallel or sequential.")
    if not 2 <= len(values) <= settings.max_attempts:
        raise UserError(f"attempts has {len(values)} entries: give 2 to {settings.max_attempts}.")
    checked = []
    for value in values:
        entry = {"trajectory": attempt(value["trajectory"], task, settings)["trajectory"]}
        success = value.get("success_signal")
        checked.append(entry if success is None else entry | {"success": success})
    size = sum(_characters(entry["trajectory"]) for entry in checked)
    if size > settings.max_trajectory_chars:
        raise UserError(f"the attempts have {size} characters: give at most {settings.max_trajectory_chars} together.")
    return {"query": query(task, settings), "pattern": pattern, "attempts": checked}


def _characters(trajectory: list[dict[str, Any]]) -> int:
    return sum(len(turn["content"]) for turn in trajectory)


def _turn(turn: dict[str, Any], most: int) -> dict[str, str]:
    checked = {"role": text("role", turn["role"], 50), "content": without_surrogates(turn["content"])}
    if most and (metadata := turn.get("metadata")):
        checked["metadata"] = _scrubbed(without_surrogates(json.dumps(metadata, ensure_ascii=False)), most)
    return checked


def _scrubbed(value: str, most: int) -> str:
    """Scrub a text and cut it in the middle. Only the ends of a long one are scrubbed: megabytes would take seconds.

    The scrubbed part is longer than the kept part, so that no part of a credential is left at the cut.
    """
    from core.learning.transcript import cut

    half = most // 2
    seen = half + LONGEST_SECRET
    if len(value) <= 2 * seen:
        return cut(scrub(value)[0], most)
    head, tail = scrub(value[:seen])[0][:-LONGEST_SECRET], scrub(value[-seen:])[0][LONGEST_SECRET:]
    note = f"[... {len(value) - 2 * half} characters left out ...]"
    return f"{head[:half]}\n{note}\n{tail[max(len(tail) - half, 0) :]}"
