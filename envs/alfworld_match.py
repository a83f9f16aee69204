"""`env.match=nearest`: mend the form of a command, never its meaning.

    "1. Put the Apple 1 in fridge 1."  ->  "move apple 1 to fridge 1"      (the release's own wording)
    "go to cabnet 4"                   ->  "go to cabinet 4"
    "go to sofa" (there is one)        ->  "go to sofa 1"
    "go to cabinet 9" (there are 4)    ->  unchanged: "Nothing happens."

A command is only ever replaced by an admissible one that has the same verb and names the same numbered things in the
same order. Where the command has no number, there must be only one admissible command of these names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher

ALIKE = 0.8  # how similar two names must be to count as one with a typing error
MOST = 2  # letters more or fewer that a typing error makes
SYNONYMS = {
    "move": "put place insert drop",
    "take": "pick grab get",
    "go": "goto walk navigate",
    "use": "toggle turn switch",
    "examine": "check inspect",
    "clean": "wash rinse",
    "cool": "chill",
}
VERBS = {synonym: verb for verb, synonyms in SYNONYMS.items() for synonym in synonyms.split()}
FILLERS = frozenset("a an the some to in on in/on into onto from with using at of up off".split())


def nearest(command: str, admissible: Sequence[str]) -> str:
    """The admissible command that was meant, or the command itself when there is none or no single best one."""
    if command.strip() in admissible:
        return command
    wanted = _words(command)
    numbered = any(word.isdigit() for word in wanted)  # "go to sofa" names the sofa where there is only one
    scored = []
    for choice in admissible:
        words = [word for word in _words(choice) if numbered or not word.isdigit()]
        scored.append((_likeness(wanted, words), choice))
    scored.sort(reverse=True)
    if not scored or scored[0][0] == 0 or (len(scored) > 1 and scored[0][0] == scored[1][0]):
        return command
    return scored[0][1]


def _words(command: str) -> list[str]:
    """The verb and the things with their numbers: 'Put the apple 1 in/on fridge 2.' -> [move, apple, 1, fridge, 2]."""
    text = re.sub(r"^[\s\d.>*-]*", "", command[:500].lower())
    words = [word for word in re.findall(r"[a-z/]+|\d+", text) if word not in FILLERS]
    return [VERBS.get(words[0], words[0]), *words[1:]] if words else []


def _likeness(wanted: list[str], choice: list[str]) -> float:
    """0 unless every word has its counterpart; numbers must be equal, and names nearly so."""
    if len(wanted) != len(choice) or wanted[:1] != choice[:1]:
        return 0.0
    ratios = [_ratio(a, b) for a, b in zip(wanted, choice)]
    return min(ratios, default=0.0)


def _ratio(a: str, b: str) -> float:
    if a == b:
        return 1.0
    if abs(len(a) - len(b)) > MOST or not (a.isalpha() and b.isalpha()):  # towelholder is no mistyped handtowelholder
        return 0.0
    ratio = SequenceMatcher(None, a, b).ratio()
    return ratio if ratio >= ALIKE else 0.0
