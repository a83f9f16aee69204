"""The answer of a row without options: a number, a text, several texts that are as right, or the end of a solution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from core.errors import UserError
from single_turn_bench.boxes import boxed_answer
from single_turn_bench.columns import ANSWERS, Column, Fields
from single_turn_bench.options import is_missing, literal, plain_name

VALUES = ("value", "text", "texts", "answer", "answers", "spans", "number")  # of an answer that is an object
ALIASES = ("aliases", "normalizedaliases", "alternatives")
SHORT = 100  # characters of a "solution" that is an answer by itself
YES, NO = ("True", "Yes"), ("False", "No")
SYNONYMS = {"true": YES, "yes": YES, "false": NO, "no": NO}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """text: "" where the row has none. accepted: further ones that are as right. plain: of the column."""

    text: str = ""
    accepted: tuple[str, ...] = ()
    solution: str | None = None
    plain: str = ""


def answer_of(fields: Fields) -> Answer:
    """The answer of a row without options. Raises UserError where its column holds none that can be read."""
    column = fields.first((*ANSWERS, *fields.pointers, "solution"))
    if column is None:
        return Answer()
    plain = plain_name(column.name)
    texts = list(dict.fromkeys(text for text in texts_of(column, fields.where) if text.strip()))
    if not texts:
        return Answer()
    if len(texts) == 1 and (synonyms := SYNONYMS.get(texts[0].strip().casefold())):
        others = tuple(each for each in synonyms if each.casefold() != texts[0].strip().casefold())
        return Answer(text=texts[0], accepted=others, plain=plain)
    if len(texts) > 1:
        return Answer(text=texts[0], accepted=tuple(texts[1:]), plain=plain)
    text, solution = end_of(texts[0])
    if plain == "solution" and solution is None and (len(text) > SHORT or "\n" in text.strip()):
        raise UserError(f"{fields.where}: no field 'answer', and {column.name!r} ends in no \\boxed{{}} and no '####'.")
    return Answer(text=text, solution=solution, plain=plain)


def end_of(text: str) -> tuple[str, str | None]:
    """(answer, the solution that it ends): behind "####" or in the last box; (text, None) where there is neither."""
    if "####" in text:
        return text.rpartition("####")[2].strip(), text
    box = boxed_answer(text)
    return (box.content, text) if box and box.content.strip() else (text, None)


def texts_of(column: Column, where: str) -> list[str]:
    value: Any = column.value
    if isinstance(value, str):
        found = literal(value)
        if isinstance(found, dict) or (isinstance(found, list) and all(isinstance(each, str) for each in found)):
            value = found  # not of "[1, 2]", which is an interval or a list of numbers
    if isinstance(value, dict):
        parts = {plain_name(key): each for key, each in value.items() if not is_missing(each)}
        value = [each for name in (*VALUES, *ALIASES) if name in parts for each in as_list(parts[name])]
    values = as_list(value)
    if not values or not all(isinstance(each, str | int | float) for each in values):
        raise UserError(
            f"{where}: {column.name!r} holds no answer that can be read: it is {type(column.value).__name__}."
        )
    return [str(each) for each in values]


def as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]
