"""Problems, read from the rows of a data file. Every error names the file and the line.

{"id", "question", "solution", "answer", "options", "metadata": {"domain", "answer_letter", "answer_index"}}
{"problem", "solution", "answer", "subject", "level", "unique_id"}                       MATH-500
{"id", "problem", "answer"}                                                              AIME
{"question", "answer": "... #### 18"}                                                    GSM8K
{"question_id", "question", "options", "answer": "G", "answer_index": 6, "category"}     MMLU-Pro
{"Record ID", "Question", "Correct Answer", "Incorrect Answer 1" ... "3", "Subdomain"}   GPQA

and the other names and forms in docs/data.md: columns.py knows the columns, options.py the forms of options, keys.py
finds the right one.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from core.errors import UserError
from single_turn_bench.choice import LETTERS, shuffle_options
from single_turn_bench.columns import ANSWERS, Fields, is_pointer, options_of, question_of, unknown_options
from single_turn_bench.free import Answer, answer_of
from single_turn_bench.keys import MAX_NAMED, Choice, settle, told_by
from single_turn_bench.options import plain_name

SHOWN_LETTERS = re.compile(
    r"(?:^|[\s(\[])A\s?[).:\]].*?(?:^|[\s(\[])B\s?[).:\]]", re.S
)  # options in the question's text
BARE_LETTER = re.compile(r"[(\[]?[A-Ha-h][)\].]?")


@dataclass(frozen=True, kw_only=True)
class Row:
    """A problem and its gold answer.

    id            dataset/id-in-the-dataset, stable and unique over all datasets: "math500/test/precalculus/807.json"
    answer        of a math problem the gold answer as written; of a choice the letter in the options' own order
    accepted      further answers of a math problem that are as right
    kind          what its column `kind` says, if it has one; kinds.py reads it
    options       in the dataset's own order; choice.shuffle_options gives the order that is shown
    """

    id: str
    question: str
    answer: str
    accepted: tuple[str, ...] = ()
    options: tuple[str, ...] | None = None
    answer_index: int | None = None
    subject: str = ""
    level: int | None = None
    solution: str | None = None
    kind: str = ""

    @property
    def answer_letter(self) -> str | None:
        return None if self.answer_index is None else LETTERS[self.answer_index]


def parse_row(raw: dict, dataset: str, where: str) -> Row:
    """A Row of one decoded line. `where` is "FILE line N"; raises UserError when a field is missing or senseless."""
    return parse_rows([(where, raw)], dataset)[0]


def parse_rows(raws: Sequence[tuple[str, dict]], dataset: str) -> list[Row]:
    """The Rows of a file, whose columns are read in one way throughout. raws: ("FILE line N", decoded line)."""
    read = [Fields(raw, where) for where, raw in raws]
    questions = [question_of(fields) for fields in read]
    choices = choices_of(read)
    free = {number: answer_of(fields) for number, fields in enumerate(read) if number not in choices}
    check_free(read, questions, free)
    settle(list(choices.values()))
    keys = own_ids(read, questions, choices)
    return [
        row_of(fields, question, choices.get(number), free.get(number), f"{dataset}/{key}")
        for number, (fields, question, key) in enumerate(zip(read, questions, keys, strict=True))
    ]


def choices_of(read: Sequence[Fields]) -> dict[int, Choice]:
    """{row: its options} of the rows that have any. A column with options in some rows must not be empty in others."""
    found = {number: (fields, held) for number, fields in enumerate(read) if (held := options_of(fields)) is not None}
    columns = {plain_name(name) for _, held in found.values() for name in held.columns}
    for number, fields in enumerate(read):
        if number not in found and (empty := columns & set(fields.empty)):
            raise UserError(f"{fields.where}: {fields.empty[min(empty)]!r} is empty, and so there are no options.")
    return {
        number: Choice(fields, held.options, taken=tuple(plain_name(name) for name in held.columns))
        for number, (fields, held) in found.items()
    }


def check_free(read: Sequence[Fields], questions: Sequence[str], free: dict[int, Answer]) -> None:
    """Raises UserError where rows without options are likely to have some, in columns that are not known."""
    if not free:
        return
    rows = [read[number] for number in free]
    missing = [read[number].where for number, answer in free.items() if not answer.text]
    if missing:
        raise UserError(
            no_answer(read[next(number for number, answer in free.items() if not answer.text)], missing[1:])
        )
    names = {answer.plain for answer in free.values()}
    held = [unknown_options(fields) for fields in rows]
    for name in sorted(set.intersection(*map(set, held))):
        if all(told_by(fields, options[name], free_name(fields)) for fields, options in zip(rows, held, strict=True)):
            raise UserError(
                f"{rows[0].where}: {name} looks like options, and is no column that is known: call it 'options', or "
                "leave it out."
            )
    pointing = [fields for fields, answer in zip(rows, free.values(), strict=True) if points_nowhere(answer)]
    letters = all(BARE_LETTER.fullmatch(answer.text.strip()) for answer in free.values())
    unshown = not any(SHOWN_LETTERS.search(questions[number]) for number in free)
    if pointing or (letters and unshown and not any("options" in fields.empty for fields in rows)):
        first = pointing[0] if pointing else rows[0]
        name = first[free_name(first)].name
        columns = ", ".join(repr(first[each].name) for each in first if each not in names)
        raise UserError(
            f"{first.where}: {name!r} tells one of several options, and no column holds them: there are {columns}."
        )


def free_name(fields: Fields) -> str:
    return answer_of(fields).plain


def points_nowhere(answer: Answer) -> bool:
    """Whether an answer is a number in a column whose numbers count options."""
    return is_pointer(answer.plain) and bool(
        re.fullmatch(r"-?\d{1,2}(?:\.0)?|[(\[]?[A-Za-z][)\].]?", answer.text.strip())
    )


def no_answer(fields: Fields, others: Sequence[str]) -> str:
    """For a row without an answer. others: further such rows."""
    also = f", as in {', '.join(where.rpartition(' ')[2] for where in others[:MAX_NAMED])}" if others else ""
    names = (name for name in fields.empty if name in ANSWERS or name == "solution" or is_pointer(name))
    empty = next((fields.empty[name] for name in names), None)
    if empty is not None:
        return f"{fields.where}: no field 'answer' that holds a text: {empty!r} is empty{also}."
    columns = ", ".join(repr(fields[name].name) for name in fields)
    return f"{fields.where}: no field 'answer', or another name of one{also}; it has {columns}."


def row_of(fields: Fields, question: str, choice: Choice | None, free: Answer | None, task_id: str) -> Row:
    subject = fields.first(("subject", "category", "domain", "highleveldomain", "subdomain"))
    level = re.search(r"\d+", str(fields["level"].value)) if "level" in fields else None  # of "Level 5", too
    solution = fields["solution"].value if "solution" in fields else None
    row = Row(
        id=task_id,
        question=question,
        answer="",
        subject=str(subject.value) if subject else "",
        level=int(level.group()) if level else None,
        solution=str(solution) if solution is not None else None,
        kind=str(fields["kind"].value).strip() if "kind" in fields else "",
    )
    if choice is None:
        return replace(row, answer=free.text, accepted=free.accepted, solution=free.solution or row.solution)
    options, index = tuple(option.text for option in choice.options), choice.index
    if any(option.right for option in choice.options) and "recordid" not in fields:  # GPQA keeps its order
        options, letter, _ = shuffle_options(options, index, 0, task_id)
        index = LETTERS.index(letter)
    return replace(row, answer=LETTERS[index], options=options, answer_index=index)


def own_ids(read: Sequence[Fields], questions: Sequence[str], choices: dict[int, Choice]) -> list[str]:
    """The dataset's own ids; without one (GSM8K), a hash of the question, which no reordering changes.

    Where rows ask the same of different options (MMLU), the hash is of these as well.
    """
    keys = [own_id(fields, question) for fields, question in zip(read, questions, strict=True)]
    seen = Counter(keys)
    for number, choice in choices.items():
        if seen[keys[number]] > 1 and not has_id(read[number]):
            texts = [option.text for option in choice.options]
            keys[number] = short_hash("\x1f".join([questions[number], *sorted(texts), texts[choice.index]]))
    return keys


def has_id(fields: Fields) -> bool:
    return fields.first(("uniqueid", "id", "questionid", "recordid")) is not None


def own_id(fields: Fields, question: str) -> str:
    if "questionid" in fields and "category" in fields:
        return f"{fields['category'].value}/{fields['questionid'].value}"
    if has_id(fields):
        return str(fields.first(("uniqueid", "id", "recordid", "questionid")).value).strip()
    return short_hash(question)


def short_hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
