"""The options of a row, and which of them is right; rows without options that are likely to have some are refused."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from core import normal_form
from single_turn_bench.choice import LETTERS, n_lettered
from single_turn_bench.columns import (
    ANSWER,
    POINTER,
    WAYS,
    Fields,
    end_of,
    folded,
    is_missing,
    is_plain,
    literal,
    plain_name,
)

LETTER, TEXT, FROM_0, FROM_1 = WAYS
OPTIONS = ("options", "choices", "endings", "answerchoices", "candidates")
WRONG = re.compile(r"(?:incorrectanswer|distractor)(?:s|\d)")  # beside the right one: GPQA, SciQ
STEMS = ("option", "opt", "op", "choice", "ending", "answer", "sol", "")  # option_a, opa, choice1, ending0, A
LABELLED = re.compile(r"\s*[(\[]?([A-Za-z]|\d{1,2})(?:[)\]、]\s*|[.:]\s+)(\S.*)", re.S)  # "A) red"
CALLED = re.compile(r"(?:(?:the )?(?:correct )?(?:answer|option)(?: is)?:? *)?[(\[]?([a-z]|\d{1,2})[)\].]*", re.I)
BARE_LETTER = re.compile(r"[(\[]?[A-Ha-h][)\].]?")


@dataclass(kw_only=True)
class Choice:
    """A row with options.

    labels   what the file calls them: A, B, C ... or its own
    right    the place of the right one, once it is known
    first    whether the right one comes first in every row, and the wrong ones behind it
    taken    plain names of the columns that hold the options
    """

    fields: Fields
    options: tuple[str, ...]
    labels: tuple[str, ...]
    taken: tuple[str, ...]
    right: int | None = None
    first: bool = False


def options_of(fields: Fields) -> Choice | None:
    """The options of a row; None where no column that was said, or is known, holds any."""
    said, values = fields.said.options, fields.values
    if said is not None and not isinstance(said, str):
        names = [fields.name(name, ()) for name in said]
        return choice_of(fields, names, [values.get(name) for name in names]) if names else None
    if (name := fields.name(said, OPTIONS)) in values:
        return choice_of(fields, [name], *of_value(fields, name))
    families = families_of(fields.names)
    bare = families.get("", [])
    if len(bare) == 2 and all(re.fullmatch(r"[-+\d.,/ ]*", str(values.get(name, ""))) for name in bare):
        del families[""]  # a and b of a template
    if family := next((families[stem] for stem in STEMS if stem in families), None):
        return choice_of(fields, family, [values.get(name) for name in family])
    wrong = [name for name in values if WRONG.fullmatch(name)]
    right = fields.name(fields.said.answer, ("correctanswer", *ANSWER))
    if not wrong or right not in values:
        return None
    texts = [values[right]]
    for name in wrong:
        several = isinstance(values[name], list)
        if name.endswith("s") and not several:
            raise fields.error(f"{fields.names[name]!r} is no list of wrong answers", "options=[NAME, NAME, ...]")
        texts += values[name] if several else [values[name]]
    choice = choice_of(fields, [right, *wrong], texts)
    if len(set(choice.options)) < len(choice.options) and "recordid" not in fields.names:  # GPQA is as it is
        raise fields.error(f"an option stands twice among {fields.names[right]!r} and the wrong answers")
    choice.right, choice.first = 0, True
    return choice


def in_order(labels: Sequence[Any]) -> bool:
    """Whether they are A, B, C ... or 0, 1, 2 ... or 1, 2, 3 ..."""
    counted = [[str(number + start) for number in range(len(labels))] for start in (0, 1)]
    return len(labels) > 1 and [str(label).upper() for label in labels] in ([*LETTERS[: len(labels)]], *counted)


def families_of(names: Iterable[str]) -> dict[str, list[str]]:
    """{stem: names in order} of plain names that differ by a last letter or digit alone."""
    groups: dict[str, list[str]] = {}
    for name in sorted(filter(None, names)):
        groups.setdefault(name[:-1], []).append(name)
    return {stem: group for stem, group in groups.items() if in_order([name[-1] for name in group])}


def of_value(fields: Fields, name: str) -> tuple[list[Any], list[Any] | None]:
    """Texts and labels: of a list, {"text": [...], "label": [...]} (ARC), {"A": text}, each also written as a text."""
    value, labels = literal(fields.values[name]), None
    if isinstance(value, dict):
        arc = isinstance(value.get("text"), list)
        value, labels = (value["text"], value.get("label")) if arc else (list(value.values()), list(value))
    plain = isinstance(value, list) and all(each is None or is_plain(each) for each in value)
    if not plain or not 2 <= len(value) <= len(LETTERS) or (labels and not in_order(labels)):
        why = f"{fields.names[name]!r} holds no 2 to {len(LETTERS)} options in a form of docs/data.md"
        raise fields.error(why, "options=[NAME, NAME, ...]")
    return value, labels


def choice_of(fields: Fields, taken: Sequence[str], values: Sequence[Any], labels: Any = None) -> Choice:
    """Empty ones at the end are none. Labels before the texts ("A) red") are taken off."""
    texts = [None if is_missing(value) else str(value).strip() for value in values]
    while texts and texts[-1] is None:
        texts.pop()
    shown = ", ".join(repr(fields.names[name]) for name in taken)
    if len(texts) < 2 or None in texts:
        raise fields.error(f"{shown} hold no two options without a gap", "options=[NAME, NAME, ...]")
    own = [LABELLED.fullmatch(text) for text in texts]
    if all(own) and in_order([match[1] for match in own]):
        labels, texts = [match[1] for match in own], [match[2].strip() for match in own]
    labels = tuple(str(label).strip().upper() for label in labels or LETTERS)[: len(texts)]
    return Choice(fields=fields, options=tuple(texts), labels=labels, taken=tuple(taken))


def settle(choices: Iterable[Choice]) -> None:
    """Find the right option of each row of a file."""
    pointed = [choice for choice in choices if choice.right is None]
    ways = set(WAYS).intersection(*(readings(choice, value_of(choice)[1]) for choice in pointed))
    for choice in pointed:
        choice.right = right_of(choice, ways)


def right_of(choice: Choice, ways: Collection[str]) -> int:
    """The place of the right option. A number does not say where it counts from, so it is refused if nobody does.

    ways   those in which every row of the file can be read: proposed where the right option has to be said
    """
    fields, said = choice.fields, choice.fields.said
    (column, value), index = value_of(choice), fields.name(None, ("answerindex", "answeridx"))
    found = readings(choice, value)
    found = {way: place for way, place in found.items() if said.answer_as in (None, way)}
    shown = f"{fields.names[column]!r} is {value[:60]!r}"
    if not found:
        how = f" as a {said.answer_as}" if said.answer_as else ""
        why = (
            f"{shown}, which tells no single one of {len(choice.options)} options{how} (where several are right, leave "
        )
        why += "the row out, or take its options away: then its answer is graded as a text)"
        raise fields.error(why, "answer=NAME")
    if said.answer is None and said.answer_as is None and str(fields.values.get(index)).isdigit():  # it counts from 0
        if (place := int(fields.values[index])) in found.values() and place < len(choice.options):
            return place
        raise fields.error(f"{shown}, and {fields.names[index]!r} tells another option", "answer=NAME")
    if len({*found.values()}) > 1 or not (said.answer_as or {LETTER, TEXT} & found.keys()):
        fitting = [way for way in WAYS if way in found and way in ways] or [*found]
        each = (f"answer_as={way} if it is {choice.options[found[way]][:60]!r}" for way in fitting)
        raise fields.error(f"{shown}, and does not say which option that is", ", or env.columns.".join(each))
    return next(iter(found.values()))


def value_of(choice: Choice) -> tuple[str, str]:
    """(plain name of the column that tells the right option, its text; of a list of one, the text of that)."""
    known = [name for name in (*ANSWER, *POINTER) if name not in choice.taken]
    value = choice.fields.need(choice.fields.said.answer, known, "the right option", "answer")
    found = literal(value)
    if isinstance(found, list) and len(found) == 1 and (found is value or isinstance(found[0], str)):  # "[5]" is a text
        value = found[0]
    return choice.fields.name(choice.fields.said.answer, known), str(value)


def readings(choice: Choice, value: str) -> dict[str, int]:
    """{way: place} of all ways in which a value tells one of the options."""
    text = re.sub(r"^(\d+)\.0$", r"\1", normal_form.normal_form(end_of(value)[0]).strip())  # as a table writes a number
    texts, found = [folded(option) for option in choice.options], {}
    for own, said in ((choice.options, text), (texts, folded(text))):  # exactly this one, else the one that is alike
        if not found and own.count(said) == 1:
            found[TEXT] = own.index(said)
    both = LABELLED.fullmatch(text)  # "B) its text"
    called = CALLED.fullmatch(text) or (both if both and folded(both[2]) in texts else None)
    labels = {label: place for names in (choice.labels, choice.taken) for place, label in enumerate(names)}
    if (label := called[1].upper() if called else plain_name(text)) in labels or (label := plain_name(text)) in labels:
        found[LETTER] = labels[label]
    own = [match and match[1].upper() for match in map(LABELLED.fullmatch, choice.options)]
    if label in own and None not in own and in_order(sorted(own)):  # labels before the texts, in another order
        found[TEXT] = own.index(label)
    if re.fullmatch(r"\d+", text) and not (LETTER in found and choice.labels[0].isdigit()):
        places = {FROM_0: int(text), FROM_1: int(text) - 1}
        found |= {way: place for way, place in places.items() if 0 <= place < len(texts)}
    return found


def check_free(rows: Sequence[tuple[Fields, str, str]]) -> None:
    """Raises UserError where rows read without options, (columns, question, answer), are likely to have some."""
    if not rows or rows[0][0].said.options is not None:
        return
    fields, _, answer = rows[0]
    shown = any(n_lettered(asked) > 1 or "options" in each.names for each, asked, _ in rows)
    if held := set.intersection(*(lists_with(each, answer) for each, _, answer in rows)):
        why = f"{min(held)} may hold options of its answer {answer!r}"
        raise fields.error(why, "options=NAME, or =[] if not")
    if not shown and all(BARE_LETTER.fullmatch(answer) for *_, answer in rows):
        why = f"its answer {answer!r} is a letter, and no column is known to be its options"
        raise fields.error(why, "options=NAME")


def lists_with(fields: Fields, answer: str) -> set[str]:
    """The columns that list several values, alone or as a family, of which the answer is one, by text or number."""
    own = fields.name(fields.said.answer, ANSWER)
    values = {repr(fields.names[name]): literal(fields.values[name]) for name in fields.values.keys() - {own, *POINTER}}
    for family in families_of(fields.values).values():
        values[", ".join(repr(fields.names[name]) for name in family)] = [fields.values[name] for name in family]
    found = set()
    for names, value in values.items():
        parts = re.split(r"[,;|\n]", value) if isinstance(value, str) else value
        texts = [folded(each) for each in parts] if isinstance(parts, list) and len(parts) > 1 else []
        counted = parts is value and answer.isdigit() and int(answer) <= len(texts)
        if folded(answer) in texts or (texts and counted):
            found.add(names)
    return found
