"""What a model that was asked for one of a few words concludes, of all the words that its reply holds.

    That is not incorrect. Judgement: correct          yes
    At first sight correct, but no. **Incorrect**      no
    It is not only partially correct, it is correct.   yes
    Partially correct                                  no

The word behind "judgement:" and the like counts before one that stands alone or in brackets, and that before one in a
sentence; of equals the last. A denied word is its contrary. Lists of the words to choose from, questions, "the correct
answer is 5" and "it would be incorrect to ..." conclude nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from core.reply_marks import plain_reply

PARTLY = (
    r"(?:partial|part|most|near|half|almost|some\s?what|not\s+(?:entire|full|complete|whole|total|quite|strict))"
    r"(?:ly)?[\s-]+"
)
# What stands between a denial and the word that it denies: "cannot be considered fully correct".
PASSING = (
    r"(?:(?:be|been|being|is|was|considered|called|deemed|judged|counted|regarded|accepted|marked|graded|seen|as|an?|the"
    r"|call|judge|consider|think|believe|say|mark|give|provide|contain|reach|state|seem|appear|have|any|to|that|this|it"
    r"|student['’]?s?|answer|response|report|really|quite|in\s+any\s+way|at\s+all|\w+ly)\s+){0,6}"
)
DENIAL = (
    r"(?:\b(?:not|never|cannot|hardly|neither|nor|no|nothing|without|far\s+from|rather\s+than|instead\s+of)|n['’]t)"
)
DENIED = re.compile(rf"{DENIAL}\s+{PASSING}[\"'“*`\[(]{{0,4}}$", re.I)
NOT_ONLY = re.compile(r"\bnot\s+(?:only|just|merely|simply)\s+(?:\w+\s+){0,2}$", re.I)
NAME = (
    r"(?:judge?ment|verdict|conclu\w+|decision|grad(?:e|ing)|result|rating|evaluation|assessment|status|label"
    r"|answer|output|return"
    r"|correctness|classification)"
)
STATED = re.compile(
    rf"\b{NAME}[\"'*_`)\s]{{0,6}}(?:\bis\b|[:=>→–—-]+)[\s\"'*_`\[({{>:]{{0,12}}(?:not\s+{PASSING}|n['’]t\s+)?$", re.I
)
IN_STATED = re.compile(rf"\b(?!answer){NAME}[\"'*_`)\s]{{0,6}}(?:\bis\b|\bthat\b|[:=>→–—-]+)[^.!?\n;]*$", re.I)
ONLY_ANSWER_IS = re.compile(r"\banswer[\"'*_`)\s]*\bis\b", re.I)
SET_OFF = re.compile(r"(?:\[|\*\*|__)\s*$")
ALONE = re.compile(
    r"(?:^|[.!?\n:][\s\"'*_`#>)\]]*)[\s\"'*_`#>(\[-]*(?:(?:yes|no|so|thus|therefore|hence|overall|finally"
    r"|absolutely|completely|fully"
    r"|totally|entirely|clearly|simply)\b[\s,:;–—-]*)*[\"'*_`(\[]*$",
    re.I,
)
ENDS = re.compile(r"[\"'*_`)\]]*\s*(?:[.,:;!\n–—]|-\s|$)")
QUESTION = re.compile(r"[\"'*_`)\]]*\s*\?")
NOUN = re.compile(
    r"\s+(?:answer|response|one|value|result|reference|order|information|solution|option|name|wording)s?\b", re.I
)
PREDICATE = re.compile(
    r"(?:\b(?:not|is|are|was|be|as|gives?|gave|given|provides?|provided|contains?|has|reached)\b|['’]s)\s+(?:\w+\s+){0,2}$",
    re.I,
)
SUPPOSED = re.compile(r"\b(?:whether|if|would\s+be|could\s+be|might\s+be|should\s+it\s+be)\s+(?:[\w']+\s+){0,4}$", re.I)
CONCEDED = re.compile(r"\b(?:al)?though\b|\beven\s+(?:if|though)\b|\bdespite\b", re.I)
OTHER_WORDS = re.compile(r"\s+(?:words?|wordings?|phras\w+|terms?|ways?|forms?|formats?|language)\b", re.I)
ABOUT_WORDS = re.compile(
    r"\b(?:words?|wordings?|phras\w+|terms?|forms?|formats?|language)\s+(?:is|are|may\s+be)\s+$", re.I
)
FIELD = r"(?<![A-Za-z])(?:is_?)?(?P<word>{yes}|{no})[\"']?\s*[:=]\s*[\"']?(?P<value>true|yes|false|no|1|0)\b"
TRUE = ("true", "yes", "1")


def concludes(reply: str, yes: str, no: tuple[str, ...]) -> bool | None:
    """Whether the reply says `yes`, or one of the other words that were to choose from; None for neither."""
    contrary = "|".join(["wrong", *(re.escape(word) for word in no if yes not in word.split())])
    text = without_menus(plain_reply(reply), yes, contrary)
    found = max(verdicts(text, yes, contrary), key=lambda each: each[:2], default=None)
    return None if found is None else found[2]


def verdicts(text: str, yes: str, no: str) -> Iterator[tuple[int, int, bool]]:
    """(strength, place, whether it is yes) of each word that concludes something."""
    for match in re.finditer(FIELD.format(yes=yes, no=no), text, re.I):
        said = match["value"].lower() in TRUE
        yield 4, match.start(), said == (match["word"].lower() == yes)
    pattern = rf"(?P<partly>(?:{PARTLY}){yes})\b|\b(?P<no>{no})\b|\b(?P<yes>{yes})\b"
    for match in re.finditer(pattern, text, re.I):
        before, behind = text[max(0, match.start() - 160) : match.start()], text[match.end() : match.end() + 40]
        if match["partly"]:
            positive = None if DENIED.search(before) or NOT_ONLY.search(before) else False
        else:
            positive = bool(match["yes"]) != bool(DENIED.search(clause(before)))
        if positive is None or concludes_nothing(before, behind):
            continue
        yield strength(before, behind), match.start(), positive


def clause(before: str) -> str:
    return re.split(r"[.!?;\n:]", before)[-1]


def concludes_nothing(before: str, behind: str) -> bool:
    near = clause(before)
    return bool(
        QUESTION.match(behind)
        or NOT_ONLY.search(near)
        or re.match(r"\s+to\s", behind)
        or (NOUN.match(behind) and not PREDICATE.search(near))
        or SUPPOSED.search(near)
        or OTHER_WORDS.match(behind)
        or ABOUT_WORDS.search(near)
    )


def strength(before: str, behind: str) -> int:
    """4 behind "judgement:", 3 later in that sentence, 2 alone or in brackets, 1 elsewhere, 0 where it is conceded."""
    if CONCEDED.search(clause(before)):
        return 0
    if (stated := STATED.search(before)) and not ONLY_ANSWER_IS.match(stated.group()):
        return 4
    if IN_STATED.search(before):
        return 3
    return 2 if SET_OFF.search(before) or (ALONE.search(before) and ENDS.match(behind)) else 1


def without_menus(text: str, yes: str, no: str) -> str:
    """Without the words to choose from: "correct/incorrect/partially correct", "[same] or [different]"."""
    word = rf"[\"'*_`\[(]{{0,3}}(?:(?:partially|partly)\s+)?(?:{yes}|{no})[\"'*_`\])]{{0,3}}"
    menu = re.compile(rf"\b{word}(?:\s*(?:/|\||,\s*or\b|,|\bor\b)\s*{word})+", re.I)
    return menu.sub(lambda match: " " if re.search(r"[/|]|\bor\b", match[0]) else match[0], text)
