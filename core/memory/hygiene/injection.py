"""Whether a lesson gives orders that no lesson should. Rules by pattern, for quarantine, never for deletion.

A lesson says how to solve a kind of task. It has no need to void other instructions, to speak as the system, to run a
shell line, to fetch an address, to send data away, to tie an answer to a catchword, to redirect one named thing to
another, to switch off a safeguard, or to spread itself: the moves of prompt injection (Greshake et al. 2023,
arXiv:2302.12173), AgentPoison (arXiv:2407.12784), MINJA (arXiv:2503.03704) and MemoryGraft (arXiv:2512.16962).
Patterns see words, not meaning: likeness.py catches some of what they miss; docs/memory.md has the measured rates.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from core.memory.hygiene.disguises import has_hidden_characters, readings
from core.memory.hygiene.typosquat import imitations

# Rules that a negated text does not break ("do not skip the verification"), and how many characters a "not" reaches.
_UNLESS_NEGATED = {"unsafe": 25, "shell": 25, "exfiltration": 25, "careless": 100, "credential": 40}
_NEGATED = (
    r"(?:\bnot|n't|\bnever|\bavoid|\binstead of|\brather than|\bcannot|\brefus\w+|\bbeware of)\b[^.;:!?\n]{0,%d}$"
)


def suspicions(text: str, done: Sequence[str] = ()) -> tuple[str, ...]:
    """The names of the rules that a text breaks, sorted; () for a text that looks like a lesson.

    done   what its attempt really did: a command or an address in there is no order
    """
    done = "\n".join(done).lower()
    broken = {"hidden"} if has_hidden_characters(text) else set()
    for number, reading in enumerate(readings(text)):
        hits = {name for name, patterns in rules().items() if any(_hit(name, p, reading, done) for p in patterns)}
        # An order that stands only in another reading than the plain one was disguised.
        broken |= hits if number == 0 else {f"disguised {name}" for name in hits - broken}
    broken |= {"typosquat"} if imitations(text) else set()
    return tuple(sorted(broken))


def hints(text: str) -> bool:
    """Whether a text puts one thing in the place of another, which tells nothing of a single lesson: see sources.py."""
    return any(pattern.search(text.lower()) for pattern in _rules()["hint"])


def rules() -> dict[str, list[re.Pattern[str]]]:
    """The patterns that a lesson is quarantined for, by the name of their rule."""
    return {name: patterns for name, patterns in _rules().items() if name != "hint"}


@cache
def _rules() -> dict[str, list[re.Pattern[str]]]:
    """The patterns of rules.txt by the name of their rule."""
    parts: dict[str, str] = {}
    found: dict[str, list[re.Pattern[str]]] = {}
    for line in (Path(__file__).parent / "rules.txt").read_text(encoding="utf-8").splitlines():
        if definition := re.match(r"([A-Z]+) = (.+)", line):
            parts[definition[1]] = definition[2]
        elif title := re.fullmatch(r"\[([a-z]+)\]", line):
            patterns = found.setdefault(title[1], [])
        elif line.strip() and not line.startswith("# "):
            patterns.append(re.compile(re.sub(r"<([A-Z]+)>", lambda m: parts[m[1]], line)))
    return found


def _hit(name: str, pattern: re.Pattern[str], text: str, done: str) -> bool:
    if done and name in ("shell", "fetch"):
        return any(
            match.group().strip() not in done and not _is_negated(name, match) for match in pattern.finditer(text)
        )
    if name not in _UNLESS_NEGATED:
        return bool(pattern.search(text))
    return any(not _is_negated(name, match) for match in pattern.finditer(text))


def _is_negated(name: str, match: re.Match[str]) -> bool:
    reach = _UNLESS_NEGATED.get(name, 0)
    before = match.string[max(0, match.start() - reach - 15) : match.start()]
    return reach > 0 and bool(re.search(_NEGATED % reach, before))
