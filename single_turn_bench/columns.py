"""What the columns of a data file hold: what `env.columns` says, else what their usual names say.

    env.columns={question: q, answer: gold, options: [a, b, c, d]}

A file that neither settles is refused, in one sentence that shows its columns and names the key to set.
"""

from __future__ import annotations

import json
import re
import unicodedata
from ast import literal_eval
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.errors import UserError
from single_turn_bench.boxes import boxed_answer
from single_turn_bench.choice import LETTERS

# Names of columns in lower case without blanks and signs; of several that are there, the first counts.
QUESTION = ("question", "problem", "query", "prompt", "sentence", "ctx")
# shown above the question
CONTEXT = ("passage", "context", "support", "article", "story", "paragraph", "document", "body")
OPTIONS = ("options", "choices", "endings", "answerchoices", "candidates")
ANSWER = (
    "finalanswer", "answer", "correctanswer", "goldanswer", "gold", "target", "groundtruth", "expectedanswer", "answers"
)  # fmt: skip
POINTER = (  # these tell one of the options, and nothing else
    "answerletter", "answerindex", "answeridx", "answerkey", "answertext", "label", "labels", "correct",
    "correctoption", "goldlabel", "cop",
)  # fmt: skip
ID = ("uniqueid", "id", "recordid", "questionid")
SUBJECT = ("subject", "category", "domain", "highleveldomain", "subdomain")
WRONG = re.compile(r"(?:incorrectanswer|distractor)(?:s|\d)")
# A column for each option: "A", "option_b", "Choice 3", "opa", "ending0"; "answerA" and "sol1" beside a pointer.
STEMS = ("option", "opt", "op", "choice", "ending", "answer", "sol", "")
FAMILY = re.compile(r"(?P<stem>.*?)(?P<end>\d{1,2}|[a-z])")
LABELLED = re.compile(r"\s*[(\[]?([A-Za-z]|\d{1,2})(?:[)\]、]\s*|[.:]\s+|\s-\s)(\S.*)", re.S)  # "A) red"
CALLED = re.compile(r"(?:(?:the )?(?:correct )?(?:answer|option)(?: is)?:? *)?[(\[]?([a-z]|\d{1,2})[)\].]*", re.I)
BARE_LETTER = re.compile(r"[(\[]?[A-Ha-h][)\].]?")
SHOWN_LETTERS = re.compile(r"(?:^|[\s(\[])A\s?[).:\]].*?(?:^|[\s(\[])B\s?[).:\]]", re.S)  # in a question's text
SYNONYMS = {"true": ("Yes",), "yes": ("True",), "false": ("No",), "no": ("False",)}
LETTER, TEXT, FROM_0, FROM_1 = WAYS = ("letter", "text", "from_0", "from_1")


@dataclass(frozen=True, kw_only=True)
class Columns:
    """`env.columns`: the names of columns; where one is None, its usual names are looked for.

    question, context   one, or several, whose texts stand one below the other
    options     the one that holds all options, or a list with one for each; [] says that there are none
    answer_as   how the answer tells the option: letter, text, from_0 or from_1 (a number that counts the options)
    """

    question: str | Sequence[str] | None = None
    context: str | Sequence[str] | None = None
    answer: str | None = None
    options: str | Sequence[str] | None = None
    answer_as: str | None = None
    id: str | None = None
    subject: str | None = None
    level: str | None = None
    kind: str | None = None

    def __post_init__(self) -> None:
        if self.answer_as not in (None, *WAYS):
            raise UserError(f"env.columns.answer_as={self.answer_as} is not one of {', '.join(WAYS)}.")


@dataclass
class Fields:
    """The columns of a row, {plain name: (name, value)}, those of `metadata` included; `empty` have no value."""

    raw: Mapping[str, Any]
    where: str
    said: Columns
    found: dict[str, tuple[str, Any]] = field(default_factory=dict)
    empty: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        inner = self.raw.get("metadata")
        inner = literal(inner) if isinstance(inner, str) else inner
        for name, value in [*self.raw.items(), *(inner.items() if isinstance(inner, dict) else ())]:
            plain = plain_name(name)
            if is_missing(value):
                self.empty.setdefault(plain, str(name))
            elif plain not in self.found:
                self.found[plain] = (str(name), value)
            elif name in self.raw and self.found[plain][1] != value:
                twice = f"{self.found[plain][0]!r} and {name!r}"
                raise UserError(f"{self.where}: the columns {twice} are of one name and differ.")

    def get(self, said: str | None, known: Sequence[str] = ()) -> tuple[str, Any] | None:
        """(name, value) of the column that was said, else of the first known one; None where the row has no value."""
        if said is None:
            return next((self.found[name] for name in known if name in self.found), None)
        if plain_name(said) not in self.found and plain_name(said) not in self.empty:
            raise self.error(f"there is no column {said!r}")
        return self.found.get(plain_name(said))

    def text(self, said: str | None, known: Sequence[str]) -> str:
        column = self.get(said, known)
        return str(column[1]).strip() if column else ""

    def none(self, what: str, known: Iterable[str], key: str) -> UserError:
        """No column holds it, or an empty one does."""
        empty = next((self.empty[name] for name in map(plain_name, known) if name in self.empty), None)
        return self.error(f"no column is known to be {what}" if empty is None else f"{empty!r}, {what}, is empty", key)

    def error(self, why: str, key: str = "") -> UserError:
        """One sentence, with the columns and the key that settles it."""
        settle = f"; say it with env.columns.{key}" if key else ""
        return UserError(f"{self.where}: {why}; the columns are {', '.join(map(str, self.raw))}{settle}.")


def plain_name(column: Any) -> str:
    """A column's name without case, blanks and signs: "Option A", "option_a" and "OptionA" are one."""
    return "".join(sign for sign in unicodedata.normalize("NFKC", str(column)).casefold() if sign.isalnum())


def is_missing(value: Any) -> bool:
    """None, an empty text, list or object, and the NaN that tables write for an empty cell."""
    if isinstance(value, str):
        return not value.strip()
    return value is None or value != value or (isinstance(value, list | tuple | dict) and not value)


def is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float)


def literal(text: str) -> Any:
    """The list or object that a text writes out as JSON or Python; None where it writes none."""
    text = text.strip()
    if text[:1] + text[-1:] not in ("[]", "{}", "()"):
        return None
    for read in (json.loads, literal_eval):  # a literal is read, never evaluated
        try:
            value = read(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        return list(value) if isinstance(value, tuple) else value if isinstance(value, list | dict) else None
    return None


def listed(said: str | Sequence[str] | None) -> list[str]:
    return [] if said is None else [said] if isinstance(said, str) else list(said)


def as_list(value: Any) -> list[Any]:
    found = literal(value) if isinstance(value, str) else value
    return list(found) if isinstance(found, list | tuple) else [value]


def folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split()).strip("\"' ").removesuffix(".")


def in_order(labels: Sequence[str]) -> bool:
    """Whether they are A, B, C ... or 0, 1, 2 ... or 1, 2, 3 ..."""
    counted = [[str(number + start) for number in range(len(labels))] for start in (0, 1)]
    return len(labels) > 1 and [label.upper() for label in labels] in ([*LETTERS[: len(labels)]], *counted)


def end_of(text: str) -> tuple[str, str | None]:
    r"""("42", the text) of "... #### 42" and "... \boxed{42}", else (the text, None)."""
    if "####" in text:
        return text.rpartition("####")[2].strip(), text
    box = boxed_answer(text)
    return (box.content, text) if box and box.content.strip() else (text, None)


def question_of(fields: Fields) -> str:
    """The question, with the texts that stand above it."""
    said = listed(fields.said.question)
    asked = [fields.get(name) for name in said] or [fields.get(None, QUESTION)]
    if None in asked:
        raise fields.none("the question", said or QUESTION, "question=NAME")
    above = [fields.get(name) for name in listed(fields.said.context)]
    if fields.said.context is None:
        above = [fields.found[name] for name in CONTEXT if name in fields.found]
    texts = []
    for name, value in filter(None, [*above, *asked]):
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            value = "\n".join(value)
        if not is_plain(value):
            raise fields.error(f"{name!r} holds no text, but a {type(value).__name__}", "question=NAME")
        texts.append(str(value).strip() if "recordid" in fields.found else str(value))  # GPQA has blanks around
    return "\n\n".join(dict.fromkeys(texts))


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
    right: int | None = None
    first: bool = False
    taken: tuple[str, ...] = ()


def options_of(fields: Fields) -> Choice | None:
    """The options of a row; None where no column that was said, or is known, holds any."""
    said = fields.said.options
    if said is not None and not isinstance(said, str):
        columns = [fields.get(name) for name in said]
        return of_texts(fields, [column and column[1] for column in columns], said) if columns else None
    if (column := fields.get(said, OPTIONS)) is not None:
        if (choice := of_value(fields, *column)) is None:
            why = f"{column[0]!r} holds no 2 to {len(LETTERS)} options in a form of docs/data.md"
            raise fields.error(why, "options=[NAME, NAME, ...]")
        return choice
    for stem, family in families(fields).items():
        values = [fields.found[name][1] if name in fields.found else None for name in family]
        numbers = stem == "" and len(family) == 2 and all(re.fullmatch(r"[-+\d.,/ ]*", str(each)) for each in values)
        pointed = stem not in ("answer", "sol") or any(name in fields.found for name in POINTER)
        if stem in STEMS and pointed and not numbers:
            return of_texts(fields, values, family)
    return beside_wrong_ones(fields)


def beside_wrong_ones(fields: Fields) -> Choice | None:
    """ "Correct Answer" and "Incorrect Answer 1" ..., "correct_answer" and "distractor1" ..."""
    wrong = [name for name in fields.found if WRONG.fullmatch(name)]
    right = fields.get(fields.said.answer, ("correctanswer", *ANSWER))
    if not (wrong and right):
        return None
    values = [each for name in wrong for each in as_list(fields.found[name][1])]
    if len(values) == 1 and re.search(r"[,;|\n]", str(values[0])):
        raise fields.error(f"how {fields.found[wrong[0]][0]!r} is divided cannot be told", "options=[NAME, NAME, ...]")
    choice = of_texts(fields, [right[1], *values], [right[0], *wrong])
    if len(set(choice.options)) < len(choice.options) and "recordid" not in fields.found:  # GPQA is as it is
        raise fields.error(f"an option stands twice among {right[0]!r} and the wrong answers")
    choice.right, choice.first = 0, True
    return choice


def families(fields: Fields) -> dict[str, list[str]]:
    """{stem: plain names} of columns whose names differ by a last letter or number alone; the longest stem first."""
    known = (*QUESTION, *CONTEXT, *OPTIONS, *ANSWER, *POINTER, *ID)
    found: dict[str, set[str]] = {}
    for name in (*fields.found, *fields.empty):
        if name not in known and (match := FAMILY.fullmatch(name)):
            found.setdefault(match["stem"], set()).add(match["end"])
    ordered = {stem: sorted(ends, key=lambda end: (len(end), end)) for stem, ends in found.items()}
    longest = sorted((stem for stem, ends in ordered.items() if in_order(ends)), key=len, reverse=True)
    return {stem: [stem + end for end in ordered[stem]] for stem in longest}


def of_value(fields: Fields, name: str, value: Any) -> Choice | None:
    """A list of texts or of {label, text}, {"text": [...], "label": [...]}, {"A": text}, each also written as a text.

    Also a text with an option on each line, or divided by bars or semicolons.
    """
    if isinstance(value, str):
        sign = next((sign for sign in "\n|;" if sign in value.strip()), "\n")
        parts = [part.strip() for part in value.split(sign) if part.strip()]
        value = literal(value) or ([] if value.strip()[:1] in ("[", "{") else parts)
    labels = None
    if isinstance(value, dict):
        inner = {plain_name(key): each for key, each in value.items()}
        labels = inner.get("label") if isinstance(inner.get("text"), list) else [key[-1:] for key in inner]
        value = inner["text"] if isinstance(inner.get("text"), list) else list(value.values())
        if labels is not None and not in_order([str(label) for label in labels]):
            return None
    elif isinstance(value, list) and all(isinstance(each, dict) and {"label", "text"} <= set(each) for each in value):
        value, labels = [each["text"] for each in value], [each["label"] for each in value]
    usable = isinstance(value, list) and all(each is None or is_plain(each) for each in value)
    return of_texts(fields, value, [name], labels) if usable and 2 <= len(value) <= len(LETTERS) else None


def of_texts(fields: Fields, values: Sequence[Any], columns: Sequence[str], labels: Any = None) -> Choice:
    """Empty ones at the end are none. Labels before the texts ("A) red") are taken off, if they are in order."""
    texts = [None if is_missing(value) else str(value).strip() for value in values]
    while texts and texts[-1] is None:
        texts.pop()
    if len(texts) < 2 or None in texts:
        raise fields.error(f"{', '.join(map(repr, columns))} hold no two options without a gap", "options=[NAME, ...]")
    own = [LABELLED.fullmatch(text) for text in texts]
    if all(own) and in_order([match[1] for match in own]):
        texts, labels = [match[2].strip() for match in own], [match[1] for match in own]
    shown = tuple(str(label).strip().upper() for label in labels or LETTERS)[: len(texts)]
    return Choice(fields=fields, options=tuple(texts), labels=shown, taken=tuple(map(plain_name, columns)))


def settle(choices: Sequence[Choice]) -> None:
    """Set `right` of each row. A column tells it in one way in all rows; what the rows allow in two ways is refused."""
    open_ones = [choice for choice in choices if choice.right is None]
    tellers: dict[str, list[dict[str, int] | None]] = {}
    for number, choice in enumerate(open_ones):
        for name in telling(choice):
            rows = tellers.setdefault(name, [None] * len(open_ones))
            rows[number] = readings(choice, choice.fields.found[name][1])
    agreed: list[list[int | None]] = [[None] * len(open_ones)]
    for name, rows in tellers.items():
        said = open_ones[0].fields.said.answer_as
        ways = [way for way in ([said] if said else WAYS) if all(row is None or way in row for row in rows)]
        if not ways:
            raise unreadable(open_ones, name, rows, said)
        if name in ("answerindex", "answeridx") and FROM_0 in ways and not said:
            ways = [FROM_0]
        told = [[row and row[way] for row in rows] for way in ways]
        both = [joined for known in agreed for one in told if (joined := join(known, one)) is not None]
        if not both:
            columns = " and ".join(repr(choice.fields.found[each][0]) for each in tellers for choice in open_ones[:1])
            raise open_ones[0].fields.error(f"{columns} do not tell the same right option in every row", "answer=NAME")
        agreed = both
    for number, choice in enumerate(open_ones):
        right = {one[number] for one in agreed}
        if right == {None}:
            known = listed(choice.fields.said.answer) or (*ANSWER, *POINTER)
            raise choice.fields.none("the right option", known, "answer=NAME")
        if len(right) > 1:
            shown = " and ".join("{!r}, which is {!r},".format(*choice.fields.found[name]) for name in telling(choice))
            key = f"answer_as={', '.join(WAYS[:-1])} or {WAYS[-1]}"
            raise choice.fields.error(f"the right option can be read in several ways from {shown.rstrip(',')}", key)
        choice.right = right.pop()


def join(known: Sequence[int | None], more: Sequence[int | None]) -> list[int | None] | None:
    """Both together; None where they contradict."""
    if any(None not in (a, b) and a != b for a, b in zip(known, more, strict=True)):
        return None
    return [b if a is None else a for a, b in zip(known, more, strict=True)]


def telling(choice: Choice) -> list[str]:
    """The plain names of the columns that say which option is right."""
    said, fields = choice.fields.said.answer, choice.fields
    if said is not None:
        return [plain_name(said)] if fields.get(said) else []
    return [name for name in (*ANSWER, *POINTER) if name in fields.found and name not in choice.taken]


def readings(choice: Choice, value: Any) -> dict[str, int]:
    """{way: place} of all ways in which a value tells one of the options."""
    values = [str(each) for each in as_list(value)]
    if len(values) == len(choice.options) and sorted(values) == ["0"] * (len(values) - 1) + ["1"]:
        return dict.fromkeys(WAYS, values.index("1"))  # a mark for each
    if len(values) != 1:
        return {}
    text = unicodedata.normalize("NFKC", end_of(values[0])[0]).strip()
    found = {}
    texts = [folded(option) for option in choice.options]
    if texts.count(folded(text)) == 1:
        found[TEXT] = texts.index(folded(text))
    both = LABELLED.fullmatch(text)
    called = CALLED.fullmatch(text) or (both if both and folded(both[2]) in texts else None)
    label = called[1].upper() if called else plain_name(text)
    labels = {name: place for names in (choice.taken, choice.labels) for place, name in enumerate(names)}
    if label in labels:
        found[LETTER] = labels[label]
    own = [match and match[1].upper() for match in map(LABELLED.fullmatch, choice.options)]
    if label in own and None not in own and in_order(sorted(own)):  # labels before the texts, in another order
        found[TEXT] = own.index(label)
    for way, other in ((LETTER, TEXT), (TEXT, LETTER)):  # some rows may have a letter, and others a text
        if way in found:
            found.setdefault(other, found[way])
    number = re.fullmatch(r"(-?\d+)(?:\.0)?", label if called else text)
    if number and not (LETTER in found and choice.labels[0].isdigit()):
        for way, place in ((FROM_0, int(number[1])), (FROM_1, int(number[1]) - 1)):
            if 0 <= place < len(texts):
                found[way] = place
    return found


def unreadable(choices: Sequence[Choice], name: str, rows: Sequence[Mapping | None], said: str | None) -> UserError:
    """For a column that tells no option in some rows: the first of them."""
    usual = said or max(WAYS, key=lambda way: sum(bool(row and way in row) for row in rows))
    number = next(number for number, row in enumerate(rows) if row is not None and usual not in row)
    fields, n_options = choices[number].fields, len(choices[number].options)
    column, value = fields.found[name]
    others = f" as a {usual}, as other rows do" if len(rows) > 1 else ""
    why = f"{column!r} is {str(value)[:60]!r}, which tells no single one of {n_options} options{others}"
    return fields.error(why, "answer=NAME")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Of a row without options.

    accepted   further texts that are as right
    solution   the whole, where only its end is the answer
    """

    text: str
    accepted: tuple[str, ...] = ()
    solution: str | None = None


def answer_of(fields: Fields) -> Answer:
    """The answer of a row without options: a value, several that are as right, or the end of a solution."""
    said = fields.said.answer
    column = fields.get(said, ANSWER)
    if column is None and said is None and (solution := fields.found.get("solution")):
        text, whole = end_of(str(solution[1]))
        column = solution if whole or (len(text) < 100 and "\n" not in text) else None
    pointer = next((fields.found[name][0] for name in POINTER if name in fields.found), None)
    if column is None and pointer and said is None:
        why = f"{pointer!r} tells one of several options, and no column is known to be these"
        raise fields.error(why, "options=NAME")
    values = [str(value) for value in texts_in(column[1]) if not is_missing(value)] if column else []
    if column is None:
        raise fields.none("the answer", listed(said) or ANSWER, "answer=NAME")
    if not values:
        raise fields.error(f"{column[0]!r} holds no answer", "answer=NAME")
    text, solution = end_of(values[0])
    accepted = tuple(each for each in dict.fromkeys(values) if each != values[0]) or SYNONYMS.get(
        text.strip().casefold(), ()
    )
    return Answer(text=text, accepted=accepted, solution=solution)


def texts_in(value: Any) -> Iterator[Any]:
    """A value; those of a list, of {"value", "aliases"} (TriviaQA) and of {"text": [...]} (SQuAD)."""
    found = literal(value) if isinstance(value, str) else None
    if found and not all(isinstance(each, int | float) for each in found):  # "[1, 2]" is an interval
        value = found
    if isinstance(value, dict):
        value = [value.get("value"), *value.get("aliases", ())] if "value" in value else value.get("text", [])
    yield from filter(is_plain, value if isinstance(value, list) else [value])


def check_free(rows: Sequence[tuple[Fields, str, Answer]]) -> None:
    """Raises UserError where columns that are not known are likely to hold the options of rows read without any.

    rows   (columns, question, answer) of those rows
    """
    if not rows or rows[0][0].said.options is not None:
        return
    fields, _, answer = rows[0]
    shown = any(SHOWN_LETTERS.search(asked) or "options" in columns.empty for columns, asked, _ in rows)
    if held := set.intersection(*(suspects(columns, each.text.strip(), shown) for columns, _, each in rows)):
        raise fields.error(f"{min(held)} may hold options of its answer {answer.text!r}", "options=NAME, or =[] if not")
    if not shown and all(BARE_LETTER.fullmatch(each.text.strip()) for _, _, each in rows):
        why = f"its answer {answer.text!r} is a letter, and no column is known to be its options"
        raise fields.error(why, "options=NAME")


def suspects(fields: Fields, answer: str, shown: bool) -> set[str]:
    """The columns, alone or as a family, of whose values the answer is one, by its text, its letter or its number.

    shown   whether questions show lettered options themselves
    """
    groups: dict[str, list[Any]] = {}
    used = fields.get(fields.said.answer, ANSWER)
    for plain, (name, value) in fields.found.items():
        if plain not in POINTER and (name, value) != used:
            parts = re.split(r"[,;|\n]", value) if isinstance(value, str) else []
            held = list(value) if isinstance(value, dict) else as_list(value)
            groups[repr(name)] = parts if folded(answer) in map(folded, parts) else held
    for family in families(fields).values():
        held = [fields.found[name] for name in family if name in fields.found]
        groups[", ".join(repr(name) for name, _ in held)] = [value for _, value in held]
    found = set()
    for name, values in groups.items():
        texts = [folded(str(value)) for value in values if is_plain(value)]
        named = (not shown and BARE_LETTER.fullmatch(answer)) or (answer.isdigit() and int(answer) <= len(values))
        if 1 < len(texts) == len(values) and (named or folded(answer) in texts):
            found.add(name)
    return found
