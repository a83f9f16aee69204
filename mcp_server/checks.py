"""Checks of what a caller gives to a tool. Each raises UserError with one sentence that says what to give instead."""

from __future__ import annotations

import re

from core.errors import UserError
from core.memory.filter import normal_tag
from core.models.reply_text import storable
from core.types import Lesson

NAMESPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/-]{0,63}")


def text(name: str, value: str, most: int, *, empty: bool = False) -> str:
    """A text of at most `most` characters, which may be blank only with empty=True."""
    if not empty and not value.strip():
        raise UserError(f"{name} is empty: give 1 to {most} characters.")
    if len(value) > most:
        raise UserError(f"{name} has {len(value)} characters: give at most {most}.")
    return storable(value)


def whole_number(name: str, value: int, least: int, most: int) -> int:
    """A whole number within limits."""
    if not least <= value <= most:
        raise UserError(f"{name}={value}: give a whole number from {least} to {most}.")
    return value


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


def domain(value: str) -> str:
    """ "" or the name of a subject, of at most 100 characters, without blanks around it."""
    return text("domain", value.strip(), 100, empty=True)


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
