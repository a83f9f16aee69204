"""Problems, read from the rows of a data file. Every error names the file and the line.

{"id", "question", "solution", "answer", "options", "metadata": {"domain", "answer_letter", "answer_index"}}
{"problem", "solution", "answer", "subject", "level", "unique_id"}                       MATH-500
{"id", "problem", "answer"}                                                              AIME
{"question", "answer": "... #### 18"}                                                    GSM8K
{"question_id", "question", "options", "answer": "G", "answer_index": 6, "category"}     MMLU-Pro
{"Record ID", "Question", "Correct Answer", "Incorrect Answer 1" ... "3", "Subdomain"}   GPQA

and the other usual names, or those that `env.columns` says (columns.py).
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from single_turn_bench.choice import LETTERS, order_matters, shuffle_options
from single_turn_bench.columns import ID, SUBJECT, Columns, Fields, answer_of, check_seen, question_of
from single_turn_bench.options import Choice, check_free, options_of, settle


@dataclass(frozen=True, kw_only=True)
class Row:
    """A problem and its gold answer.

    id            dataset/id-in-the-dataset, stable and unique over all datasets: "math500/test/precalculus/807.json"
    answer        of a math problem the gold answer as written; of a choice the letter in the options' own order
    accepted      further answers of a math problem that are as right
    kind          what its column `kind` says, if it has one; kinds.py reads it
    options       in the dataset's own order; choice.shown_options gives the order that is shown
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


def parse_rows(raws: Sequence[tuple[str, dict]], dataset: str, columns: Columns | None = None) -> list[Row]:
    """The Rows of a file, whose columns are read in one way throughout. raws: ("FILE line N", decoded line)."""
    read = [Fields(raw, where, columns or Columns()) for where, raw in raws]
    questions = [question_of(fields) for fields in read]
    choices = [options_of(fields) for fields in read]
    taken = {name for choice in filter(None, choices) for name in choice.taken}
    for fields, question, choice in zip(read, questions, choices, strict=True):
        check_seen(fields, (question, *(choice.options if choice else ())), taken)
        if choice is None and (empty := taken & set(fields.names)):
            why = f"{fields.names[min(empty)]!r} is empty, and so there are no options"
            raise fields.error(f"{why}: put questions without options into a file of their own")
    settle([choice for choice in choices if choice])
    free = [answer_of(fields) if choice is None else {} for fields, choice in zip(read, choices, strict=True)]
    check_free(
        [(*each, answer["answer"].strip()) for *each, answer in zip(read, questions, free, strict=True) if answer]
    )
    keys = own_ids(read, questions, choices)
    every = zip(read, questions, choices, free, keys, strict=True)
    return [row_of(*each, f"{dataset}/{key}") for *each, key in every]


def row_of(fields: Fields, question: str, choice: Choice | None, free: dict[str, Any], task_id: str) -> Row:
    said = fields.said
    level = re.search(r"\d+", fields.text(said.level, ("level",)))  # of "Level 5", too
    row = Row(
        id=task_id,
        question=question,
        answer="",
        subject=fields.text(said.subject, SUBJECT),
        level=int(level.group()) if level else None,
        solution=str(fields.values["solution"]) if "solution" in fields.values else None,
        kind=fields.text(said.kind, ("kind",)),
    )
    if choice is None:
        return replace(row, **free)
    options, index = choice.options, choice.right
    if choice.first and ("recordid" not in fields.names or order_matters(options)):  # GPQA is shuffled when shown
        options, letter, _ = shuffle_options(options, index, 0, task_id)
        index = LETTERS.index(letter)
    return replace(row, answer=LETTERS[index], options=options, answer_index=index)


def own_ids(read: Sequence[Fields], questions: Sequence[str], choices: Sequence[Choice | None]) -> list[str]:
    """The dataset's own ids; without one (GSM8K), a hash of the question, which no reordering changes.

    Where rows ask the same of different options (MMLU), the hash is of these as well.
    """
    keys = [own_id(fields, question) for fields, question in zip(read, questions, strict=True)]
    seen = Counter(keys)
    for number, choice in enumerate(choices):
        if choice and seen[keys[number]] > 1 and not read[number].text(read[number].said.id, ID):
            texts = (questions[number], *sorted(choice.options), choice.options[choice.right])
            keys[number] = short_hash("\x1f".join(texts))
    return keys


def own_id(fields: Fields, question: str) -> str:
    said = fields.said.id
    if said is None and {"questionid", "category"} <= set(fields.values):
        return f"{fields.values['category']}/{fields.values['questionid']}"
    return fields.text(said, ID) or short_hash(question)


def short_hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
