r"""Finding \boxed{...}: balanced braces, \fbox, `\boxed 5`, and several boxes that together are one answer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from single_turn_bench.scan import SPACES, balanced

MAX_BOXES = 20  # looked at, from the end
MAX_CONTENT = 10_000
MAX_GAP = 70  # between boxes that a conjunction joins
TOUCHING = 10  # closer than this they belong together anyway

# \beginboxed{5} and a backspace for the \b of JSON are usual accidents of model output.
OPENING = re.compile(r"(?:(?<!\\)\\+(?:begin)?(?:boxed|fbox|framebox)|\x08oxed|(?<![A-Za-z])boxed(?=\s?\{))")
# What stands in a box where the instruction is said again: "in \\boxed{answer}".
PLACEHOLDER = re.compile(
    r"(?:\\text\s*\{)?[<\[]?\s*(?:(?:your|the|final)\s+)*answer(?:\s+here)?\s*[>\]]?\}?|\.{3}|\\[cl]?dots", re.I
)
CONJUNCTION = re.compile(r"(?<![A-Za-z])(?:and|or)(?![A-Za-z])")
PROSE = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}")
SENTENCE_END = re.compile(r"[.!?:]\s|\n\s*\n")
REVISION = re.compile(r"\b(?:wrong|incorrect|not|but|so|thus|hence|therefore|instead|should|actually|wait|no)\b", re.I)


@dataclass(frozen=True)
class Box:
    start: int
    end: int
    content: str


def boxed_answer(text: str) -> Box | None:
    """What the last box holds, joined with the boxes that it continues: `\\boxed{1} and \\boxed{2}` is `1, 2`."""
    found: list[Box] = []
    for box in boxes_from_end(text):
        if found and not joined(text, box, found[-1]):
            break
        found.append(box)
    if not found:
        return unclosed_box(text)
    contents = dict.fromkeys(box.content for box in reversed(found))
    return Box(found[-1].start, found[0].end, ", ".join(contents))


def boxes_from_end(text: str) -> Iterator[Box]:
    """Closed boxes that are in no other box, last first."""
    inside_of = len(text)
    for match in list(OPENING.finditer(text))[: -MAX_BOXES - 1 : -1]:
        box = read_box(text, match)
        if box is None or box.end > inside_of or not box.content or PLACEHOLDER.fullmatch(box.content):
            continue
        if not in_a_box(text, match.start()):
            yield box
            inside_of = box.start


def in_a_box(text: str, position: int) -> bool:
    """Whether a box that opens at most 200 characters before the position closes behind it: \\boxed{\\boxed{5}}."""
    before = OPENING.finditer(text, max(0, position - 200), position)
    return any(box.end > position for box in (read_box(text, match) for match in before) if box)


def read_box(text: str, match: re.Match) -> Box | None:
    start = SPACES.match(text, match.end()).end()
    if text.startswith("{", start):
        content = balanced(text, start, MAX_CONTENT)
        return Box(match.start(), start + len(content) + 2, content.strip()) if content is not None else None
    token = re.compile(r"[-+]?[\w.,/]*\w|\\[a-zA-Z]+").match(text, start)
    return Box(match.start(), token.end(), token.group()) if token and start > match.end() else None


def joined(text: str, box: Box, following: Box) -> bool:
    """Whether two boxes are parts of one answer: they nearly touch, or a conjunction or comma stands between them."""
    between = text[box.end : following.start]
    if REVISION.search(between):
        return False
    if len(between) < TOUCHING:
        return True
    if len(between) > MAX_GAP or SENTENCE_END.search(between):
        return False
    return bool(CONJUNCTION.search(between)) or ("," in between and not PROSE.search(between))


def unclosed_box(text: str) -> Box | None:
    """The last box when its brace is never closed: it then ends with its line, or before a `$`."""
    matches = list(OPENING.finditer(text))
    behind = text[matches[-1].end() :].lstrip() if matches else ""
    if not behind.startswith("{") or balanced(behind, 0, MAX_CONTENT) is not None:  # an empty box is no answer
        return None
    rest = behind[1:MAX_CONTENT].split("\n")[0].split("$")[0]
    return Box(matches[-1].start(), matches[-1].end() + len(rest), rest.strip()) if rest.strip() else None
