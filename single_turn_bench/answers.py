r"""The final answer in a model's response, and which rule found it.

    "... <answer>12</answer> as shown above"   tag           12
    "... so x = \boxed{\frac{1}{2}}."          boxed         \frac{1}{2}
    "The final answer is $12\pi$."             final_answer  $12\pi$
    "12\n\nIt is three dozen fourths."          lone          12            (a number alone on the first line)
    "2\sqrt{3}"                                last_line     2\sqrt{3}     (a bare answer)
    "We conclude that $x \ge 5$ suffices."     last_math     $x \ge 5$
    "She has 12 + 30 = 42 apples in all."      last_number   42

Delimiters and units stay: notation.py and units.py take them off when answers are compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from core.reply_marks import Tagged, next_turns, plain_reply, tagged_answers
from single_turn_bench.boxes import boxed_answer
from single_turn_bench.characters import plain_characters
from single_turn_bench.languages import in_english
from single_turn_bench.notation import normalize
from single_turn_bench.plain_numbers import read
from single_turn_bench.prose import MONEY, claimed, is_bare, is_formula, is_value_line, without_emphasis

MAX_RESPONSE = 400_000  # characters, from the end
MAX_ANSWER = 10_000
MAX_JOINED = 20
MAX_TURNS = 20  # that a model may have invented, looked at from the beginning
MAX_MARKS = 50  # of one kind of statement, looked at from the end

CALCULATOR = re.compile(r"<<[^<>\n]{0,200}>>")  # GSM8K's annotations
# No opening delimiter stands in a span: many of them that nothing closes would each be read to the end.
SPAN = r"(?:\$\$.+?\$\$|\\\[(?:(?!\\\[).)+?\\\]|\\\((?:(?!\\\().)+?\\\)|(?<!\\)\$(?:\\.|[^$\n\\])+\$)"
# Statements of the answer, strongest first; of one strength the last counts.
MARK = re.compile(r"#{4,}[ \t]*")  # GSM8K's; Markdown has headings of the same look
STRONG = (
    MARK,
    re.compile(r"final\s+answers?\s*(?:\([^()\n]{0,40}\)\s*)?(?:is|are|:|\*\*|=)[ \t:*]*", re.I),
)
STATEMENTS = (
    *STRONG,
    re.compile(r"(?:^|\n)[#* \t]*final\s+answer[*:\s]*\n\s*", re.I),
    re.compile(
        r"(?<![A-Za-z])(?:answers?|ans\.?(?=\s*[:=]))(?:\s+(?:to|of|for|we|I)\s[^.\n]{0,80}?|,\s+(?:then|therefore|thus),)?"
        # a run of blanks is entered at its start only
        r"(?<!\s)(?:\s*+[:=]|\s++(?:(?:is|are)(?![A-Za-z])|equals|(?:should|must|will|would|turns\s+out\s+to)\s+be"
        r"|comes\s+(?:out\s+)?to(?:\s+be)?(?![A-Za-z])))[ \t:*]*",
        re.I,
    ),
    re.compile(r"(?:^|\n)[ \t]*A[ \t]*:[ \t]*"),
)
# "The final answer is an integer between 0 and 999" says what is asked for; "an integer, namely 5" or "a value of 5"
# what it is.
GIVEN = rf"\s*,?\s+(?:of\s+|equal\s+to\s+)?(?:{SPAN}|-?[$€£¥₹]?\d[\d.,/]*+)(?!\s*-?digit)[^\d\\$]*$"
REQUIREMENT = re.compile(
    r"(?:(?:always|also|then|expected|required|supposed|guaranteed|known|to\s+be)\s+)*"
    rf"(?:an?\s+(?:[\w-]+\s+){{0,3}}(?:integer|number|fraction|decimal|value)s?\b(?!{GIVEN})"
    r"|(?:required|expected|supposed|guaranteed)\b|rounded\b|(?:in|of)\s+the\s+(?:form|range)\b|between\b|(?:less|greater|more)\s+than\b|at\s+(?:most|least)\b)"
    r"(?!.*(?:[:=]|\b(?:namely|which|is|so|that)\b))",
    re.I | re.S,
)
LEAD_IN = re.compile(r"^(?:(?:therefore|thus|hence|then|indeed|simply|clearly|actually|now)\b\s?,?\s?)+", re.I)
# "The answer is not 5. It is 6."; "not a function" may well be the answer.
DENIAL = re.compile(
    r"not\s(?=[^.\n]*[\d\\$]|(?:zero|one|two|three|four|five|six|seven|eight|nine|ten)\b|[A-Za-z][ *]*(?:[.,;\n]|$))"
    r"(?![^.\n]*\b(?:but|rather|instead|it)\b)",
    re.I,
)
# "Our answer of 18 is correct", "the answer is not an integer": a word about the answer; "Answer: right" is one itself.
REMARK = re.compile(
    r"(?:(?:indeed|also|clearly|therefore|thus|definitely|quite)\s+)*"
    r"(?:not\s+(?:an?\s+)?(?:[\w-]+\s+)?(?:integer|number|fraction|decimal|negative|positive)"
    r"|(?:not\s+)?(?:(?:in)?correct|right|wrong|(?:un)?reasonable|(?:in)?consistent|(?:in)?valid|verified|confirmed|plausible))"
    r"(?:\s+and\s+(?:correct|right|reasonable|consistent|valid|verified|complete))?"
    r"(?=[ *]*(?:[.,;!)\n]|$)|\s+(?:for|as|since|because|with|given|but)\b)",
    re.I,
)
# "If n = 3, the answer is 7" supposes; "if we add them we get 10, so the answer is 10" concludes.
SUPPOSED = re.compile(r"\bif\b(?:(?!\b(?:so|thus|therefore|hence)\b|[.!?]\s|\n).)*$", re.I)
REVISION = re.compile(
    r"\bwait\b(?=\s*[,.!:;…—–-])|\b(?:hold\s+on|scratch\s+that|correction|my\s+mistake)\b"
    r"|\bI\s+made\s+an?\s+(?:[\w-]+\s+)?(?:mistake|error)\b|\b(?:that|this)(?:['’]s|\s+is)\s+(?:wrong|incorrect|not\s+right)\b",
    re.I,
)
PERCENT = r"(?:\s*(?:\\?%|(?:percent|pct)(?![A-Za-z])))?"
SPANS = re.compile(SPAN + PERCENT, re.S)
LEADING_SPANS = re.compile(rf"\s*{SPAN}{PERCENT}(?:\s*(?:,|;|and|or|,\s*and|,\s*or)\s*{SPAN}){{0,20}}", re.S)
CONJUNCTION = re.compile(r"\s*(?:[,;]\s*)?(?:and|or)?\s*")
# A formula without delimiters at the end of a sentence: "the result is -\frac{1}{2}", "we get 3+4i".
TAIL = re.compile(r"^.*[:=≈]|\b(?:is|are|be|equals|get|gives|obtain)\b", re.S)
FORMULA = re.compile(r"\\[a-z]|\d\s*[-+*/^]|\d[a-z]\b")
# "the interval is (0, 1]", "the point (3, -4)": signs and numbers with a comma, to the sentence's end
GROUP = re.compile(r"(?<![\w)\]\\])[(\[][^()\[\]\n,;A-Za-z]{1,40}(?:[,;][^()\[\]\n,;A-Za-z]{1,40}){1,4}[)\]]$")
EMPTY_BOX = re.compile(r"\${0,2}\\boxed {0,9}\{\s{0,9}\}\${0,2}")
# "So she has 42 apples.", "12 + 30 = 42"
CONCLUDED = re.compile(
    r"\b(?:so|thus|hence|therefore|altogether|in\s+total|conclude)\b[^.\n]{0,200}\d|=\s{0,9}\S{0,20}\d[^=]{0,40}$", re.I
)
SENTENCE_END = re.compile(r"(?<=[^\s.\\])\.(?=\s|$)|(?<=[A-Za-z])[!?](?=\s|$)")
NUMBER = re.compile(
    # 12,34,567; 1'234'567; 1.234.567; 1.234,50 and 1 234,5
    r"(?<![A-Za-z\d_.,])(?:-?(?:\d{1,2}(?:,\d{2})+,\d{3}(?!\d)|\d{1,3}(?:['’]\d{3})+(?!\d)|\d{1,3}(?:\.\d{3}){2,}(?!\d)"
    r"|\d{1,3}(?:\.\d{3}|[ ]\d{3})+(?=,\d{1,2}(?!\d))"
    r"|\d{1,3}(?:(?:,|[\u00a0\u2009\u202f])\d{3})+(?!\d)|\d+)(?:[.,]\d+)?|-?\.\d+)"
    r"(?:(?<=\d)(?::\d+){1,3}|\s*/\s*\d+)?"
    r"(?:\s*(?:\\?%|percent|pct)|\s+(?:thousand|[mb]illion|trillion)(?![A-Za-z]))?(?!\d)"
)


@dataclass(frozen=True)
class Extracted:
    """answer is None exactly when rule is "none"; the other rules: above, and in verbatim.py and choice.py."""

    answer: str | None
    rule: str

    @property
    def stated(self) -> bool:
        """Whether the response says what its answer is; else the answer is a value, or a line, that stands in it."""
        named = self.rule in ("tag", "boxed", "final_answer", "statement", "lone", "option")
        return named or (self.rule == "last_line" and is_bare(self.answer))


NOTHING = Extracted(None, "none")
Read = Callable[[str], Extracted]  # how the answer in a response is found


def stated_in(response: str, found: Extracted, read: Read, *, cut_off: bool) -> bool:
    """Whether a response states its answer; one that was cut off, only if it does so however it might have gone on.

    found   what `read` finds in the response

    "... the answer is 12" might have gone on to 120; "<answer>12</answer>" and "the answer is 12.\nTo check" not.
    """
    if not (cut_off and found.stated):
        return found.stated
    longer = read(f"{response}0")
    return longer.stated and longer.answer == found.answer


def extract_answer(text: str) -> Extracted:
    """What the first rule that fires finds. A value that is stated behind the last box may overrule the box.

    An answer in tags counts before all else, unless a box follows it.
    """
    text = own_answer(in_english(plain_characters(reply_of(text))), states_value)
    for tag in answer_tags(text):
        inside = find_answer(tag.content)
        if inside.answer is not None and boxed_answer(text[tag.end :]) is None:
            return Extracted(inside.answer, "tag")
    return find_answer(text)


def find_answer(text: str) -> Extracted:
    """As `extract_answer`, in a text without marks and tags."""
    if (box := boxed_answer(text)) is not None:
        later = overruling(text[box.end :])
        if later:
            return Extracted(later[:MAX_ANSWER], "final_answer")
        return Extracted(box.content[:MAX_ANSWER], "boxed")
    text = EMPTY_BOX.sub("", CALCULATOR.sub("", text))
    if (stated := stated_answer(text)) is not None:
        return Extracted(stated[:MAX_ANSWER], "final_answer")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return NOTHING
    if is_bare(lines[-1]):
        return Extracted((claimed(without_emphasis(lines[-1])) or lines[-1])[:MAX_ANSWER], "last_line")
    if len(lines) > 1 and read(normalize(lines[0])):  # the value first, and then what explains it
        return Extracted(lines[0][:MAX_ANSWER], "lone")
    return last_value(text) or Extracted(lines[-1][:MAX_ANSWER], "last_line")


def overruling(behind: str) -> str | None:
    """The value that a text behind a box states instead: "final answer is 5", or "wait, ... the answer is 5".

    Only what begins with a value counts: "the final answer is an integer between 0 and 999" speaks of the box.
    """
    later = stated_answer(behind, STRONG, direct=True)
    if later is None and (revision := REVISION.search(behind)):
        later = stated_answer(behind[revision.end() :], direct=True)
    return later if later and re.search(r"\d|\$", later) else None


def gold_answer(gold: str) -> str:
    """The answer in a gold field: usually all of it, else what is boxed or stated in a whole solution."""
    gold = in_english(plain_characters(gold))
    if (box := boxed_answer(gold)) is not None:
        return box.content
    return stated_answer(gold) or gold


def reply_of(response: str) -> str:
    """What a response says, without thoughts and marks (`core.reply_marks`); of a long response, the end."""
    return plain_reply(response[-MAX_RESPONSE:])


def answer_tags(text: str) -> list[Tagged]:
    """The answers in tags, the last first; those of a whole response or solution behind those of an answer."""
    tags = [tag for tag in tagged_answers(text) if tag.name != "action"][: -MAX_MARKS - 1 : -1]
    return sorted(tags, key=lambda tag: re.search("ans|final|box", tag.name) is None)


def own_answer(text: str, states: Callable[[str], bool]) -> str:
    """Up to the point where a model, having answered, invents the next question.

    states   whether a text states an answer: a question before which nothing is stated is the model's own, said again
    """
    turns = islice(next_turns(text), MAX_TURNS)
    return text[: next((turn for turn in turns if states(text[:turn])), len(text))]


def states_value(text: str) -> bool:
    """Whether a text states a value as its answer, or ends with one, bare or as what a sentence concludes."""
    stated = stated_answer(text)
    if tagged_answers(text) or boxed_answer(text) or (stated and not REQUIREMENT.match(stated)):
        return True
    last = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
    return bool(re.search(r"\d|\\[a-z]|\$", last)) and (is_bare(last) or CONCLUDED.search(last) is not None)


def stated_answer(text: str, patterns: tuple[re.Pattern, ...] = STATEMENTS, direct: bool = False) -> str | None:
    """What follows the last "final answer is", "answer:", "####" and the like; `direct` as in `statement`."""
    for pattern in patterns:
        found = list(pattern.finditer(text))[-MAX_MARKS:]
        ends = [match.end() for match in found if not (direct and supposed(text, match)) and not remarked(text, match)]
        if pattern is MARK:
            ends = [end for end in ends if marks_answer(text, end)]
        for end in reversed(ends[-3:]):
            if answer := statement(text[end : end + MAX_ANSWER], direct):
                return answer
    return None


def supposed(text: str, match: re.Match) -> bool:
    return bool(SUPPOSED.search(text[max(0, match.start() - 200) : match.start()]))


def remarked(text: str, match: re.Match) -> bool:
    """Whether a statement says how good the answer is, and not what: "the answer of 18 is correct"."""
    return match.group().rstrip(" \t*")[-1:].isalpha() and bool(REMARK.match(text, match.end()))


def marks_answer(text: str, end: int) -> bool:
    """Whether a #### before `end` is GSM8K's mark, not a heading: a value follows, or words that end the text."""
    line, _, below = text[end : end + MAX_ANSWER].lstrip().partition("\n")
    return is_value_line(unannounced(line), last=not below.strip())


def unannounced(text: str) -> str:
    """ "Final Answer: The final answer is 5" without what announces it once more."""
    for pattern in STATEMENTS[1:4]:
        again = re.compile(rf"(?:the\s+)?(?:{pattern.pattern})", re.I).match(text)
        text = text[again.end() :] if again else text
    return text


def statement(rest: str, direct: bool = False) -> str | None:
    """The statement that a text begins with, up to the end of its sentence; of prose, unless `direct`, the value in it.

    direct   only what begins with its value
    """
    rest = unannounced(rest.lstrip(' \t\n*\\"' if rest.lstrip().startswith('\\"') else " \t\n*"))
    rest = LEAD_IN.sub("", rest, count=1)
    if DENIAL.match(rest):
        return None
    spans = LEADING_SPANS.match(rest)
    if spans and is_formula(spans.group()) and not rest[spans.end() : spans.end() + 1].isdigit():
        return spans.group().strip()
    sentence = SENTENCE_END.split(without_emphasis(rest.split("\n")[0]))[0].strip(" *")
    head = claimed(sentence)
    if not sentence or is_bare(head or sentence):
        return head or sentence or None
    if (direct and not head) or REQUIREMENT.match(sentence):
        return None
    value = last_value(head or sentence)
    return value.answer if value else None


def last_value(text: str) -> Extracted | None:
    """The last formula or number in prose, whichever comes later; a formula with a digit or `=` before a mere name."""
    spans = [match for match in SPANS.finditer(text) if is_formula(match.group())]
    telling = [match for match in spans if re.search(r"\d|=", match.group())] or spans
    end = telling[-1].end() if telling else 0
    rest = text.translate(MONEY)[end:].strip()
    sentence = SENTENCE_END.split(rest.rstrip(".!? "))[-1]
    tail = TAIL.search(sentence)
    formula = sentence[tail.end() :].strip() if tail else ""
    if FORMULA.search(formula) and is_bare(formula):
        return Extracted(formula, "last_math")
    if (group := GROUP.search(sentence)) and re.search(r"\d", group.group()):
        return Extracted(group.group(), "last_math")
    numbers = [match.group() for match in NUMBER.finditer(rest)]
    if numbers:
        return Extracted(numbers[-1].strip(), "last_number")
    return Extracted(text[joined_start(text, telling) : end], "last_math") if telling else None


def joined_start(text: str, spans: list[re.Match]) -> int:
    """Where the answer begins that the last formula ends: `$1$, $2$ and $3$` are one answer."""
    start = spans[-1].start()
    for span in reversed(spans[-MAX_JOINED:-1]):
        if not CONJUNCTION.fullmatch(text, span.end(), start):
            break
        start = span.start()
    return start
