"""Options that a text calls true or false one by one, without saying which of them is its answer.

    "Statements A, B and D are true. Statement C is incorrect."   C is set apart, whichever of the two is asked for
    "A and B are true, C and D are false."                        none is

Where the text states its answer, that counts (choice.py).
"""

from __future__ import annotations

import re

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

NOUN = r"(?:(?i:statements?|options?|choices?|answers?|claims?|items?|sentences?)\s+)"
ONE = rf"{NOUN}?[(\[\"'“‘]?(?<![\w'’-])[A-Z](?![\w-]|['’]\w)[)\]\"'”’]?"
LIST = rf"{ONE}(?:\s*(?:,|&|/|\band\b|\bor\b|\bnor\b)(?:\s*(?:and|or|nor)\b)?\s*{ONE}){{0,25}}+"
TRUE = r"(?:true|correct|right|valid|accurate)"
FALSE = r"(?:false|incorrect|wrong|invalid|inaccurate|untrue)"
# Not "the correct one", nor "correct answer": these choose.
ADVERB = r"(?:an?|all|both|each|also|clearly|indeed|therefore|thus|actually|factually|definitely|certainly)"
WORD = (
    rf"(?:{ADVERB}\s+){{0,3}}(?:(?P<not>not|never)\s+(?:an?\s+)?)?(?:(?P<true>{TRUE})|(?P<false>{FALSE}))\b"
    r"(?!\s+(?:answer|choice|option))"
)
BE = r"(?:is|are|was|were|must\s+be|seems?\s+to\s+be|appears?\s+to\s+be)"
NOT = r"(?:n['’]t|\s+not)"
JUDGED = re.compile(
    rf"(?<![A-Z], )(?<![A-Z] and )(?P<letters>{LIST})\s*(?:(?:all|both|each)\s+)?"
    rf"(?:{BE}(?P<denied>{NOT})?\s+{WORD}|{BE}(?P<opposite>{NOT})(?=\s*(?:[.,;!\n]|$))"  # "... while D is not."
    rf"|(?P<holds>holds?\b)|(?P<fails>(?:do(?:es)?{NOT}\s+hold|fails?)\b)"
    rf"|[:.)(–—=-]?\s*(?P<said>(?<=[:.)(–—= -])(?i:{TRUE}|{FALSE})|[✓✔✅✗✘❌])(?=\s*(?:[).,;:\n–—-]|$)))"
)
# "C. All metals are liquid: False", "(C) All metals are liquid. This statement is not true."
LINE = re.compile(
    rf"(?m)^[ \t]*\(?(?P<letters>[A-Z])[).:]\s[^\n]{{0,400}}?"
    rf"(?:[:(–—-]\s*|\b(?i:this|that|it|which)(?:\s+(?:statement|option|one|claim))?\s+is(?P<denied>{NOT})?\s+(?:{ADVERB}\s+)?)"
    rf"(?P<said>(?i:{TRUE}|{FALSE})|[✓✔✅✗✘❌])[^\w\n]{{0,3}}$"
)
HINT = re.compile(rf"\b(?:{TRUE}|{FALSE}|holds?|fails?)\b|[✓✔✅✗✘❌]", re.I)
# "The true statements are A, B and D", "the incorrect one is C"
NAMED = re.compile(
    rf"\b(?:(?P<true>{TRUE})|(?P<false>{FALSE}))\s+(?:statements?|ones?|claims?|sentences?)\s*(?:is|are|:)\s*:?\s*"
    rf"(?P<letters>{LIST})",
    re.I,
)
EXCEPT = re.compile(
    rf"\b(?:all|every|each|everything)\b[^.\n]{{0,40}}?\b(?:except|but|besides|other\s+than)(?:\s+for)?\s+"
    rf"(?P<letters>{LIST})\s*(?:is|are)\s+{WORD}",
)
SUPPOSED = re.compile(r"\b(?:if|whether|unless|suppose|assume|assuming|supposing|when)\b[^.,;\n]{0,20}$", re.I)
NEITHER = re.compile(r"\b(?:neither|none\s+of)\s+(?:of\s+)?$", re.I)
ONLY = re.compile(r"\bonly\s+$", re.I)


def apart_and_alike(text: str, n_options: int) -> tuple[str | None, frozenset[str]]:
    """(the letter that alone is called true, or alone false, where all options are judged; those judged like others).

    A letter that is judged by itself, while some options are not judged at all, is not alike with another one: the
    last such word counts, as in "B is correct. Wait, C is correct".
    """
    if not HINT.search(text):
        return None, frozenset()
    options = LETTERS[:n_options]
    verdicts, joint = judgements(text, options)
    groups = [{letter for letter in verdicts if verdicts[letter] is verdict} for verdict in (True, False)]
    everything = len(verdicts) == n_options
    alike = frozenset(letter for group in groups if len(group) > 1 for letter in group if everything or letter in joint)
    single = [letter for group in groups if len(group) == 1 for letter in group]
    return (single[0] if everything and n_options > 2 and len(single) == 1 else None), alike


def judgements(text: str, options: str) -> tuple[dict[str, bool], set[str]]:
    """(what each letter is called at last, the letters that were called it together with others)."""
    verdicts: dict[str, bool] = {}
    joint: set[str] = set()
    last = True
    found = [match for pattern in (JUDGED, NAMED, EXCEPT, LINE) for match in pattern.finditer(text)]
    for match in sorted(found, key=lambda match: match.end()):
        letters = [letter for letter in re.findall(r"(?<!\w)[A-Z](?!\w)", match["letters"]) if letter in options]
        before = text[max(0, match.start() - 40) : match.start()]
        if not letters or SUPPOSED.search(before):
            continue
        last = verdict = called_true(match, last) is not bool(NEITHER.search(before))
        if match.re is EXCEPT or ONLY.search(before):
            others = [letter for letter in options if letter not in letters]
            verdict = verdict is not (match.re is EXCEPT)
            verdicts |= dict.fromkeys(others, not verdict)
            joint |= set(others)
        verdicts |= dict.fromkeys(letters, verdict)
        joint = joint | set(letters) if len(letters) > 1 else joint - set(letters)
    return verdicts, joint


def called_true(match: re.Match, last: bool) -> bool:
    """What a match says; "while D is not" says the opposite of what was said last."""
    said = match.groupdict()
    if said.get("opposite"):
        return not last
    denied = bool(said.get("not")) is not bool(said.get("denied"))
    if said.get("said"):
        return (re.fullmatch(rf"{TRUE}|[✓✔✅]", said["said"], re.I) is not None) is not denied
    return bool(said.get("true") or said.get("holds")) is not denied
