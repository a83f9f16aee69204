r"""Words around a value: which part of a sentence is the answer, and which part only says something about it.

"18 dollars because 9 eggs are sold"    claimed     18 dollars
"42, not 40"                            claimed     42
"42 apples in 7 days"                   claimed     42 apples
"9 eggs at $2, which is $18"            claimed     None    (a conclusion follows: the last value counts)
"2. Check the sum"                      no line with a value: a heading
"""

from __future__ import annotations

import re

MAX_BARE_WORDS = 3  # with more prose a line is a sentence, not an answer
MAX_CUTS = 20
MONEY = str.maketrans("$€£¥₹", "     ")
PROSE_IN_MATH = re.compile(r"(?<![\\A-Za-z{])[A-Za-z]{3,}\s+[A-Za-z]{2,}(?![A-Za-z}])")
STYLED = r"\\(?:text\w*|mbox|hbox|mathrm|operatorname)\s*\{[^{}]*\}"
MARKUP = re.compile(rf"\\(?:begin|end)\{{\w+\*?\}}|{STYLED}|\\[A-Za-z]+|\$[^$\n]*\$")
VERB = re.compile(r"\b(?:is|are|was|be|equals)\b")
WORD = re.compile(r"(?<=\d)or(?=[A-Z])|[A-Za-z]{2,}")
MATH_WORDS = frozenset(
    "and or sqrt pi sin cos tan cot sec csc log ln exp inf infinity percent asin acos atan factorial binomial".split()
)

EMPHASIS = [
    (re.compile(r"`+"), ""),
    (re.compile(r"(?<![\w*)\]}])(\*{1,3})(?=[^\s*])([^*\n]*[^\s*])\1(?![\w*({\\])"), r"\2"),
    (re.compile(r"(?<![\w\\}])(_{1,2})(?=[^\s_{])([^_\n]*[^\s_])\1(?!\w)"), r"\2"),
    # Closed here, opened before the statement: "**Answer: 18** dollars". No product or power has a space behind alone.
    (re.compile(r"(?<=[^\s*])\*{1,3}(?=\s*$|[.,;:!?)]|\s+(?:\(|[A-Za-z]{2,}))"), ""),
]
# What follows gives a reason or the contrast, and is no part of what was claimed.
REASON = re.compile(
    r"(?:\s*[,;:]|\s+[-–—])?\s+"
    r"(?:because|since|rather\s+than|instead\s+of|(?:and\s+|but\s+)?not|as(?!\s+(?:many|much|few|\w+\s+as)\b))\b"
)
REMARK = re.compile(r"\s*[,;]\s+(?=(?:I|we|she|he|it|they|which|who|that|so|as|assuming|making|leaving|the|this)\b)")
NOTE = re.compile(r"\s+\((?P<inside>[^()]*)(?:\)(?P<behind>.*))?$")
PLACE = re.compile(r"\s+(?:in|per|at|after|for|from|on|with|within|during|every|each)\s(?=[^\d]*\d)")
# A value later in the sentence is the conclusion of what stands before it.
CONCLUSION = re.compile(
    r"[=≈]|\d\s*[-+*/×^]\s*\(?\$?\d|[,;]\s*(?:and\s+)?[$€£]?\s?\d|\b(?:and|or)\s+[$€£]?\d"
    r"|\b(?:so|or|thus|hence|therefore|which|that\s+is|i\.e|equals?|makes?|making|gives?|giving|mean(?:s|ing)|total\w*)\b",
    re.I,
)
ARITHMETIC = re.compile(
    r"\b(?:times|plus|minus|divided|multiplied|squared|cubed|twice|half|of|to|by|out|(?:more|less|fewer)\s+than)\b",
    re.I,
)
ABOUT = re.compile(r"^(?:about|approximately|around|roughly|exactly|only|just|simply|a total of)\s+", re.I)
WORKING = re.compile(r"\d\s*(?:[-+*/×÷]|\\(?:times|cdot|div)(?![a-z]))\s*[$€£]?\d")
NOTE_IN_MATH = frozenset("mod pmod base hundred thousand million billion trillion dozen".split())
HEADING = re.compile(r"\W*\d{1,2}\s*[.):–—-]\s*[*_]*[A-Za-z]{2,}|[^\w\\]*\d{1,2}\s+[A-Z][a-z]{2,}")


def without_emphasis(line: str) -> str:
    """Without Markdown's **bold**, *italics*, __the same__ and `code`; products, powers and indices stay."""
    for pattern, replacement in EMPHASIS:
        line = pattern.sub(replacement, line)
    return line


def claimed(sentence: str) -> str | None:
    """The value that a sentence starts with when prose about it follows; None when all of it has to be read."""
    sentence = re.sub(r"\s+", " ", sentence)  # so that no pattern has a run of spaces to try
    for cut in list(REASON.finditer(sentence))[:MAX_CUTS]:
        if starts_with_value(head := sentence[: cut.start()]):
            return claimed(head) or head
    if (note := NOTE.search(sentence)) and is_note(note) and starts_with_value(sentence[: note.start()]):
        return sentence[: note.start()]
    for cut in list(REMARK.finditer(sentence))[:MAX_CUTS]:
        if not re.search(r"[\d\\$=]", sentence[cut.end() :]) and starts_with_value(sentence[: cut.start()]):
            return sentence[: cut.start()]
    place = None if CONCLUSION.search(sentence) else PLACE.search(sentence)
    head = sentence[: place.start()] if place else ""
    measured = re.search(r"[A-Za-z%]$|^[$€£¥₹]", head)  # "1 in 4" is one value
    return head if measured and starts_with_value(head) else None


def starts_with_value(head: str) -> bool:
    head = ABOUT.sub("", head)
    return re.search(r"\d|\\", head) is not None and is_bare(head) and not ARITHMETIC.search(head)


def is_note(note: re.Match) -> bool:
    """Whether brackets explain the value before them; `(mod 5)`, `(x + 1)` and `(million)` belong to it."""
    inside, behind = note["inside"], note["behind"] or ""
    words = {word.lower() for word in WORD.findall(MARKUP.sub(" ", inside))} - MATH_WORDS
    explains = words or re.match(r"\s*[=≈$]", inside) or WORKING.search(inside)
    return bool(explains) and not words & NOTE_IN_MATH and not re.search(r"[\d=+*/^]", behind)


def is_value_line(line: str, last: bool) -> bool:
    """Whether a line holds a value and no heading. Mere words are a value only where nothing follows them."""
    line = without_emphasis(line)
    value = claimed(line) or line
    if last and is_bare(value) and not re.search(r"\d", value):
        return True
    return bool(re.search(r"[\d$\\]", value)) and is_bare(value) and not HEADING.match(line)


def is_formula(span: str) -> bool:
    """Not the text between two amounts of money: `$5 a day and then $`."""
    return not PROSE_IN_MATH.search(re.sub(STYLED, "", span)) and not is_money(span)


def is_money(span: str) -> bool:
    """`$18 because 9 * $`, `$18, since $`: an amount, a word that is no mathematics, and the next amount's sign."""
    amount = re.match(r"\s*\$\d[\d,.]*\s*[,;:(]?\s+\(?([A-Za-z]{4,})\b.*\s\$$", span, re.S)
    return amount is not None and amount[1].lower() not in MATH_WORDS


def is_bare(line: str) -> bool:
    """Whether a line is an answer by itself: a formula, a number with its unit, or a few words without a number."""
    if not re.search(r"[^\W_]", line):
        return False
    words = [word for word in WORD.findall(MARKUP.sub(" ", line)) if word.lower() not in MATH_WORDS]
    if len(words) > MAX_BARE_WORDS:
        return False
    if not words or not re.search(r"[\d$\\]", line):
        return True
    return re.match(r"[^\w\\]*(?:\d|\\[A-Za-z])", line) is not None and not VERB.search(line)
