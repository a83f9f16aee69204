"""Multiple choice: the letter a response states, and the seeded order in which options are shown.

The last clear statement counts ("the answer is (C)", "\\boxed{C}", "C is correct", "I choose C", a letter alone on the
last line), else an option's text given as the answer. Without either, the last bracketed letter, and then the last
capital letter that stands alone, is taken, as MMLU-Pro's own scoring does, except that the pronoun I and the article A
are never letters there.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from functools import cache

from single_turn_bench.answers import NOTHING, Extracted, answer_tags, own_answer, reply_of
from single_turn_bench.boxes import boxed_answer
from single_turn_bench.characters import plain_characters
from single_turn_bench.languages import in_english
from single_turn_bench.prose import without_emphasis
from single_turn_bench.verbatim import same_text, verbatim_answer

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
QUOTES = "\"'‘’“”„«»"
# What may stand before a letter; bounded, since two of them in a row try every split of a run of brackets.
DRESS = rf"[\s:*_`{QUOTES}(\[{{$\\]{{0,60}}(?:\\?(?:text\w*|mathrm|mathbf|boxed)\s*\{{\s*\(?)?"
# A letter ends at a word boundary; bare A and I go on only in ways that an article and a pronoun do not.
ENDED = r"(?![\w-]|['’]\w)(?!\s*(?:[=+*/^<>_≈≤≥×·]|\\(?:approx|cdot|times|frac|le|ge)))"
GOES_ON = "because|since|as|and|but|or|is|was|for|with|in|which|given|by|based|if|due|from|on|at|to|according"
LETTER = rf"(?:(?P<bare>[B-HJ-Z]){ENDED}|(?P<risky>[AI]){ENDED}(?!\s+(?!(?:{GOES_ON})\b)[a-z]))"
SMALL = r"(?:(?<=[(\[{])(?P<small>[a-z])(?=[)\]}])|(?P<tiny>[b-hj-z])(?=\)|\.?\s*(?:\n|$)))"
CLAIM = rf"{DRESS}(?:(?i:option|choice|answer|letter)\s+)?{DRESS}(?:{LETTER}|{SMALL})"
SUBJECT = r"(?:answer|\bans\b\.?|choice|option|solution)(?:\s+(?:here|to\s[^.\n]{1,80}?|would|should|must|will|could))?"
VERB = r"\s*(?:\bis\b|\bbe\b|\bwas\b|:|=)(?:\s+(?:therefore|thus|clearly|likely|probably|most likely))?"
CORRECT = (
    r"(?:therefore |thus |clearly |also )?(?:the )?(?:most |best |only |single )?"
    r"(?:correct|right|accurate|appropriate|best|answer|true one)\b"
)

# "Wait, it is C."; not "the field through it is B"
IT_IS = re.compile(
    r"\b(?i:it|that)(?:['’]s| is| was| should be)\s+(?:(?i:actually|really|option|choice)\s+){0,2}"
    r"[(\[]?(?P<bare>[B-HJ-Z])[)\]]?(?=\s*(?:[.;!]\s+[A-Z][a-z]|[.!]?\s*(?:\n|\Z)))"
)
BEFORE_IT = re.compile(
    r"(?:(?:^|[.!?:;\n–—])(?:\s{0,3}[A-Z][a-z]{1,11},)?|\bnot\s\(?[A-Z]\)?,"
    r"|\b(?i:wait|no|but|so|then|thus|hence|therefore|actually|think|believe),?)\s{0,3}$"
)
IS_CORRECT = re.compile(
    rf"(?<![\w-])(?<!\w['’])[(\[*{QUOTES}]{{0,8}}(?P<bare>[A-Z])[)\]*.{QUOTES}]*\s+"
    rf"(?:is|was|must be|would be|should be|seems|appears to be)\s+{CORRECT}"
)
STATEMENTS = (
    re.compile(rf"(?i:{SUBJECT}{VERB}){CLAIM}"),
    re.compile(rf"(?i:\b(?:correct|right)\s+(?:answers|options|choices)\s+are\b){CLAIM}"),
    re.compile(rf"(?i:final answer|correct (?:answer|choice|option)|#[ \t]*answer(?=\s))[\s:*]{{0,60}}{CLAIM}"),
    re.compile(rf"(?i:\b(?:choose|chose|select|selected|pick|picked|go with|going with|went with|opt for))\s{CLAIM}"),
    IS_CORRECT,
    re.compile(
        r"\b(?i:hence|therefore|thus|so|conclusion|must be|has to be)\s*[,:]?\s*"
        r"(?:(?i:option|choice)\s+\(?(?P<named>[A-Z])\)?|[(\[](?P<bare>[A-Z])[)\]]|(?P<last>[A-Z])(?=\.?\s*(?:\n|$)))"
        r"(?=\s*(?:[.,;!\n]|$))"
    ),
    re.compile(r"\b(?:must|has to) be\s+(?P<bare>[A-Z])(?=[.;!]\s+[A-Z][a-z])"),  # ... B. Neither A nor C fits.
    IT_IS,
)
# "Let us look at each option: A. ..." states nothing, and neither does "I would not choose A".
LIST = re.compile(r"\b(?:each|every|all|any|other|these)\s+(?:[\w-]+\s+){0,2}$", re.I)
LIST_HEAD = re.compile(r"\w+\s*:")
DENIED = re.compile(
    r"(?:\b(?:not|never|cannot|nor|neither|if|whether|unless|suppose|assume)|n['’]t)\s+"
    r"(?:(?:be|to|true|clear|think|believe|say|the\s+case|have|choose|pick|select|go\s+with)\s+){0,3}(?:that\s+)?(?:the\s+)?"
    r"(?:(?:correct|right|best|final|only|option|choice|answer)\s+)?$",
    re.I,
)
REJECTED = re.compile(  # "A, C and D are wrong"
    r"(?:[)\]]?(?:,\s?and|,\s?or|,|\s?and|\s?or)\s?[(\[]?[A-Z]\b){0,9}[)\]]?\s+"
    r"(?:(?:is|are|was|were|can be|all|both)\s+){0,2}(?:clearly\s+|also\s+)?"
    r"(?:wrong|incorrect|false|invalid|not|eliminated|excluded|ruled\s+out|fails?|cannot|do(?:es)?(?:n['’]t|\s+not))\b"
)
# The one that is called wrong is the answer: "so only C is false", or "Therefore, C is false." at the end.
ODD_ONE = re.compile(r"\bonly\s+(?:(?:option|choice|statement|answer)\s+)?[(\[]?$", re.I)
CONCLUDED = re.compile(
    r"(?:^|[.!?]\s+|\n\s*)(?:so|thus|hence|therefore),?\s+(?:(?:option|choice|statement)\s+)?[(\[]?$", re.I
)
THE_END = re.compile(r"(?:\s+(?:true|correct|valid))?[\s.!]{0,9}\Z")
# A letter out of range is a choice that cannot be made only where it is called one; "we choose Q" names a quantity.
CALLED = re.compile(r"[(\[]|\b(?:answer|ans|option|choice|letter)\b", re.I)
CHOOSING = re.compile(r"(?:cho|select|pick)", re.I)
# "We choose B to be the field", "pick A as the area of it"; "B as the law demands it" gives a reason.
A_QUANTITY = re.compile(
    r"\s+(?:(?:such|so)\s+that|to\s+(?:make|have)|to\s+be\s+(?:the|an?|its|their|our)|as\s+(?:the|an?|its|their|our)"
    r"(?=\s+(?!others|rest)(?:(?:[\w-]+\s+){1,2}of\b|[\w-]+[ \t]*(?:[.,\n]|$))))\s+"
    r"(?!(?:[\w-]+\s+){0,2}(?:answer|choice|option|one|result|consequence|correct|right|best|most)\b)"
)
NAMED = r"(?:(?i:option|answer|choice)\s+)?"
# "A and C", "both B/D": letters and nothing else
SEVERAL = re.compile(r"\W*(?:(?i:both|either|options?|answers?|choices?)\W+)*[A-Z](?:\W+(?:(?:and|or)\W+)?[A-Z])+\W*")
LONE = re.compile(
    rf"^[\s#>*_`{QUOTES}(\[{{$\\]*(?P<named>{NAMED})\(?(?P<bare>[A-Za-z])(?:[\s)\]}}.:*_`{QUOTES}$\\]*$|[).:]\s)"
)
BOXED = re.compile(rf"^{DRESS}{NAMED}\(?(?P<bare>[A-Za-z])(?:[\s)}}\].:$]*$|[).:]|\}}|(?<=[A-HJ-Z])\s+only\b)")
STYLE = re.compile(r"\\(?:text\w*|mathrm|mathbf)(?![A-Za-z])")
BRACKETED = re.compile(r"(?<![\w)\]])[(\[](?P<bare>[A-Z])[)\]](?!\w)")
MENTION = re.compile(
    r"(?:(?<![\w'’])(?=.(?![\w'’]))|(?<=(?<!\w)['‘])(?=.['’](?!\w)))(?P<bare>[B-HJ-Z])"  # C or 'C', not C's
)
LABEL = re.compile(r"(?:^|[\s(\[])([A-Z])\s?[).:\]]")  # before an option
OPTION_LABEL = re.compile(r"(?m)^[ \t]*\(?[A-Z][).:]\s")
# How an option begins that speaks of the others: "none of the other options", "both are correct", "the last two".
BY_PLACE = re.compile(
    r"\W*(?:(?:all|none|no|any|both|neither|either|each|some|most|one|two|three)\b(?:\s+\w+){0,3}?\s+"
    r"(?:above|below|preceding|previous|foregoing|th[eo]se|them|others|options?|answers?|choices?|alternatives?)\b"
    r"|(?:all|none|both|neither|either)(?:\s+(?:is|are)\s+\w+)?\W*$"
    r"|the\s+(?:first|second|third|fourth|last|former|latter)(?:\s+(?:and|or|two|three|four|option|answer|choice)\b|\W*$))",
    re.I,
)


# And where it does so inside: "two or more of the above", "all except C", "A/C", "same as B", "options 1 and 3".
INSIDE = re.compile(
    r"\b(?:of|the|listed|mentioned|stated|given)\s+(?:the\s+)?above\b|\b(?:all|none|any)\s+(?:of\s+)?(?:the\s+|those\s+)?"
    r"(?:listed|mentioned)\b|\b(?:(?:all|any|everything)\s+(?:except|but)|same\s+as)\s+\(?(?-i:[A-Z])\b|\boptions?\s+\(?\d"
    r"|\b(?:all|both|neither)\s+(?:of\s+the\s+)?statements?\b|^\W*(?-i:[A-H])\s*(?:/|to)\s*(?-i:[A-H])\W*$",
    re.I,
)


def extract_choice(response: str, n_options: int) -> str | None:
    """The letter that a response chooses among n_options (1 to 26), or None."""
    return find_choice(response, n_options).answer


def find_choice(response: str, n_options: int, options: Sequence[str] = ()) -> Extracted:
    """The letter and the rule that found it: tag, boxed, statement, lone, option, bracketed, mention or none.

    A clear statement of a letter out of range chooses nothing.

    options   as they are shown: the text of one of them alone, given as the answer, is its letter (rule "option")
    """
    if not 1 <= n_options <= len(LETTERS):
        raise ValueError(f"n_options is {n_options}; letters reach from 1 to {len(LETTERS)} options")
    text = in_english(without_emphasis(plain_characters(reply_of(response))))
    text = own_answer(text, lambda before: (said := clear_choice(before, n_options)) is not None and said.answer != "")
    for tag in answer_tags(text):
        inside = clear_choice(tag.content, n_options)
        if inside and inside.answer in tuple(LETTERS[:n_options]):
            return Extracted(inside.answer, "tag")
        if letter := option_named(tag.content, options):
            return Extracted(letter, "option")
        if several(tag.content):
            return NOTHING
    clear = clear_choice(text, n_options)
    if clear is not None and clear.answer in tuple(LETTERS[:n_options]):
        return clear
    if letter := option_named(verbatim_answer(response).answer, options):
        return Extracted(letter, "option")
    if clear is not None:
        return NOTHING
    prose = OPTION_LABEL.sub(" ", text)
    for rule, pattern in (("bracketed", BRACKETED), ("mention", MENTION)):
        found = [match for match in pattern.finditer(prose) if match["bare"] in LETTERS[:n_options]]
        found = [match["bare"] for match in found if not denied(prose, match) and not rejected(prose, match)]
        if found:
            return Extracted(found[-1], rule)
    return NOTHING


def option_named(said: str | None, options: Sequence[str]) -> str | None:
    """The letter of the one option whose text this is, by its exact signs where several are alike; else None."""
    alike = [option for option in options if option and same_text(said, option)]
    exact = [option for option in alike if option == said] if len(alike) > 1 else alike
    return LETTERS[options.index(exact[0])] if len(exact) == 1 else None


def clear_choice(text: str, n_options: int) -> Extracted | None:
    """The last statement, a box among them; else a letter alone on the last or the first line.

    The answer is one that cannot be chosen where it is out of range, or "" where a box or a line names several.
    """
    found = [(match.end(), letter, "statement") for match, letter in statements(text, n_options)]
    box = boxed_answer(text)
    if box and (letter := boxed_letter(box.content, n_options)) is not None:
        found.append((box.end, letter, "boxed"))
    if found:
        _, letter, rule = max(found)
        return Extracted(letter, rule)
    letter = lone_letter([line for line in text.splitlines() if line.strip()] or [""])
    return Extracted(letter, "lone") if letter is not None else None


def statements(text: str, n_options: int) -> Iterator[tuple[re.Match, str]]:
    """Each clear statement and its letter, the first where it names several, as MMLU-Pro's scoring does."""
    for match in (match for pattern in STATEMENTS for match in pattern.finditer(text)):
        letter, said = match[match.lastgroup].upper(), match.group()
        if heads_list(text, match) or denied(text, match):
            continue
        if match.re is IT_IS and not BEFORE_IT.search(text[max(0, match.start() - 40) : match.start()]):
            continue
        if CHOOSING.match(said) and not CALLED.search(said) and A_QUANTITY.match(text, match.end()):
            continue
        if letter in LETTERS[:n_options] or CALLED.search(said):
            yield match, letter


def several(said: str) -> bool:
    """Whether an answer is nothing but several letters, of which none is chosen."""
    return SEVERAL.fullmatch(said) is not None and len(set(re.findall(r"\b[A-Z]\b", said))) > 1


def boxed_letter(content: str, n_options: int) -> str | None:
    """The letter that a box holds, "" for several, None where it holds something else."""
    if several(STYLE.sub("", content)):
        return ""
    inside = BOXED.match(content)
    if inside is None or (inside["bare"].islower() and inside["bare"].upper() not in LETTERS[:n_options]):
        return None  # \boxed{x}
    return inside["bare"].upper()


def denied(text: str, match: re.Match) -> bool:
    """Whether what stands before a letter, or before a statement of it, takes it back: "not B", "nor is it B"."""
    return bool(DENIED.search(text[max(0, match.start() - 60) : match.start()].rstrip("([")))


def rejected(text: str, match: re.Match) -> bool:
    """Whether a letter is called wrong, and not as the one that the text comes down to."""
    said = REJECTED.match(text, match.end())
    if said is None or re.search("[A-Z]", said.group()):  # among several
        return said is not None
    before = text[max(0, match.start() - 60) : match.start()]
    return not (ODD_ONE.search(before) or (CONCLUDED.search(before) and THE_END.match(text, said.end())))


def heads_list(text: str, match: re.Match) -> bool:
    return bool(LIST_HEAD.match(match.group()) and LIST.search(text[max(0, match.start() - 60) : match.start()]))


def lone_letter(lines: list[str]) -> str | None:
    """Of the last sentence, the last line or the first line, unless the lines are a list of options; "" for several."""
    labels = {match["bare"] for match in map(LONE.match, lines) if match}
    last_sentence = re.split(r"(?<=[a-z0-9][.!?])\s+", lines[-1].strip())[-1]
    for line in (last_sentence, lines[-1], lines[0]):
        if several(line):
            return ""
        match = LONE.match(line)
        if match is None or (match["bare"].islower() and not match["named"] and len(line.strip()) > 4):
            continue
        if len(labels) <= 1 or (line is lines[-1] and len(re.findall(r"\w", line)) == 1):
            return match["bare"].upper()
    return None


def n_lettered(text: str) -> int:
    """How many lettered options a text shows: the letters from A on without a gap."""
    shown = set(LABEL.findall(text))
    return next((place for place, letter in enumerate(LETTERS) if letter not in shown), len(LETTERS))


def order_matters(options: Sequence[str]) -> bool:
    """Whether one of a row's options names others, so that another order would change what it says."""
    return any(names_others(option, len(options)) for option in options)


def names_others(option: str, n_options: int) -> bool:
    """Whether an option speaks of others, by letter ("both A and C") or by place ("all of the above"), in English."""
    return bool(BY_PLACE.match(option) or INSIDE.search(option) or by_letter(n_options).search(option))


@cache
def by_letter(n_options: int) -> re.Pattern:
    """ "both A and C", "(a) or (b)", "only B", and "option A" anywhere: of the letters of so many options."""
    upper = LETTERS[:n_options]
    one = rf"(?:[(\[][{upper}{upper.lower()}][)\]]|[{upper}{upper.lower()}](?![\w'’-]))"
    joined = rf"{one}\s*(?:,|&|\b(?:and|or|nor)\b)\s*(?:(?:and|or|nor)\s+)?{one}"
    lead = r"(?i:(?:both|either|neither|all|only|just|not)\W+)"
    called = rf"\b(?i:options?|answers?|choices?)\s+(?:[(\[][{upper}{upper.lower()}]|[{upper}](?![\w'’-]))"
    return re.compile(rf"^\W*?{lead}?{joined}|^\W*?{lead}[{upper}]\W*$|^\W*[{upper}]\s+(?:only|alone)\b|{called}")


def lettered(options: Sequence[str]) -> str:
    """The options as they are shown, one a line."""
    return "\n".join(f"({letter}) {option}" for letter, option in zip(LETTERS, options, strict=False))


def shown_options(
    options: Sequence[str], answer_index: int, seed: int, task_id: str, *, shuffle: bool
) -> tuple[tuple[str, ...], str, tuple[int, ...]]:
    """As `shuffle_options`; in their own order without `shuffle`, and where `order_matters`."""
    if shuffle and not order_matters(options):
        return shuffle_options(options, answer_index, seed, task_id)
    return tuple(options), LETTERS[answer_index], tuple(range(len(options)))


def shuffle_options(
    options: Sequence[str], answer_index: int, seed: int, task_id: str
) -> tuple[tuple[str, ...], str, tuple[int, ...]]:
    """(options as shown, letter of the right one, order) with shown[i] = options[order[i]], by hash of seed and id.

    Options that name others come last.
    """

    def rank(index: int) -> tuple[bool, bytes]:
        drawn = hashlib.sha256(f"options:{seed}:{task_id}:{index}".encode()).digest()
        return names_others(options[index], len(options)), drawn

    order = tuple(sorted(range(len(options)), key=rank))
    return tuple(options[index] for index in order), LETTERS[order.index(answer_index)], order
