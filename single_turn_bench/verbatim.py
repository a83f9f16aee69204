r"""The final answer as it was written, for tasks whose answers are words, lists or grids rather than mathematics.

    "... <answer>dog, cat</answer>"           tag         dog, cat
    "So we get \boxed{\text{dog, cat}}."      boxed       dog, cat
    "The answer is **dog, cat**."             statement   dog, cat
    "dog, cat"                                last_line   dog, cat

Nothing is read into the text: its scorer compares it. Where answers are mathematics, answers.py reads them.
"""

from __future__ import annotations

import re

from core.normal_form import folded, normal_form
from single_turn_bench.answers import MAX_ANSWER, NOTHING, STATEMENTS, Extracted, answer_tags, own_answer, reply_of
from single_turn_bench.boxes import boxed_answer
from single_turn_bench.languages import STATEMENT
from single_turn_bench.prose import is_bare

OPEN, CLOSE = "<answer>", "</answer>"
STYLED = re.compile(r"\\(?:text\w*|mathrm|mathbf|mathtt)\s*\{(.*)\}", re.S)
ESCAPED = re.compile(r"\\([#%&_${} ])")
QUOTED = re.compile(r"([\"'`]|\*\*)(.*)\1|\$(.*)\$|\\\((.*)\\\)", re.S)
FULL_STOP = re.compile("[.。।۔]$")
RAISED = re.compile("(?<=\\d)(?=[²³¹⁰⁴-⁹½¼¾⅐-⅞])")  # 10² is not 102, and 5½ not 51/2
FENCE = re.compile(r"```\w*\n?")


def verbatim_answer(text: str) -> Extracted:
    """What the first rule of the table above that fires finds; of one kind the last counts."""
    text = own_answer(reply_of(text), states)
    _, tag, tail = text.rpartition(OPEN)
    if tag and (inside := without_box(tail.partition(CLOSE)[0].strip())):
        return Extracted(inside[:MAX_ANSWER], "tag")
    if (others := answer_tags(text)) and re.search("ans|box", others[0].name):
        return Extracted(without_box(others[0].content)[:MAX_ANSWER], "tag")
    text = text.replace(OPEN, "").replace(CLOSE, "")
    if (box := boxed_answer(text)) is not None and (inside := without_latex(box.content)):
        return Extracted(inside[:MAX_ANSWER], "boxed")
    for pattern in (*STATEMENTS[1:], STATEMENT):  # all but ####, which is a heading here
        ends = [match.end() for match in pattern.finditer(text)]
        if ends and (answer := plain(first_block(text[ends[-1] :][:MAX_ANSWER]))):
            return Extracted(answer, "statement")
    lines = [line for line in FENCE.sub("", text).splitlines() if line.strip()]
    answer = plain(lines[-1][-MAX_ANSWER:]) if lines else ""
    return Extracted(answer, "last_line") if answer else NOTHING


def without_box(text: str) -> str:
    """What a box holds, if it is all of the text."""
    box = boxed_answer(text)
    return without_latex(box.content) if box and text.strip(" $") == text[box.start : box.end] else text


def states(text: str) -> bool:
    """Whether a text states an answer, or is nothing but one: a few words that end no sentence."""
    if text.rpartition(CLOSE)[0] or boxed_answer(text) or any(pattern.search(text) for pattern in STATEMENTS[1:]):
        return True
    lines = [line for line in text.splitlines() if line.strip()]
    return bool(lines) and all(is_bare(line) and line.rstrip()[-1] not in ".:!?," for line in lines)


def tagged(answer: str) -> str:
    """A reply whose answer is read without a change."""
    return f"{OPEN}{answer}{CLOSE}"


def first_block(text: str) -> str:
    """The rest of the line; when nothing is left of it, the lines that follow, up to an empty one."""
    line, _, below = text.partition("\n")
    if FENCE.sub("", line).strip(" *:"):
        return line
    below = (text if line.strip().startswith("```") else below).strip()
    if fence := FENCE.match(below):
        return below[fence.end() :].partition("```")[0]
    return below.partition("\n\n")[0]


def plain(text: str) -> str:
    """Without what only sets an answer off: emphasis, quotes, dollar signs, the full stop of its sentence."""
    text = FULL_STOP.sub("", text.strip(" \t\n*")).strip(" \t\n*")
    if quoted := QUOTED.fullmatch(text):
        text = next(part for part in quoted.groups()[1:] if part is not None).strip()
    return without_latex(text)


def without_latex(text: str) -> str:
    r"""`\text{a\_b}` is a_b."""
    if styled := STYLED.fullmatch(text.strip()):
        text = styled[1]
    return ESCAPED.sub(r"\1", text).strip()


def same_text(prediction: str | None, gold: str) -> bool:
    """Whether two answers are one but for case, blanks, typography, quotes around and a last full stop."""
    return prediction is not None and bare(prediction) == bare(gold)


def bare(text: str) -> str:
    return folded(plain(normal_form(RAISED.sub("^", text))))
