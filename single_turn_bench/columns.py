"""What the columns of a data file are: its question, the texts above it, its options, and what says the answer.

A column is known by its name, whatever its case, spaces and signs (`options.plain_name`). One that is not known, and
looks as if it held the options, is an error: a question must never be asked without its options.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from core.errors import UserError
from single_turn_bench.choice import LETTERS
from single_turn_bench.options import Option, finished, in_order, is_missing, literal, plain_name, read_options

# Of several that are there, the first counts.
QUESTIONS = (
    "question", "problem", "questiontext", "questionstem", "questionbody", "stem", "qtext", "query", "problemtext",
    "problemstatement", "prompt", "userprompt", "input", "inputs", "inputtext", "instruction", "sentence", "ctx",
    "goal", "task", "exercise", "text", "messages", "q",
)  # fmt: skip
CONTEXTS = (
    "passage", "context", "contexts", "support", "article", "story", "paragraph", "document", "background", "premise",
    "florespassage", "body", "scenario", "situation", "dialogue", "dialog", "conversation",
)  # fmt: skip
LISTS = (
    "options", "choices", "endings", "answerchoices", "answeroptions", "candidates", "alternatives", "optionlist",
    "choicelist", "possibleanswers", "targetscores", "mc1targets", "multiplechoicetargets", "opts", "option",
)  # fmt: skip
STEMS = (
    "option", "options", "opt", "op", "choice", "choices", "ending", "alternative", "candidate", "answeroption",
    "answerchoice", "mcanswer", "optiontext", "choicetext", "hypothesis", "",
)  # fmt: skip
# These are options only beside a column that says which of them is right.
ANSWER_STEMS = ("answer", "ans", "sol", "solution")
WRONG = (
    "incorrectanswer", "distractor", "wronganswer", "incorrect", "wrong", "incorrectoption", "wrongoption",
    "falseanswer", "incorrectchoice", "distractoroption",
)  # fmt: skip
# A number or a letter in these tells one of the options: "label", "answer_idx", "Correct Option", "gold_label", ...
POINTER = re.compile(
    r"labels?|labelidx|cop|ra|key|correct"
    r"|(?:answer|ans|target|solution|true)(?:option|choice)?(?:index|idx|letter|key|label|position|pos|option|choice)"
    r"|(?:correct|right|gold|golden|best|true)(?:option|choice|answer|ans|response)?"
    r"(?:index|idx|letter|key|label|position|pos|option|choice|num|number|id)"
    r"|answerid"
)
ANSWERS = (
    "finalanswer", "answer", "bestanswer", "correctanswer", "rightanswer", "goldanswer", "gold", "groundtruth",
    "expectedanswer", "expected", "referenceanswer", "reference", "ideal", "target", "answers", "correctanswers",
    "ans", "answertext", "answervalue", "answernumber", "answernum", "correctans", "correctresponse",
    "expectedoutput", "output", "completion", "response",
)  # fmt: skip
# What is about a question and is none of the above, so that it is never taken for options.
ABOUT = (
    "id", "uniqueid", "questionid", "recordid", "subject", "category", "domain", "level", "solution", "metadata",
    "explanation", "rationale", "exp", "source", "split", "type", "topic", "difficulty", "highleveldomain", "subdomain",
)  # fmt: skip
NESTED = ("metadata", "meta", "extrainfo", "rewardmodel")
ALWAYS_TAKEN = ("answerletter", "answerindex", "domain", "level")  # from the metadata, whatever else there is
KNOWN = frozenset((*QUESTIONS, *CONTEXTS, *LISTS, *ANSWERS, *ABOUT, *NESTED))
# "option_a", "choice 1", "option_1_text", "A_option"
NUMBERED = re.compile(r"(?P<stem>.*?)(?P<end>\d{1,2}|[a-z])(?P<tail>text|value|content)?")
NUMBERED_FIRST = re.compile(r"(?P<stem>)(?P<end>\d{1,2}|[a-z])(?P<tail>option|choice|answer)(?:text)?")
MESSAGE_ROLES = ("system", "developer", "user", "human")


@cache
def is_pointer(name: str) -> bool:
    """Whether a column of this plain name tells an option by its number or letter."""
    return name not in ANSWERS and bool(POINTER.fullmatch(name))


@dataclass(frozen=True)
class Column:
    """A column of one row. name: as the file writes it."""

    name: str
    value: Any


class Fields(Mapping[str, Column]):
    """The columns of a row by their plain names, empty ones left out. Raises UserError where two contradict."""

    def __init__(self, raw: Mapping[str, Any], where: str) -> None:
        self.where = where
        self.empty = {plain_name(name): str(name) for name, value in raw.items() if is_missing(value)}
        self._columns: dict[str, Column] = {}
        for name, value in raw.items():
            if not is_missing(value):
                self._add(str(name), value)
        self._unpack()

    def __getitem__(self, name: str) -> Column:
        return self._columns[name]

    def __iter__(self):
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def first(self, names: Iterable[str]) -> Column | None:
        return next((self._columns[name] for name in names if name in self._columns), None)

    @property
    def pointers(self) -> list[str]:
        return [name for name in self._columns if is_pointer(name)]

    @cached_property
    def families(self) -> dict[str, list[Column]]:
        """{stem: columns} of the columns whose names differ by a last letter or number alone, in their order.

        Of "option_a", "option_b" the stem is "option". Empty ones stand in their places.
        """
        found: dict[str, dict[str, Column]] = {}
        names = {name: self[name] for name in self} | {
            name: Column(column, "") for name, column in self.empty.items() if name not in self
        }
        for name, column in names.items():
            if name in KNOWN or is_pointer(name):
                continue
            if match := numbered(name):
                found.setdefault(match["stem"] + (match["tail"] or ""), {})[match["end"]] = column
        made = {}
        for stem, ends in found.items():
            for kind in (str.isdigit, str.isalpha):
                chosen = sorted((end for end in ends if kind(end)), key=lambda end: (len(end), end))
                if in_order(chosen) and any(not is_missing(ends[end].value) for end in chosen):
                    made.setdefault(stem, [ends[end] for end in chosen])
        return made

    def _add(self, name: str, value: Any) -> None:
        plain = plain_name(name)
        known = self._columns.get(plain)
        if known and known.value != value:
            raise UserError(f"{self.where}: the columns {known.name!r} and {name!r} are of one name and differ.")
        self._columns[plain] = Column(name, value)

    def _unpack(self) -> None:
        """Columns inside a question that is an object, and in metadata, which may be an object as a text."""
        question = self.first(QUESTIONS)
        if question and isinstance(question.value, dict):
            del self._columns[plain_name(question.name)]
            self._fill(question.value, lambda name: True)
        has_answer = bool(self.pointers) or self.first((*ANSWERS, "solution")) is not None
        has_options = self.first(LISTS) is not None
        for name in NESTED:
            inner = self._columns[name].value if name in self._columns else None
            inner = literal(inner) if isinstance(inner, str) else inner
            if isinstance(inner, dict):
                self._fill(inner, lambda name: (
                    name in ALWAYS_TAKEN
                    or (not has_answer and (name in ANSWERS or is_pointer(name)))
                    or (not has_options and name in LISTS)
                ))  # fmt: skip

    def _fill(self, inner: Mapping[str, Any], wanted) -> None:
        for name, value in inner.items():
            if not is_missing(value) and wanted(plain_name(name)):
                self._columns.setdefault(plain_name(name), Column(str(name), value))


def question_of(fields: Fields) -> str:
    """The question, with the texts that stand above it. Raises UserError where there is none."""
    column = fields.first(QUESTIONS)
    if column is None:
        empty = next((fields.empty[name] for name in QUESTIONS if name in fields.empty), None)
        if empty is not None:
            raise UserError(f"{fields.where}: no field 'question' or 'problem' that holds a text: {empty!r} is empty.")
        columns = ", ".join(repr(fields[name].name) for name in fields)
        raise UserError(f"{fields.where}: no field 'question' or 'problem', or another name of one; it has {columns}.")
    question = text_of(column, fields.where)
    if "recordid" in fields:  # GPQA has blanks around
        question = question.strip()
    told, given = fields.first(("instruction",)), fields.first(("input",))
    if column is given and told:
        question = f"{text_of(told, fields.where)}\n\n{question}"
    above = [text_of(fields[name], fields.where) for name in CONTEXTS if name in fields]
    if given and column is not given and plain_name(column.name) in ("question", "query"):
        text = text_of(given, fields.where)
        above += [text] if question.strip() not in text else []  # else it is the whole prompt
    return "\n\n".join([*dict.fromkeys(above), question])


def text_of(column: Column, where: str) -> str:
    """A text; the texts of a list one below the other; what a conversation says up to the answer."""
    value = column.value
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list):
        if all(isinstance(each, dict) and "content" in each for each in value):
            if all(each.get("role") in MESSAGE_ROLES and isinstance(each["content"], str) for each in value):
                return "\n\n".join(each["content"] for each in value)
        elif (found := flat(value)) is not None:
            return "\n".join(found)
    raise UserError(f"{where}: {column.name!r} holds no text that can be shown: it is a {type(value).__name__}.")


def flat(value: list) -> list[str] | None:
    """The texts in lists of lists."""
    found: list[str] = []
    for each in value:
        inner = flat(each) if isinstance(each, list) else [each] if isinstance(each, str) else None
        if inner is None:
            return None
        found += inner
    return found


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a row, and the columns that they were read from."""

    options: tuple[Option, ...]
    columns: tuple[str, ...]


def options_of(fields: Fields) -> Options | None:
    """The options of a row, None where no known column holds any. Raises UserError where one cannot be read."""
    pointer = bool(fields.pointers) or any(name in fields for name in ("answer", "correctanswer"))
    lists = (*LISTS, *(("answers",) if fields.pointers or "correctanswer" in fields else ()))
    for name in lists:
        if name not in fields:
            continue
        column = fields[name]
        found = read_options(column.value)
        if found is None or not 2 <= len(found) <= len(LETTERS):
            if name == "answers":
                continue
            raise UserError(
                f"{fields.where}: {column.name!r} is a list of 2 to {len(LETTERS)} texts, or another form of "
                "docs/data.md; which options this one holds cannot be told."
            )
        return Options(options=tuple(found), columns=(column.name,))
    for stem in (*STEMS, *(ANSWER_STEMS if pointer else ())):
        if (family := fields.families.get(stem)) and (stem or are_options(family)):
            found = finished(of_columns(family))
            if found is None or any(not isinstance(each.value, str | int | float) for each in family):
                names = ", ".join(repr(each.name) for each in family)
                raise UserError(f"{fields.where}: {names} hold no two texts, so that there are no options.")
            return Options(options=tuple(found), columns=tuple(each.name for each in family))
    return beside_wrong_ones(fields)


def are_options(family: list[Column]) -> bool:
    """Of columns that are called by a letter alone: "a" and "b" may be numbers that a question has."""
    return len(family) > 2 or not any(re.fullmatch(r"[-+\d.,\s/]*", str(column.value)) for column in family)


def numbered(name: str) -> re.Match | None:
    return NUMBERED_FIRST.fullmatch(name) or NUMBERED.fullmatch(name)


def of_columns(family: list[Column]) -> list[Option]:
    """Letters at the end of the names are labels; numbers are not: what counts the options may begin elsewhere."""
    ends = [numbered(plain_name(column.name))["end"] for column in family]
    return [
        Option(text=str(column.value), label=None if end.isdigit() else end.upper(), name=plain_name(column.name))
        for column, end in zip(family, ends, strict=True)
    ]


def beside_wrong_ones(fields: Fields) -> Options | None:
    """The right answer, first, and the wrong ones of columns such as "distractor1" or "incorrect_answers"."""
    wrong: list[Column] = []
    texts: list[str] = []
    for stem in WRONG:
        wrong = fields.families.get(stem) or [fields[name] for name in (stem, f"{stem}s") if name in fields]
        if wrong:
            break
    for column in (column for column in wrong if not is_missing(column.value)):
        found = read_options(column.value) if len(wrong) == 1 else None
        if found is None and len(wrong) == 1 and "," in str(column.value) and isinstance(column.value, str):
            raise UserError(f"{fields.where}: {column.name!r} is a text, and how it is divided cannot be told.")
        texts += [option.text for option in found] if found else single_texts(column, fields.where)
    if not texts:
        return None
    right = fields.first(("bestanswer", "correctanswer", "rightanswer", "correct", *ANSWERS, *fields.pointers))
    if right is None or not isinstance(right.value, str | int | float):
        names = ", ".join(repr(column.name) for column in wrong)
        raise UserError(f"{fields.where}: no field 'answer' or 'correct_answer' beside {names}.")
    shown = [str(right.value).strip(), *(text.strip() for text in texts)]
    if len(set(shown)) < len(shown) and "recordid" not in fields:  # GPQA is as it is
        raise UserError(f"{fields.where}: an option stands twice among {right.name!r} and the wrong answers.")
    options = [Option(text=text, right=place == 0, place=place) for place, text in enumerate(shown)]
    return Options(options=tuple(options), columns=(right.name, *(column.name for column in wrong)))


def single_texts(column: Column, where: str) -> list[str]:
    found = literal(column.value) if isinstance(column.value, str) else None
    value = column.value if found is None else found
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(each, str | int | float) for each in values):
        raise UserError(f"{where}: {column.name!r} holds no texts.")
    return [str(each) for each in values]


def unknown_options(fields: Fields) -> dict[str, tuple[Option, ...]]:
    """{names: options} of the columns that are not known and may hold options."""
    found = {}
    for name in fields:
        column = fields[name]
        value = column.value
        if name in KNOWN or is_pointer(name) or isinstance(value, int | float):
            continue
        parts = [part.strip() for part in value.split(",")] if isinstance(value, str) else []
        options = read_options(value) or (finished([Option(text=part) for part in parts]) if len(parts) > 1 else None)
        if options and len(options) <= len(LETTERS):
            found[repr(column.name)] = tuple(options)
    for family in fields.families.values():
        if all(isinstance(each.value, str | int | float) for each in family):
            options = finished(of_columns(family))
            if options:
                found[", ".join(repr(each.name) for each in family)] = tuple(options)
    return found
