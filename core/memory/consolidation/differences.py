"""Whether two lessons with nearly the same embedding say the same in other words, or one corrects the other.

An embedding hardly sees a number, a name or a negation: "listens on port 8443" and "listens on port 8444" have a cosine
of 0.98. So texts that are near by embedding are compared by their words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain

CONTRADICTS, REFINES = "contradicts", "refines"
NEARLY_ALL = 0.6  # share of common words from which two texts are one text with a change, and no rewording

_SPELT = {
    word: str(value) for value, word in enumerate("zero one two three four five six seven eight nine ten".split())
}
_SPELT |= {"eleven": "11", "twelve": "12", "once": "1", "twice": "2", "half": "0.5"}
_UNITS = {
    "second": "s sec secs second seconds",
    "millisecond": "ms millisecond milliseconds",
    "minute": "min mins minute minutes",
    "hour": "h hr hrs hour hours",
    "day": "d day days",
    "week": "week weeks",
    "kilobyte": "kb kib kilobyte kilobytes",
    "megabyte": "mb mib megabyte megabytes",
    "gigabyte": "gb gib gigabyte gigabytes",
    "percent": "% percent",
}
_UNIT_OF = {word: unit for unit, words in _UNITS.items() for word in words.split()}
_MEASURE = re.compile(r"(?<=\d)[ \u00a0]?(%|[a-z]+)", re.IGNORECASE)
# Names of a machine: a flag, a path, a file, an identifier, an abbreviation.
_CODE = re.compile(
    r"(?<!\w)--?[A-Za-z][\w-]*|[\w.~*-]*[\\/][\w./\\*~-]*\w|\w+(?:[._:@]\w+)+|\b[a-z]+[A-Z]\w*|\b\w*_\w+|\b[A-Z]{2,}\w*"
)
_NAME = re.compile(r"(?<=[\w,;] )[A-Z][a-z]+\b")  # capitalised within a sentence
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W\d_]+(?:['\u2019][^\W\d_]+)?")
_CLAUSE = re.compile(r"[.,;:!?()\n]+")
_NEGATIONS = frozenset(
    "no not never none nor without cannot except unless instead avoid skip omit forbid refuse ignore "  # English
    "nicht kein keine keinen nie ohne ne pas jamais sans nunca sin non mai senza não nem sem не нет никогда без "
    "不 没 無 无 别 勿".split()
)
# Two texts of which one has the one word and the other only the other word say opposite things.
_OPPOSITES = [
    frozenset(pair.split("/"))
    for pair in (
        "before/after above/below over/under up/down enable/disable with/without on/off open/close start/stop "
        "begin/end first/last always/never increase/decrease more/less more/fewer most/least maximum/minimum max/min "
        "high/low higher/lower larger/smaller longer/shorter left/right top/bottom inside/outside input/output "
        "read/write push/pull import/export upload/download client/server source/target primary/replica local/remote "
        "public/private allow/deny accept/reject include/exclude add/remove lock/unlock encode/decode true/false "
        "success/failure ascending/descending row/column horizontal/vertical odd/even positive/negative "
        "oldest/newest earlier/later synchronous/asynchronous sync/async required/optional staging/production "
        "parent/child request/response seconds/minutes seconds/hours minutes/hours hours/days"
    ).split()
]
_PLACES = frozenset("from to into onto in on at before after until then than over under by with for of via".split())
_FILLERS = frozenset(
    "a an the this that these those it its is are was were be been do does did has have had will would should must can "
    "could may might please just simply really always make sure be remember ensure need needs you your we our i they "
    "them their there here and also so as of in on at by for if when while which who out very any some each "
    "every".split()
)

_WEIGHED = _FILLERS | _NEGATIONS | _SPELT.keys() | _UNIT_OF.keys()  # without a meaning of their own, or compared apart


def difference(one: str, other: str) -> tuple[str, str] | None:
    """(relation, what differs) of two texts that are near by embedding; None: the same in other words.

    relation   contradicts: they say different things; refines: one says more than the other
    """
    for what, facts in (("numbers", _numbers), ("names", _machine_names), ("names", _names)):
        mine, theirs = facts(one) - _all_words(other), facts(other) - _all_words(one)
        mine, theirs = mine - facts(other), theirs - facts(one)
        if mine and theirs:
            return CONTRADICTS, f"{what}: {_listed(mine | theirs)}"
        if (mine or theirs) and facts is not _names:
            return REFINES, f"{what}: {_listed(mine | theirs)}"
    a, b = _all_words(one), _all_words(other)
    if _negated(a) != _negated(b):
        return CONTRADICTS, "a negation"
    for pair in _OPPOSITES:
        if len(pair & a) == len(pair & b) == 1 and pair & a != pair & b:
            return CONTRADICTS, f"words: {_listed(pair)}"
    return _changed_words(one, other) or _changed_order(one, other)


def _numbers(text: str) -> set[str]:
    """Numbers in digits, with their unit where one is known."""
    text = _WORD.sub(lambda word: _SPELT.get(word[0].lower(), word[0]), text.replace(",", ""))
    text = _MEASURE.sub(lambda unit: f"_{_UNIT_OF[unit[1].lower()]}" if unit[1].lower() in _UNIT_OF else unit[0], text)
    return set(re.findall(r"\d+(?:\.\d+)*(?:_[a-z]+)?", text))


def _machine_names(text: str) -> set[str]:
    return {found.lower() for found in _CODE.findall(text)} - {"e.g", "i.e"}


def _names(text: str) -> set[str]:
    return {found.lower() for found in _NAME.findall(text)} - set(re.findall(r"\b[a-z]+\b", text))


def _all_words(text: str) -> set[str]:
    return {word.lower().replace("\u2019", "'") for word in _WORD.findall(text)}


def _negated(words: set[str]) -> bool:
    return bool(words & _NEGATIONS) or any(word.endswith("n't") for word in words)


def _stems(words: Iterable[str]) -> list[str]:
    """The words that carry a meaning, in lower case and without the endings of English, in their order."""
    plain = (re.sub(r"['\u2019]s$", "", word.lower()) for word in words)
    kept = [word for word in plain if word not in _WEIGHED and not word.endswith("n't")]
    return [re.sub(r"(?<=\w{3})(?:ing|ed|es|s|e|ly)$", "", word) for word in kept]


def _changed_words(one: str, other: str) -> tuple[str, str] | None:
    """The words that differ between two texts that otherwise have the same words; a rewording differs in more."""
    a, b = set(_stems(_WORD.findall(one))), set(_stems(_WORD.findall(other)))
    mine, theirs = _without_kin(a - b, b - a), _without_kin(b - a, a - b)
    if not (mine or theirs) or len(a & b) < NEARLY_ALL * max(len(a), len(b)):
        return None
    return CONTRADICTS if mine and theirs else REFINES, f"words: {_listed(mine | theirs)}"


def _without_kin(words: set[str], others: set[str]) -> set[str]:
    """The words without those that another one begins with, or that begin with another one: repo and repository."""
    return {
        word
        for word in words
        if not any(
            min(len(word), len(other)) >= 4 and (word.startswith(other) or other.startswith(word)) for other in others
        )
    }


def _changed_order(one: str, other: str) -> tuple[str, str] | None:
    """A word behind another preposition, or the same words in another order: "from A to B" and "from B to A"."""
    a, b = _phrases(one), _phrases(other)
    for place in (a.keys() & b.keys()) - {""}:
        elsewhere = set().union(*(words for at, words in b.items() if at != place))
        if a[place] and b[place] and not a[place] & b[place] and a[place] <= elsewhere:
            return CONTRADICTS, f"order: {place} {_listed(a[place] | b[place])}"
    mine, theirs = ([_stems(_WORD.findall(clause)) for clause in _CLAUSE.split(text)] for text in (one, other))
    if (
        sorted(chain(*mine)) == sorted(chain(*theirs))
        and a.keys() == b.keys() == {""}
        and sorted(mine) != sorted(theirs)
    ):
        return CONTRADICTS, "order"
    return None


def _phrases(text: str) -> dict[str, set[str]]:
    """{preposition: the words of meaning behind it, up to the next one}; "": those behind none."""
    found: dict[str, set[str]] = {}
    for clause in _CLAUSE.split(text):
        place = ""
        for word in _WORD.findall(clause):
            if word.lower() in _PLACES:
                place = word.lower()
            else:
                found.setdefault(place, set()).update(_stems([word]))
    return found


def _listed(words: Iterable[str]) -> str:
    return ", ".join(sorted(words)[:6])
