"""Whether two lessons with nearly the same embedding say the same in other words, or one corrects the other.

An embedding hardly sees a number, a name or a negation: "listens on port 8443" and "listens on port 8444" have a cosine
of 0.98. So lessons that are near by embedding are compared by their words. What counts:

- Facts: numbers with their units, names, files, flags, quoted texts, signs of a formula. Each lesson has one that the
  other has not: they say different things, in whatever words.
- A negation that only one has, and words for opposites; but the two cancel each other ("not before" is "only after").
- Words: a correction keeps the frame of the sentence and exchanges a word or two; a rewording changes the frame too.
- Order: a word has changed its place with another: "from A to B" and "from B to A".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import product

from core.types import Lesson

CONTRADICTS, REFINES = "contradicts", "refines"
SAME_FRAME = 0.85  # share of the words in the same order from which two sentences are one with something exchanged
NEARLY_ALL = 0.6  # share of common words of meaning from which one exchanged word is taken for a correction
MUCH_MORE = 3  # so many words of meaning that only one of two lessons has make it say more than the other

_SPELT = {
    word: str(value)
    for value, word in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
        "seventeen eighteen nineteen twenty".split()
    )
}
_SPELT |= dict(zip("thirty forty fifty sixty seventy eighty ninety".split(), map(str, range(30, 100, 10)), strict=True))
_SPELT |= {"once": "1", "twice": "2", "half": "0.5", "hundred": "100", "thousand": "1000"}
_VAGUE = {"1"}  # "one" is mostly a pronoun, so alone it is no fact
_UNITS = {
    "second": "s sec secs second seconds",
    "millisecond": "ms millisecond milliseconds",
    "microsecond": "us µs microsecond microseconds",
    "minute": "min mins minute minutes",
    "hour": "h hr hrs hour hours",
    "day": "d day days",
    "week": "week weeks",
    "byte": "byte bytes",
    "kilobyte": "kb kib kilobyte kilobytes",
    "megabyte": "mb mib megabyte megabytes",
    "gigabyte": "gb gib gigabyte gigabytes",
    "terabyte": "tb tib terabyte terabytes",
    "percent": "% percent",
    "millimetre": "mm millimetre millimetres millimeter millimeters",
    "centimetre": "cm centimetre centimetres centimeter centimeters",
    "metre": "m metre metres meter meters",
    "kilometre": "km kilometre kilometres kilometer kilometers",
    "gram": "g gram grams",
    "kilogram": "kg kilogram kilograms",
}
_UNIT_OF = {word: unit for unit, words in _UNITS.items() for word in words.split()}
_MEASURE = re.compile(r"(?<=\d)[ \u00a0-]?(%|[a-zµ]+)", re.IGNORECASE)
_NUMBER = re.compile(r"(?:(?<![\w.)\]-])[-\u2212])?\d+(?:\.\d+)*(?:_[a-z]+)?")
# Names of a machine: a flag, a path, a file, an identifier; of the abbreviations it matters only if both have others.
_CODE = re.compile(
    r"(?<!\w)--?[A-Za-z][\w-]*|[\w.~*-]*[\\/][\w./\\*~-]*\w|\w+(?:[._:@=]\w+)+|\b[a-z]+[A-Z]\w*|\b\w*_\w+"
    r"|`[^`\n]{1,80}`"
)
_NAME = re.compile(r"(?<=[\w,;] )[A-Z][a-z]\w*|\b[A-Z]{2,}\w*|[\"\u201c]([^\"\u201c\u201d\n]{1,60})[\"\u201d]")
_SIGN = re.compile(r"(?<=[\w\s)\]}])(?:[<>=!]=|[<>=\u2260\u2264\u2265]|(?<=\s)[-+*/%\u2212\u00b1](?=\s))(?=[\w\s(\[{])")
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W\d_]+(?:['\u2019][^\W\d_]+)?")
_CLAUSE = re.compile(r"[.,;:!?()\n]+")
_LISTED = re.compile(r"(\w+)( and | or |/)(\w+)")
_NEGATIONS = frozenset(
    "no not never none nor neither cannot "  # English
    "nicht kein keine keinen nie ne pas jamais nunca non mai não nem не нет никогда 不 没 無 无 别 勿".split()
)
# They contrast or hold back rather than negate: where the other text has a negation, they may say the same.
_CONTRASTS = frozenset(
    "without unless except instead rather avoid skip omit forbid refuse ignore ohne sans sin senza sem без".split()
)
# Two texts of which one has the one word and the other only the other word say opposite things.
_OPPOSITES = [
    tuple(pair.split("/"))
    for pair in (
        "before/after above/below over/under up/down enable/disable enabled/disabled with/without on/off open/close "
        "open/closed start/stop begin/end first/last always/never increase/decrease more/less more/fewer most/least "
        "maximum/minimum max/min high/low higher/lower larger/smaller largest/smallest longer/shorter "
        "longest/shortest faster/slower left/right top/bottom inside/outside input/output read/write push/pull "
        "import/export upload/download client/server source/target primary/replica local/remote public/private "
        "allow/deny allow/forbid accept/reject include/exclude add/remove lock/unlock encode/decode true/false "
        "success/failure ascending/descending row/column horizontal/vertical odd/even positive/negative "
        "oldest/newest older/newer earlier/later required/optional staging/production parent/child request/response "
        "if/unless upper/lower all/none keep/drop mutable/immutable strict/lenient hot/cold"
    ).split()
]
_SHADES = [("and", "or"), ("all", "some"), ("must", "may"), ("each", "any"), ("only", "also")]  # within one frame
_PREFIXES = ("un", "in", "im", "ir", "il", "dis", "non", "a", "de", "anti")  # of a word for the opposite
# Words that one attempt and the next are told with; of two such words it does not matter which one stands there.
_SYNONYMS = [
    frozenset(group.split("/"))
    for group in (
        "use/employ/apply/call/work/utilise/utilize "
        "check/verify/inspect/examine/look/test/confirm/ensure/validate/review "
        "make/create/build/write/produce/generate delete/remove/drop/erase put/insert/place/substitute/fill/plug/set "
        "increase/grow/rise show/display/print finish/end/complete/conclude keep/store/save/hold "
        "fetch/get/obtain/retrieve/read pick/choose/select find/locate/search try/attempt "
        "give/given/provide/supply/pass fix/repair/correct/resolve/solve run/execute/launch/invoke fail/break/crash "
        "change/modify/edit/update/alter big/large/huge small/little/tiny quick/fast/rapid begin/start "
        "part/piece/portion error/mistake/problem/issue/bug complete/whole/full/entire "
        "different/other/another/differ avoid/prevent method/approach/way/technique need/require/want "
        "convert/turn/transform/translate belong/keep/go/stay job/task result/outcome/answer value/quantity/number "
        "switch/open enter/type/input exit/leave/quit calculate/compute common/shared several/many/multiple "
        "simple/plain/easy item/object/thing again/re/more/repeat until/before/while even/also/too list/note/record "
        "say/tell/state/explain"
    ).split()
]
_ARTICLES = frozenset(("a", "an", "the"))
_TURNS = _ARTICLES | _NEGATIONS | frozenset(word for pair in _OPPOSITES + _SHADES for word in pair)
_PLACES = frozenset("from to into onto in on at before after until then than over under by with for of via".split())
_SUBORDINATES = frozenset("because since so when whenever if while although but that which who".split())
_TIMES = frozenset("before after until while during".split())  # fillers only where the frame differs as well
_FILLERS = _PLACES - _TIMES | frozenset(
    "a an the this that these those it its is are was were be been being do does did has have had will would should "
    "must can could may might please just simply really always make sure remember ensure you your we our i they them "
    "their there here and or nor but also so as if when whenever once which who whose what whatever where while "
    "because since due very out any some each every all both own otherwise else therefore thus hence still yet "
    "however though although first firstly later next finally afterwards up back rather instead not no never do "
    "don't cannot order get got again only e g i.e etc".split()
)


_of_text = lru_cache(maxsize=4_096)  # each lesson of a round is compared with many others


def difference(one: Lesson, other: Lesson) -> tuple[str, str] | None:
    """(relation, what differs) of two lessons that are near by embedding; None: the same in other words.

    relation   contradicts: they say different things; refines: one says more than the other
    """
    return _other_facts(one.text, other.text) or _other_words(one, other)


def _other_facts(one: str, other: str) -> tuple[str, str] | None:
    """The numbers, names or signs that only one of two texts has."""
    refined = None
    for what, facts, adds in (
        ("numbers", _numbers, True),
        ("names", _machine_names, True),
        ("names", _names, False),
        ("signs", _signs, False),
    ):
        a, b = facts(one), facts(other)
        mine, theirs = a - b - _all_words(other), b - a - _all_words(one)
        if mine and theirs:
            return CONTRADICTS, f"{what}: {_listed(mine | theirs)}"
        if adds and (mine | theirs) - _VAGUE:
            refined = refined or (REFINES, f"{what}: {_listed(mine | theirs)}")
    return refined


@_of_text
def _numbers(text: str) -> set[str]:
    """Numbers in digits, with their unit where one is known."""
    text = re.sub(r"(?<=\d),(?=\d{3}\b)", "", text)
    text = _WORD.sub(lambda word: _SPELT.get(word[0].lower(), word[0]), text)
    text = _MEASURE.sub(lambda unit: f"_{_UNIT_OF[unit[1].lower()]}" if unit[1].lower() in _UNIT_OF else unit[0], text)
    return set(_NUMBER.findall(text))


@_of_text
def _machine_names(text: str) -> set[str]:
    return {found.strip("`") for found in _CODE.findall(text)} - {"e.g", "i.e", "and/or"}


@_of_text
def _names(text: str) -> set[str]:
    """Names as people write them: capitalised within a sentence, abbreviated, or quoted."""
    found = {(match[1] or match[0]).lower() for match in _NAME.finditer(text)}
    return found - set(re.findall(r"\b[a-z]+\b", text))


@_of_text
def _signs(text: str) -> set[str]:
    """The signs between terms, each with its number where it stands repeatedly."""
    count: Counter[str] = Counter()
    found = set()
    for sign in _SIGN.findall(text):
        sign = sign.replace("\u2212", "-")
        count[sign] += 1
        found.add(f"{sign} {count[sign]}" if count[sign] > 1 else sign)
    return found


@_of_text
def _all_words(text: str) -> set[str]:
    return {word.lower().replace("\u2019", "'") for word in _WORD.findall(text)}


def _other_words(one: Lesson, other: Lesson) -> tuple[str, str] | None:
    """The words that make two lessons with the same facts say different things, if any."""
    mine, theirs = _body(one), _body(other)
    whole = (one.text, other.text) if one.title != other.title else (mine, theirs)
    a, b = _left_over(mine, whole[1]), _left_over(theirs, whole[0])
    framed = _frame(mine, theirs, a, b)
    turned = _opposites(_all_words(mine), _all_words(theirs), framed)
    negated = _is_negated(mine, theirs)
    if (turned or negated or (framed and _is_held_back(mine, theirs))) and not (
        negated and len(turned) == 1
    ):  # "not before" is "only after"
        return CONTRADICTS, f"words: {_listed(turned[0])}" if turned else "a negation"
    cancelled = {_stem(word) for pair in turned for word in pair}
    a, b = _unlike(a, b, framed) - cancelled, _unlike(b, a, framed) - cancelled
    if a and b and (framed or _is_exchange(mine, theirs, a, b)):
        return CONTRADICTS, f"words: {_listed(a | b)}"
    if bool(a) != bool(b) and (framed or len(a | b) >= MUCH_MORE or _is_part(mine, theirs)):
        return REFINES, f"words: {_listed(a | b)}"
    return _changed_order(mine, theirs)


def _body(lesson: Lesson) -> str:
    """What a lesson says: titles are worded anew more freely than anything else."""
    text = next(filter(str.strip, (lesson.content, lesson.description, lesson.title)), "")
    return _MEASURE.sub(lambda unit: "" if unit[1].lower() in _UNIT_OF else unit[0], text)  # compared with its number


@lru_cache(maxsize=16_384)
def _stem(word: str) -> str:
    """A word in lower case without the endings of English."""
    word = re.sub(r"['\u2019]s?$", "", word.lower())
    word = {"is": "be", "are": "be"}.get(word, _UNIT_OF.get(word, word) if len(word) > 2 else word)
    word = re.sub(r"(?<=\w{3})(?:ing|ed|es|s|e|ly|y|ies)$", "", word)
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] else word  # run, runn


def _stems(words: Iterable[str]) -> list[str]:
    """The stems of the words that carry a meaning, in their order."""
    kept = (word for word in words if word.lower() not in _FILLERS and not word.lower().endswith(("n't", "n\u2019t")))
    return [_stem(word) for word in kept if word.lower() not in _SPELT]


def _left_over(text: str, other: str) -> set[str]:
    """The stems of a text's words that the other text does not have, nor a word of the same root."""
    others = set(_stems(_WORD.findall(other))) | set(map(_stem, _TIMES & _all_words(other)))
    return {stem for stem in _stems(_WORD.findall(text)) if stem not in others and not _has_kin(stem, others)}


def _has_kin(word: str, others: Iterable[str]) -> bool:
    """Whether one of two words begins with the other: repo and repository."""
    return any(
        min(len(word), len(other)) >= 4 and (word.startswith(other) or other.startswith(word)) for other in others
    )


def _frame(one: str, other: str, mine: set[str], theirs: set[str]) -> bool:
    """Whether two texts are one sentence, in which some words (`mine`, `theirs`) were exchanged or turned around."""
    a, b = (
        [word for word in _tokens(one) if word not in mine],
        [word for word in _tokens(other) if word not in theirs],
    )
    return SequenceMatcher(None, a, b, autojunk=False).ratio() >= SAME_FRAME


def _tokens(text: str) -> list[str]:
    """All words but articles and those that turn a sentence around."""
    return [_stem(word) for word in _WORD.findall(text) if word.lower() not in _TURNS]


def _is_part(one: str, other: str) -> bool:
    """Whether the shorter of two texts is the longer one with something left out."""
    short, long = sorted((_tokens(one), _tokens(other)), key=len)
    left = iter(long)
    return all(word in left for word in short)


def _is_negated(one: str, other: str) -> bool:
    """Whether one of two texts negates what the other says; a contrast in the other may say the same."""
    hard, soft = zip(*(_negations(text) for text in (one, other)), strict=True)
    return hard[0] != hard[1] and not soft[hard.index(False)]


def _is_held_back(one: str, other: str) -> bool:
    """Whether one of two texts without a negation has a word of contrast, and the other none."""
    hard, soft = zip(*(_negations(text) for text in (one, other)), strict=True)
    return not any(hard) and soft[0] != soft[1]


def _negations(text: str) -> tuple[bool, bool]:
    """(whether a text has a negation, whether it has a word of contrast)."""
    words = _all_words(text)
    negated = bool(words & _NEGATIONS) or any(word.endswith("n't") for word in words)
    return negated, bool(words & _CONTRASTS)


def _opposites(one: set[str], other: set[str], framed: bool) -> list[set[str]]:
    """The pairs of opposites of which each text has another word. "never" is counted among the negations."""
    found = []
    for pair in _OPPOSITES + (_SHADES if framed else []):
        a, b = ({word for word in pair if word in text or _stem(word) in map(_stem, text)} for text in (one, other))
        if len(a) == len(b) == 1 and a != b and "never" not in pair:
            found.append(a | b)
    for mine, theirs in product(one - other, other - one):
        short, long = sorted((mine, theirs), key=len)
        if len(short) > 3 and (
            any(_stem(prefix + short) == _stem(long) for prefix in _PREFIXES)
            or (short.endswith("ful") and long.endswith("less") and short[:-3] == long[:-4])
        ):
            found.append({short, long})
    return found


def _unlike(words: set[str], others: set[str], framed: bool) -> set[str]:
    """The words for which the others have no synonym."""
    words = words if framed else words - _SOFT
    return {
        word
        for word in words
        if not any({word, other} <= group for group in _SYNONYM_STEMS for other in others if other != word)
    }


def _is_exchange(one: str, other: str, mine: set[str], theirs: set[str]) -> bool:
    """Whether one word of each text was exchanged and nearly all others are common to both."""
    a, b = set(_stems(_WORD.findall(one))), set(_stems(_WORD.findall(other)))
    return len(mine) == len(theirs) == 1 and len(a & b) >= NEARLY_ALL * max(len(a), len(b))


def _changed_order(one: str, other: str) -> tuple[str, str] | None:
    """Words that have changed places: behind another preposition, or the subject with the object."""
    a, b = _phrases(one), _phrases(other)
    for place in sorted((a.keys() & b.keys()) - {""}):
        mine, theirs = a[place] - b[place], b[place] - a[place]
        if mine and theirs and mine <= _elsewhere(b, place) and theirs <= _elsewhere(a, place):
            return CONTRADICTS, f"order: {place} {_listed(mine | theirs)}"
    if _function_words(one) == _function_words(other) and _has_swapped(_sequence(one), _sequence(other)):
        return CONTRADICTS, "order"
    return None


def _has_swapped(one: list[str], other: list[str]) -> bool:
    """Whether two words have changed places around another one, as a subject and an object around a verb."""
    places = [place for place, (a, b) in enumerate(zip(one, other)) if a != b]
    if len(one) != len(other) or len(places) != 2 or places[1] - places[0] < 2:
        return False
    return one[places[0]] == other[places[1]] and one[places[1]] == other[places[0]]


def _phrases(text: str) -> dict[str, set[str]]:
    """{preposition or "not": the stems behind it, up to the next one}; "": those behind none."""
    found: dict[str, set[str]] = {}
    for clause in _CLAUSE.split(text):
        place = ""
        for word in _WORD.findall(clause):
            lower = word.lower()
            if lower in _PLACES:
                place = lower
            elif lower in _SUBORDINATES:
                place = ""
            elif lower in _NEGATIONS or lower.endswith(("n't", "n\u2019t")):
                place = "not"
            else:
                found.setdefault(place, set()).update(_stems([word]))
    return found


def _elsewhere(phrases: dict[str, set[str]], place: str) -> set[str]:
    return set().union(*(words for at, words in phrases.items() if at != place))


def _sequence(text: str) -> list[str]:
    """The stems of meaning in their order; of two words around "and" or "or" the order does not matter."""
    text = _LISTED.sub(lambda pair: "".join((min(pair[1], pair[3]), pair[2], max(pair[1], pair[3]))), text.lower())
    return _stems(_WORD.findall(text))


def _function_words(text: str) -> list[str]:
    words = [word.lower() for word in _WORD.findall(text)]
    return [word for word in words if word not in _ARTICLES and not _stems([word])]


def _listed(words: Iterable[str]) -> str:
    return ", ".join(sorted(words)[:6])


_SOFT = set(map(_stem, _TIMES | _CONTRASTS))
_SYNONYM_STEMS = [frozenset(map(_stem, group)) for group in _SYNONYMS]
