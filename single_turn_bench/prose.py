r"""Words around a value: which part of a sentence is the answer, and which part only says something about it.

"18 dollars because 9 eggs are sold"    claimed     18 dollars
"42, not 40"; "42 (7 days of 6)"        claimed     42
"42 apples in 7 days"                   claimed     42 apples
"9 eggs at $2, which is $18"            claimed     None    (a conclusion follows: the last value counts)
"2. Check the sum"                      no line with a value: a heading
"""

from __future__ import annotations

import re

from single_turn_bench.characters import FOREIGN

MAX_BARE_WORDS = 3  # with more prose a line is a sentence, not an answer
MAX_CUTS = 20
MONEY = str.maketrans("$€£¥₹", "     ")
PROSE_IN_MATH = re.compile(r"(?<![\\A-Za-z{])[A-Za-z]{3,}\s+[A-Za-z]{2,}(?![A-Za-z}])")
STYLED = r"\\(?:text\w*|mbox|hbox|mathrm|operatorname)\s*\{[^{}]*\}"
MARKUP = re.compile(rf"\\(?:begin|end)\{{\w+\*?\}}|{STYLED}|\\[A-Za-z]+|\$[^$\n]*\$")
VERB = re.compile(r"\b(?:is|are|was|be|equals|gives|makes|yields|so|thus|hence|therefore)\b")
# of a script without blanks, two letters
WORD = re.compile(rf"(?<=\d)or(?=[A-Z])|[A-Za-z\u00c0-\u024f]{{2,}}|[\u3040-\u9fff]{{1,2}}|[{FOREIGN}]{{2,}}")
MATH_WORDS = frozenset(
    "and or sqrt pi sin cos tan cot sec csc log ln exp inf infinity percent asin acos atan factorial binomial".split()
)

# Markdown's **bold**, *italics*, __the same__ and `code`; products, powers and indices stay.
EMPHASIS = re.compile(r"`+|(?<![\w)\]}\\*_])[*_]{1,3}(?=[^\s*_])|(?<=[^\s*_\\])[*_]{1,3}(?![\w({\\*_])")
COUNT = (
    "zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\\w+teen"
    "|\\w+ty|hundred|thousand|[mb]illion|dozen|half"
)
# What only says something about the value before it.
ASIDE = re.compile(
    # a reason or a contrast
    r"(?:\s*[,;:]|\s+[-–—])?\s+"
    r"(?:because|since|rather\s+than|instead\s+of|(?:and\s+|but\s+)?not|as(?!\s+(?:many|much|few|\w+\s+as)\b))\b"
    # a clause without a number: "72, in total", "42 - that is all"; "5, Monday", "2, x" and "3, or four" are lists
    rf"|(?:\s*[,;:]|\s+[-–—]{{1,2}})\s+(?!(?:[A-Za-z'’]+\s+){{0,8}}(?:{COUNT})\b)(?:[a-z]{{3,}}|[A-Za-z'’]+,?\s+[a-z])(?=[^\d\\$=]*$)"
    # a note in brackets that ends the sentence; (mod 5), (x + 1) and (million) belong to the value
    r"|\s+\((?![^()]*\b(?:mod|base|(?:hundr|thous|milli|billi|trilli|doz)\w+)\b)"
    rf"(?=\s*[=≈$]|[^()]*(?:(?<![\\A-Za-z])(?!(?:{'|'.join(sorted(MATH_WORDS))})\b)[A-Za-z]{{2,}}"
    r"|\d\s*(?:[-+*/×÷]|\\(?:times|cdot|div))\s*[$€£]?\d))[^()]*(?:\)[^\d=+*/^]*)?$"
    # a place or time behind a unit, of which nothing is concluded: "42 apples in 7 days"
    r"|(?<=[A-Za-z%])\s+(?:in|per|at|after|for|from|on|with|within|during|every|each)\s(?=\D*\d[^,;=≈]*$)"
    r"|(?<=\d)\s+in\s(?=\d+\s(?:second|minute|hour|day|week|month|year)s?\b[^,;=≈]*$)"
)
ARITHMETIC = re.compile(
    r"\b(?:times|plus|minus|divided|multiplied|squared|cubed|twice|half|of|to|by|out|(?:more|less|fewer)\s+than)\b",
    re.I,
)
ABOUT = re.compile(r"^(?:about|approximately|around|roughly|exactly|only|just|simply|a total of)\s+", re.I)
HEADING = re.compile(r"\W*\d{1,2}\s*[.):–—-]\s*[*_]*[A-Za-z]{2,}|[^\w\\]*\d{1,2}\s+[A-Z][a-z]{2,}")


def without_emphasis(text: str) -> str:
    return EMPHASIS.sub("", text)


def claimed(sentence: str) -> str | None:
    """The value that a sentence starts with when prose about it follows; None when all of it has to be read."""
    sentence = re.sub(r"\s+", " ", sentence)  # so that no pattern has a run of spaces to try
    heads = (sentence[: cut.start()] for cut in list(ASIDE.finditer(sentence))[:MAX_CUTS])
    return next(filter(starts_with_value, heads), None)


def starts_with_value(head: str) -> bool:
    head = ABOUT.sub("", head)
    return re.search(r"\d|\\", head) is not None and is_bare(head) and not ARITHMETIC.search(head)


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
    if re.search(rf"[{FOREIGN}]", line):
        return False
    return re.match(r"[^\w\\]*(?:\d|\\[A-Za-z])", line) is not None and not VERB.search(line)
