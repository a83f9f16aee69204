"""What a model that grades an answer concludes: by a JSON object, if it gives one, else by the last of the words.

    {"judgement": "correct"}                           yes
    At first sight correct, but no. **Incorrect**      no
    That is not incorrect. Judgement: correct          yes

Of words, one behind "judgement:" and the like counts before one that stands alone or set off, and that before one in a
sentence; a denied word is its contrary. Words to choose from, questions and suppositions conclude nothing.
"""

from __future__ import annotations

import re

from core.learning.structured import parse_json
from core.reply_marks import plain_reply

PARTLY = r"(?:(?:partial|part|most|near|half|almost|not\s+(?:entire|full|complete|quite))(?:ly)?[\s-]+)"
DENIED = re.compile(
    r"(?:\b(?:not|never|cannot|hardly|neither|nor|nothing|far\s+from|rather\s+than)|n['’]t)\s+(?:(?!only\b|just\b)[\w'’]+\s+){0,4}$",
    re.I,
)
STATED = re.compile(
    r"\b(?:judge?ment|verdict|conclusion|grade|result|return)[\"'*_`)\s]*(?:\bis\b|\bwould\s+be\b|[:=>→–-])[^.!?]{0,60}$",
    re.I,
)
ALONE = re.compile(r"(?:^|[.!?\n:✅❌])[\s\"'*_`#>(\[]*(?:(?:yes|no|so|fully)\b[\s,—-]*)*$|(?:\[|\*\*)$", re.I)
SUPPOSED = re.compile(r"\b(?:whether|if|would\s+be|although|though|while)\s+(?:[\w']+\s+){0,4}$", re.I)
NOUN = re.compile(r"\s+(?:one|answer|value|response|words?)\b", re.I)
PREDICATE = re.compile(r"\b(?:gives?|given|is|are|not)\s+(?:\w+\s+){0,2}$", re.I)


def concludes(reply: str, yes: str, no: tuple[str, ...]) -> bool | None:
    """Whether the reply says `yes`, or one of the other words that were to choose from; None for neither."""
    text = plain_reply(reply)
    for key in ("judgement", "verdict", yes):
        said = (parse_json(text, key) or {}).get(key)
        if isinstance(said, bool):
            return said
        if isinstance(said, str) and said.strip().lower() in (yes, *no):
            return said.strip().lower() == yes
    contrary = "|".join(["wrong", *(re.escape(word) for word in no if yes not in word.split())])
    word = rf"[\"'*_`\[(]*(?:partially\s+)?(?:{yes}|{contrary})[\"'*_`\])]*"
    text = re.sub(rf"\b{word}(?:\s*(?:/|\||,?\s*or\b)\s*{word})+", " ", text, flags=re.I)  # the words to choose from
    found: list[tuple[int, int, bool]] = []
    for match in re.finditer(rf"(?P<partly>{PARTLY}{yes})\b|\b(?P<no>{contrary})\b|\b{yes}\b", text, re.I):
        before = re.split(r"(?<=[.!?;])\s|\n(?=\w)", text[max(0, match.start() - 160) : match.start()])[-1]
        denied = DENIED.search(before)
        strength = 2 if STATED.search(before) else 1 if ALONE.search(before) else 0
        named = NOUN.match(text, match.end()) and not PREDICATE.search(before)  # "the correct answer is 17"
        asked = re.match(r"[\"'*_`)\]]*\s*\?|\s+to\s", text[match.end() :])
        if named or asked or SUPPOSED.search(before):
            continue
        if not (match["partly"] and denied):
            found.append((strength, match.start(), not (match["partly"] or bool(match["no"]) is not bool(denied))))
    return max(found)[2] if found else None
