"""Finds the lessons that a reply cites, among those that the agent was shown (`memory.uses=cited`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from core.normal_form import folded
from core.types import Scored, Trajectory

SHORTEST_TITLE = 12  # letters; a shorter title, such as "Check", occurs by chance
_LIST = r"\[?\d{1,2}\]?(?:\s*(?:,\s*and|,|and|or|&)\s*\[?\d{1,2}\]?)*"
_NAMED = re.compile(rf"\b(?:memory items?|lessons?)\s*(?:no\.?\s*|numbers?\s*|#\s*)?({_LIST})(?![\w.]*\d)")
_BRACKETED = re.compile(r"(?<![\w\])}])(\[\d{1,2}\])(?![(\[{])")  # not x[1] or [1](address)
_JOINED = re.compile(r"[\s,&/*\"'():-]*(?:and|or)?[\s*\"'(]*")  # text between two mentions that belong together
_CLAUSE = re.compile(r"[.;:!?,]|\b(?:but|while|whereas|however|so|because|and|then)\b")
_NO = r"(?:not|\w*n't|cannot|never|irrelevant|unrelated|inapplicable)"
_NO_BEFORE = re.compile(rf"\b(?:{_NO}|no|none of|neither|nor|without|ignor\w+|skip\w*|disregard\w*|rather than)\b")
_NO_AFTER = re.compile(rf"[\s\"'*():-]{{0,4}}(?:(?:do|does|did|is|are|was|were|will|would|can|could) )?{_NO}\b")


def n_cited(answer: Trajectory, memories: Sequence[Scored], n_shown: Sequence[int]) -> list[int]:
    """Number of lessons that an attempt cites, for each record.

    n_shown   number of lessons that the prompt showed, for each record; its first ones, numbered from 1 over all
    """
    shown = [(place, item) for place, m in enumerate(memories) for item in m.record.items[: n_shown[place]]]
    lessons = [(memories[place].record.id, item.title) for place, item in shown]
    found = cited("\n".join(step.text for step in answer.steps), lessons)
    return [sum(shown[number][0] == place for number in found) for place in range(len(memories))]


def cited(reply: str, lessons: Sequence[tuple[str, str]], *, numbered: bool = True) -> set[int]:
    """Indices, from 0, of the lessons (id, title) that a reply cites: by number, by id or by title.

    A number is "[2]", "lesson 2", "Memory Item 2" or part of "lessons 1 and 2", but not "step 2". A lesson that the
    reply rejects is not cited: "not [2]", "ignoring lesson 2", "[2] does not apply".

    numbered   False: numbers in the reply do not refer to lessons
    """
    found: set[int] = set()
    for line in reply.replace("’", "'").splitlines():
        line = folded(line)
        for start, end, places in _together(line, sorted(_mentions(line, lessons, numbered=numbered))):
            before = _CLAUSE.split(line[:start])[-1]
            if not _NO_BEFORE.search(before) and not _NO_AFTER.match(line[end:]):
                found |= places
    return found


def _mentions(line: str, lessons: Sequence[tuple[str, str]], *, numbered: bool) -> Iterator[tuple[int, int, list[int]]]:
    """(start, end, indices of the lessons) of each mention in a line."""
    for pattern in (_NAMED, _BRACKETED) if numbered else ():
        for match in pattern.finditer(line):
            places = [int(number) - 1 for number in re.findall(r"\d+", match[1])]
            if known := [place for place in places if 0 <= place < len(lessons)]:
                yield match.start(), match.end(), known
    for place, (id, title) in enumerate(lessons):
        names = [folded(title)] if len(folded(title)) >= SHORTEST_TITLE else []
        for name in (*names, id.casefold()):
            for match in re.finditer(rf"(?<!\w){re.escape(name)}(?!\w)", line):
                yield match.start(), match.end(), [place]


def _together(line: str, mentions: Sequence[tuple[int, int, list[int]]]) -> Iterator[tuple[int, int, set[int]]]:
    """Merge mentions that belong together, as in "[1] and [2]" or "[1] Its title". mentions: sorted by start."""
    open_: tuple[int, int, set[int]] | None = None
    for start, end, places in mentions:
        if open_ and (start <= open_[1] or _JOINED.fullmatch(line, open_[1], start)):
            open_ = (open_[0], max(open_[1], end), open_[2] | set(places))
            continue
        if open_:
            yield open_
        open_ = (start, end, set(places))
    if open_:
        yield open_
