"""Which option of each row is the right one: what a letter, a number, a text or several columns together say.

A column is read in one way throughout a file: its numbers count from 0 in all rows, or from 1 in all rows. What the
rows allow in two ways that differ is refused, and so is a row whose columns disagree.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from core.errors import UserError
from single_turn_bench.choice import LETTERS
from single_turn_bench.columns import ANSWERS, Column, Fields, is_pointer
from single_turn_bench.free import end_of
from single_turn_bench.options import Option, as_flag, in_order, is_missing, literal, plain_name

FROM_0, FROM_1, LABEL, OWN, TEXT, MARKED = "from 0", "from 1", "label", "label before a text", "text", "mark"
NAMED = "label or text"
WAYS = (LABEL, OWN, TEXT, FROM_0, FROM_1, MARKED)
NOT_BESIDE = (
    "output",
    "completion",
    "response",
    "reference",
    "expectedoutput",
)  # these tell of no option by themselves
DOCUMENTED = "answerindex"  # counts from 0 where the rows leave it open
WORD = r"(?:the\s+)?(?:correct\s+|right\s+|final\s+)?(?:option|choice|answer|ans)(?:\s+is)?\s*[:#]?\s*"
CALLED = re.compile(rf"(?:{WORD})?[(\[{{<\"'*]*(?P<label>[A-Za-z]|\d{{1,2}})[)\]}}>\"'.:*]*", re.I)
LABEL_AND_TEXT = re.compile(r"[(\[]?(?P<label>[A-Za-z]|\d{1,2})(?:\s?[)\].:、]\s*|\s[-–]\s)(?P<text>\S.*)", re.S)
WHOLE = re.compile(r"-?\d{1,6}(?:\.0)?")
SEVERAL = re.compile(r"[(\[]?[A-Za-z][)\].]?(?:\s*(?:,|;|/|&|\+|\band\b|\s)\s*[(\[]?[A-Za-z][)\].]?)+|[A-Z]{2,8}")
MAX_NAMED = 5  # rows named in an error


@dataclass
class Choice:
    """A row with options, on the way to its right one."""

    fields: Fields
    options: tuple[Option, ...]
    index: int = -1
    taken: tuple[str, ...] = ()  # plain names of the columns that its options come from

    @property
    def where(self) -> str:
        return self.fields.where


@dataclass
class Pointing:
    """A column that may tell the right option, over all rows that have it: {row: {reading: index}}."""

    plain: str
    name: str
    rows: dict[int, dict[str, int]] = field(default_factory=dict)

    def readings(self) -> list[str]:
        """The ways in which all its rows can be read."""
        found = [way for way in WAYS if all(way in row for row in self.rows.values())]
        if OWN in found and all(row[OWN] == row[LABEL] for row in self.rows.values()):
            found.remove(OWN)
        named = [{row[way] for way in (LABEL, TEXT) if way in row} for row in self.rows.values()]
        if not found and all(len(indices) == 1 for indices in named):
            return [NAMED]
        return found

    def at(self, row: int, way: str) -> int:
        found = self.rows[row]
        return found[way] if way != NAMED else found.get(LABEL, found.get(TEXT, -1))


def settle(choices: Sequence[Choice]) -> None:
    """Set each row's `index`. Raises UserError, which names row and columns, where that is not certain."""
    open_ones = [each for each in choices if not marked(each)]
    pointings = list(columns_of(open_ones))
    for number, choice in enumerate(open_ones):
        if not any(number in pointing.rows for pointing in pointings):
            raise UserError(refusal(choice, number, open_ones))
    vectors = agreeing(pointings, [pointing.readings() for pointing in pointings])
    if len(vectors) > 1:
        vectors = agreeing(pointings, [preferred(pointing) for pointing in pointings])
    if not vectors:
        raise UserError(disagreement(open_ones, pointings))
    if len(vectors) > 1:
        raise UserError(ambiguity(open_ones, pointings, vectors))
    for number, index in vectors[0].items():
        open_ones[number].index = index


def telling(choice: Choice) -> list[str]:
    """The plain names of the columns that may say which option is right."""
    return [name for name in choice.fields if (name in ANSWERS or is_pointer(name)) and name not in choice.taken]


def marked(choice: Choice) -> bool:
    """Sets the index where the options themselves say which is right."""
    right = [number for number, option in enumerate(choice.options) if option.right]
    if len(right) > 1:
        raise UserError(f"{choice.where}: {len(right)} options are marked as right, and one letter is the answer.")
    if right:
        choice.index = right[0]
    return bool(right)


def columns_of(choices: Sequence[Choice]) -> Iterator[Pointing]:
    """Each column that tells the right option, in the rows where it does. A text that is no option is left out."""
    for plain in dict.fromkeys(plain for choice in choices for plain in telling(choice)):
        if plain in NOT_BESIDE and any("answer" in each.fields or each.fields.pointers for each in choices):
            continue
        pointing = None
        for number, choice in enumerate(choices):
            if plain not in choice.fields or plain in choice.taken:
                continue
            column = choice.fields[plain]
            found = readings(column, choice)
            if found or points(column, plain):
                pointing = pointing or Pointing(plain, column.name)
                pointing.rows[number] = found
        if pointing is not None:
            check_rows(pointing, choices)
            yield pointing


def check_rows(pointing: Pointing, choices: Sequence[Choice]) -> None:
    """Raises UserError naming the rows in which a column says no option, or counts beyond them."""
    if pointing.readings():
        return
    bad = [number for number, found in pointing.rows.items() if not found]
    if not bad:  # each row can be read, and not all in one way: those that the most usual way leaves out
        usual = max(WAYS, key=lambda way: sum(way in found for found in pointing.rows.values()))
        bad = [number for number, found in pointing.rows.items() if usual not in found]
    raise UserError(refusal(choices[bad[0]], bad[0], choices, more=bad[1:]))


def points(column: Column, plain: str) -> bool:
    """Whether a value that names no option was meant to: a letter, or a number where numbers count options."""
    text = shown(column.value)
    return bool(re.fullmatch(r"[(\[]?[A-Za-z][)\].]?", text)) or (is_pointer(plain) and bool(WHOLE.fullmatch(text)))


def readings(column: Column, choice: Choice) -> dict[str, int]:
    """{way: index} of all ways in which a value tells one of the row's options."""
    value = literal(column.value) if isinstance(column.value, str) else None
    value = column.value if value is None else value
    if isinstance(value, list | tuple):
        return of_list(list(value), column, choice)
    if isinstance(value, dict):
        return {}
    return of_scalar(value, choice.options)


def of_list(values: list[Any], column: Column, choice: Choice) -> dict[str, int]:
    """One value in a list, or a mark for each option. Several right options cannot be answered by one letter."""
    flags = [as_flag(each) for each in values]
    if len(values) == len(choice.options) and None not in flags and len(values) > 1:
        if sum(flags) == 1:
            return {MARKED: flags.index(True)}
    elif len(values) == 1 and not isinstance(values[0], list | dict):
        return of_scalar(values[0], choice.options)
    found = [of_scalar(each, choice.options) for each in values if not isinstance(each, list | dict)]
    if len(values) > 1 and all(found):
        raise UserError(several(choice, column))
    return {}


def several(choice: Choice, column: Column) -> str:
    return (
        f"{choice.where}: {column.name!r} names several options ({shown(column.value)}), and one letter is the answer."
    )


def of_scalar(value: Any, options: Sequence[Option]) -> dict[str, int]:
    found: dict[str, int] = {}
    text = unicodedata.normalize("NFKC", end_of(str(value))[0]).strip()
    labels = labels_in(options)
    if (index := label_index(text, options, labels)) is not None:
        own = own_labels(options)
        found |= {LABEL: index, OWN: own.get(next((label for label in labels if labels[label] == index), ""), index)}
    texts = (text, "yes" if value else "no") if isinstance(value, bool) else (str(value),)
    if (
        index := next((each for each in (text_index(text, options) for text in texts) if each is not None), None)
    ) is not None:
        found[TEXT] = index
    counted = CALLED.fullmatch(text)
    digits = counted["label"] if counted and counted["label"].isdigit() else text
    if WHOLE.fullmatch(digits) and not isinstance(value, bool) and not (LABEL in found and digits in labels):
        number = int(float(digits))
        places = {option.place: index for index, option in enumerate(options)}
        found |= {way: places[place] for way, place in ((FROM_0, number), (FROM_1, number - 1)) if place in places}
    return found


def labels_in(options: Sequence[Option]) -> dict[str, int]:
    """{label: index}: the labels of the file, else letters in the options' order."""
    if any(option.label for option in options):
        return {option.label.strip().upper(): index for index, option in enumerate(options) if option.label}
    return {LETTERS[option.place]: index for index, option in enumerate(options) if option.place < len(LETTERS)}


def own_labels(options: Sequence[Option]) -> dict[str, int]:
    """{label: index} where all texts begin with labels, but in another order, so that a letter has two meanings."""
    found = [LABEL_AND_TEXT.fullmatch(option.text) for option in options]
    if any(option.label for option in options) or not all(found):
        return {}
    labels = [match["label"].upper() for match in found]
    return dict(zip(labels, range(len(labels)), strict=True)) if in_order(sorted(labels)) else {}


def label_index(text: str, options: Sequence[Option], labels: Mapping[str, int]) -> int | None:
    """Of "B", "(b)", "Option B", "B) its text", a label of the file's own, or the name of the option's column."""
    if (index := labels.get(text.upper())) is not None:
        return index
    if (called := CALLED.fullmatch(text)) and (index := labels.get(called["label"].upper())) is not None:
        return index
    if (both := LABEL_AND_TEXT.fullmatch(text)) and (index := labels.get(both["label"].upper())) is not None:
        return index if folded(both["text"]) == folded(options[index].text) else None
    names = [index for index, option in enumerate(options) if option.name and option.name == plain_name(text)]
    return names[0] if names else None


def text_index(text: str, options: Sequence[Option]) -> int | None:
    """Of the one option that has this text, exactly or else but for case, blanks and a last full stop."""
    for same in (str.strip, folded):
        found = [index for index, option in enumerate(options) if same(option.text) == same(text)]
        if found:
            return found[0] if len(found) == 1 else None
    return None


def folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split()).strip("\"' ").removesuffix(".")


def shown(value: Any) -> str:
    text = str(value).strip()
    return text if len(text) <= 60 else f"{text[:57]}..."


def agreeing(pointings: Sequence[Pointing], ways: Sequence[Sequence[str]]) -> list[dict[int, int]]:
    """The different {row: index} that the columns give, each read in one way, where they agree in all rows."""
    found: list[dict[int, int]] = []
    for chosen in product(*ways):
        vector: dict[int, int] = {}
        for pointing, way in zip(pointings, chosen, strict=True):
            if any(vector.setdefault(row, pointing.at(row, way)) != pointing.at(row, way) for row in pointing.rows):
                break
        else:
            if vector not in found:
                found.append(vector)
    return found


def preferred(pointing: Pointing) -> list[str]:
    """The readings of a column by its name: an answer says the text of an option, an index counts."""
    ways = pointing.readings()
    counting = [way for way in ways if way in (FROM_0, FROM_1)]
    if is_pointer(pointing.plain):
        if LABEL in ways and OWN not in ways:
            return [LABEL]
        if counting and pointing.plain == DOCUMENTED:
            return counting[:1]
        return counting or ways
    return [TEXT] if TEXT in ways and counting else ways


def refusal(choice: Choice, number: int, choices: Sequence[Choice], more: Sequence[int] = ()) -> str:
    """Why no column tells the right option of a row."""
    told = [choice.fields[plain] for plain in telling(choice)]
    empty = [name for plain, name in choice.fields.empty.items() if plain in ANSWERS or is_pointer(plain)]
    also = (
        f" (and so in {', '.join(choices[each].where.rpartition(' ')[2] for each in more[:MAX_NAMED])})" if more else ""
    )
    if not told:
        others = ", ".join(repr(choice.fields[name].name) for name in choice.fields if name not in choice.taken)
        why = f": {', '.join(map(repr, empty))} is empty" if empty else f"; beside the options there are {others}"
        return (
            f"{choice.where}: no field 'answer', 'answer_letter' or 'answer_index' tells the right option{why}{also}."
        )
    for column in told:
        if isinstance(column.value, str) and SEVERAL.fullmatch(column.value.strip()):
            letters = re.findall(r"[A-Za-z]", re.sub(r"\band\b", "", column.value))
            if all(letter.upper() in labels_in(choice.options) for letter in letters):
                return several(choice, column)
    values = " and ".join(f"{column.name!r} is {shown(column.value)!r}" for column in told)
    unclear = f"{choice.where}: the right option is unclear: {values}"
    texts = [folded(option.text) for option in choice.options]
    twice = any(texts.count(folded(str(column.value))) > 1 for column in told)
    why = "which stands twice among" if twice else "which is none of"
    return f"{unclear}, {why} its {len(choice.options)} options{also}."


def disagreement(choices: Sequence[Choice], pointings: Sequence[Pointing]) -> str:
    for number, choice in enumerate(choices):
        here = [pointing for pointing in pointings if number in pointing.rows]
        sets = [{pointing.at(number, way) for way in pointing.readings()} for pointing in here]
        if sets and not set.intersection(*sets):
            values = " and ".join(f"{each.name!r} is {shown(choice.fields[each.plain].value)!r}" for each in here)
            return f"{choice.where}: the right option is unclear: index, letter and answer do not agree ({values})."
    names = " and ".join(repr(each.name) for each in pointings)
    return f"{choices[0].where}: the right option is unclear: {names} agree in no way that holds in all rows."


def ambiguity(choices: Sequence[Choice], pointings: Sequence[Pointing], vectors: Sequence[Mapping[int, int]]) -> str:
    row = next(row for row in vectors[0] if len({vector[row] for vector in vectors}) > 1)
    pointing = next(
        each for each in pointings if row in each.rows and len({each.at(row, way) for way in each.readings()}) > 1
    )
    value = shown(choices[row].fields[pointing.plain].value)
    ways = preferred(pointing)
    if {FROM_0, FROM_1} <= set(ways):
        why = "its numbers may count from 0 or from 1: write letters, or call it answer_index, which counts from 0"
    else:
        why = f"it may be a {' or a '.join(ways)} of another option"
    return f"{choices[row].where}: {pointing.name!r} is {value!r}, and the right option is unclear: {why}."


def told_by(fields: Fields, options: Sequence[Option], plain: str) -> set[str]:
    """The ways in which a column of a row without options would tell one of these."""
    column = fields.get(plain)
    if column is None or is_missing(column.value) or isinstance(column.value, dict | list):
        return set()
    return set(of_scalar(column.value, options))
