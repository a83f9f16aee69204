"""One problem, read from any of the row formats in use. Every error names the file and the line.

{"id", "question", "solution", "answer", "options", "metadata": {"domain", "answer_letter", "answer_index"}}
{"problem", "solution", "answer", "subject", "level", "unique_id"}                       MATH-500
{"id", "problem", "answer"}                                                              AIME
{"question", "answer": "... #### 18"}                                                    GSM8K
{"question_id", "question", "options", "answer": "G", "answer_index": 6, "category"}     MMLU-Pro
{"Record ID", "Question", "Correct Answer", "Incorrect Answer 1" ... "3", "Subdomain"}   GPQA
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any

from core.errors import UserError
from single_turn_bench.choice import LETTERS


@dataclass(frozen=True, kw_only=True)
class Row:
    """A problem and its gold answer.

    id            dataset/id-in-the-dataset, stable and unique over all datasets: "math500/test/precalculus/807.json"
    answer        of a math problem the gold answer as written; of a choice the letter in the options' own order
    options       in the dataset's own order; choice.shuffle_options gives the order that is shown
    """

    id: str
    question: str
    answer: str
    options: tuple[str, ...] | None = None
    answer_index: int | None = None
    subject: str = ""
    level: int | None = None
    solution: str | None = None

    @property
    def answer_letter(self) -> str | None:
        return None if self.answer_index is None else LETTERS[self.answer_index]


def parse_row(raw: dict, dataset: str, where: str) -> Row:
    """A Row of one decoded line. `where` is "FILE line N"; raises UserError when a field is missing or senseless."""
    if "Correct Answer" in raw:
        raw = from_gpqa(raw, where)
    metadata = raw.get("metadata") or {}
    question = text_field(raw, ("question", "problem"), where)
    subject = str(raw.get("subject") or raw.get("category") or metadata.get("domain") or "")
    options = read_options(raw.get("options"), where)
    index = answer_index(raw, metadata, options, where) if options else None
    answer = LETTERS[index] if index is not None else text_field(raw, ("answer",), where)
    level = re.search(r"\d+", str(raw.get("level", metadata.get("level"))))  # of "Level 5", too
    solution = raw.get("solution") or None
    if options is None and "####" in answer:
        solution, answer = answer, answer.rpartition("####")[2].strip()
    return Row(
        id=f"{dataset}/{own_id(raw, question)}",
        question=question,
        answer=answer,
        options=options,
        answer_index=index,
        subject=subject,
        level=int(level.group()) if level else None,
        solution=solution,
    )


def text_field(raw: dict, names: tuple[str, ...], where: str) -> str:
    if (text := first_text(raw, names)) is None:
        raise UserError(f"{where}: no field {' or '.join(repr(name) for name in names)}.")
    return text


def first_text(raw: dict, names: tuple[str, ...]) -> str | None:
    """The first of these fields that is neither absent nor empty."""
    texts = (str(raw[name]) for name in names if raw.get(name) is not None)
    return next((text for text in texts if text.strip()), None)


def own_id(raw: dict, question: str) -> str:
    """The dataset's own id; without one (GSM8K), a hash of the question, which no reordering changes."""
    if raw.get("question_id") is not None and raw.get("category"):
        return f"{raw['category']}/{raw['question_id']}"
    if own := first_text(raw, ("unique_id", "id", "question_id")):
        return own.strip()
    return hashlib.sha256(question.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def read_options(options: Any, where: str) -> tuple[str, ...] | None:
    if not options:
        return None
    if isinstance(options, dict):  # {"A": ..., "B": ...}
        options = [options[letter] for letter in sorted(options)]
    if not isinstance(options, list) or not 2 <= len(options) <= len(LETTERS):
        raise UserError(f"{where}: 'options' is a list of 2 to {len(LETTERS)} texts.")
    return tuple(str(option) for option in options)


def answer_index(raw: dict, metadata: dict, options: tuple[str, ...], where: str) -> int:
    """From the index, the letter or the option's text, whichever are there; they must agree."""
    stated = {int(source["answer_index"]) for source in (raw, metadata) if is_count(source.get("answer_index"))}
    letters = [str(source["answer_letter"]) for source in (raw, metadata) if source.get("answer_letter")]
    stated |= {letter_index(letter) for letter in letters}
    answer = str(raw.get("answer") or "").strip()
    readings = {index for index, option in enumerate(options) if option.strip() == answer}
    if len(answer) == 1:  # a letter, or an option that is one character long
        readings.add(letter_index(answer))
        stated = stated or {letter_index(answer)}
    stated = stated or set(sorted(readings)[:1])
    if not stated:
        raise UserError(f"{where}: no field 'answer', 'answer_letter' or 'answer_index' tells the right option.")
    agree = len(stated) == 1 and (not readings or stated <= readings)
    if not agree or not 0 <= min(stated) < len(options):
        raise UserError(f"{where}: the right option is unclear: index, letter and answer do not agree.")
    return stated.pop()


def is_count(value: Any) -> bool:
    return isinstance(value, int) or (isinstance(value, str) and value.strip().isdecimal())


def letter_index(letter: str) -> int:
    """Of "B" or "(B)"; -1 when it is no letter."""
    bare = letter.strip(" ().").upper()
    return LETTERS.find(bare) if len(bare) == 1 else -1


def from_gpqa(raw: dict, where: str) -> dict:
    """A row of the official CSV. The right option comes first: GPQA is never shown unshuffled."""
    wrong = [text_field(raw, (f"Incorrect Answer {number}",), where).strip() for number in (1, 2, 3)]
    return {
        "id": raw.get("Record ID"),
        "question": text_field(raw, ("Question",), where).strip(),
        "options": [text_field(raw, ("Correct Answer",), where).strip(), *wrong],
        "answer_index": 0,
        "subject": raw.get("High-level domain") or raw.get("Subdomain") or "",
    }
