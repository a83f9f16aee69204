"""What the columns of a data file hold: what `env.columns` says, else what their usual names say.

    env.columns={question: q, answer: gold, options: [a, b, c, d]}

A file that neither settles is refused, in one sentence that shows its columns and names the key to set.
"""

from __future__ import annotations

import json
import re
from ast import literal_eval
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from mimetypes import guess_type
from typing import Any

from core import normal_form
from core.errors import UserError, meant
from single_turn_bench.boxes import boxed_answer

# Names of columns in lower case without blanks and signs; of several that are there, the first counts.
QUESTION = ("question", "problem", "query", "prompt", "sentence", "ctx")
# shown above the question
CONTEXT = ("passage", "context", "support", "article", "story", "paragraph", "document", "body")
ANSWER = (
    "finalanswer", "answer", "correctanswer", "goldanswer", "gold", "target", "groundtruth", "expectedanswer", "answers"
)  # fmt: skip
POINTER = (  # these tell one of the options, and nothing else
    "answerletter", "answerindex", "answeridx", "answerkey", "answertext", "label", "labels", "correct",
    "correctoption", "goldlabel", "cop",
)  # fmt: skip
ID = ("uniqueid", "id", "recordid", "questionid")
SUBJECT = ("subject", "category", "domain", "highleveldomain", "subdomain")
MEDIA = (
    "image",
    "picture",
    "photo",
    "figure",
    "audio",
    "video",
    "screenshot",
)  # columns for a model that sees or hears
PLACE = re.compile(  # of one in a text
    r"<(?:image|audio|video)[ _]?\d*>|!\[[^\]\n]*\]\([^)\s]+\)|<img\b[^<>]*?src=[\"']?(?:https?:|data:)", re.I
)
SYNONYMS = {"true": ("Yes",), "yes": ("True",), "false": ("No",), "no": ("False",)}
WAYS = ("letter", "text", "from_0", "from_1")


@dataclass(frozen=True, kw_only=True)
class Columns:
    """`env.columns`: the names of columns; where one is None, its usual names are looked for.

    question, context   one, or several, whose texts stand one below the other
    options     the one that holds all options, or a list with one for each; [] says that there are none
    image       [] says that nothing here is a picture, whatever it looks like: none is sent
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
    image: Sequence[str] | None = None

    @classmethod
    def of(cls, said: Mapping[str, Any] | None) -> Columns | None:
        """Those of keys and values; None without any. Raises UserError for a key that there is not."""
        known = cls.__dataclass_fields__
        for key in (said or {}).keys() - known.keys():
            raise UserError(f"there is no key env.columns.{key}{meant(key, known)} It has {', '.join(known)}.")
        return cls(**said) if said else None

    def __post_init__(self) -> None:
        if self.image:
            raise UserError(f"env.columns.image={self.image}: pictures are not sent; [] asks without them.")
        if self.answer_as not in (None, *WAYS):
            raise UserError(f"env.columns.answer_as={self.answer_as} is not one of {', '.join(WAYS)}.")


class Fields:
    """A row: {plain name: name as the file writes it}, and {plain name: value} of those that hold one."""

    def __init__(self, raw: dict, where: str, said: Columns) -> None:
        inner = raw.get("metadata")
        every = {**inner, **raw} if isinstance(inner, dict) else raw
        self.said, self.where = said, where
        self.names = {plain_name(name): str(name) for name in every}
        self.values: dict[str, Any] = {}
        for name, value in every.items():
            if not is_missing(value) and self.values.setdefault(plain_name(name), value) != value:
                raise self.error(f"two columns are named {name!r}, but for case and signs, and differ")

    def name(self, said: str | None, known: Iterable[str]) -> str | None:
        """The plain name of the column that was said, else of the first known one that holds a value."""
        if said is None:
            return next((name for name in known if name in self.values), None)
        if plain_name(said) not in self.names:
            raise self.error(f"there is no column {said!r}")
        return plain_name(said)

    def need(self, said: str | None, known: Sequence[str], what: str, key: str) -> Any:
        """The value of a column that a row cannot be without."""
        if (name := self.name(said, known)) in self.values:
            return self.values[name]
        empty = next((self.names[each] for each in (name, *known) if each in self.names), None)
        why = f"no column is known to be {what}" if empty is None else f"{empty!r}, {what}, is empty"
        raise self.error(why, f"{key}=NAME")

    def text(self, said: str | None, known: Sequence[str]) -> str:
        return str(self.values.get(self.name(said, known), "")).strip()

    def error(self, why: str, key: str = "") -> UserError:
        """One sentence, with the columns and the key that settles it."""
        settle = f"; say it with env.columns.{key}" if key else ""
        return UserError(f"{self.where}: {why}; the columns are {', '.join(self.names.values())}{settle}.")


def plain_name(column: Any) -> str:
    """A column's name without case, blanks and signs: "Option A", "option_a" and "OptionA" are one."""
    return "".join(sign for sign in normal_form.folded(str(column)) if sign.isalnum())


def is_missing(value: Any) -> bool:
    """None, an empty text, list or object, and the NaN that tables write for an empty cell."""
    return value is None or value != value or value in ("", [], {}) or (isinstance(value, str) and not value.strip())


def literal(value: Any) -> Any:
    """The list or object that a text writes out as JSON or Python, as the cell of a table does; else the value."""
    text = value.strip() if isinstance(value, str) else ""
    for read in (json.loads, literal_eval) if text[:1] + text[-1:] in ("[]", "{}", "()") else ():
        try:
            found = read(text)  # a literal is read, never evaluated
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        return list(found) if isinstance(found, tuple) else found if isinstance(found, list | dict) else value
    return value


def is_plain(value: Any) -> bool:
    """Whether a value is written as one text: parquet has decimals and dates, too."""
    return isinstance(value, str | int | float | Decimal | date)


def listed(said: str | Sequence[str] | None) -> list[str]:
    return [] if said is None else [said] if isinstance(said, str) else list(said)


def folded(value: Any) -> str:
    return normal_form.folded(str(value)).strip("\"' ").removesuffix(".")


def end_of(text: str) -> tuple[str, str | None]:
    r"""("42", the text) of "... #### 42" and "... \boxed{42}", else (the text, None)."""
    if "####" in text:
        return text.rpartition("####")[2].strip(), text
    box = boxed_answer(text)
    return (box.content, text) if box and box.content.strip() else (text, None)


def check_seen(fields: Fields, texts: Iterable[str], options: Collection[str]) -> None:
    """Raises UserError for a row with pictures, sound or film: it would be asked without them.

    texts     what is asked
    options   plain names of the columns that hold the options: names of files may stand there
    """
    said, values = fields.said, fields.values
    read = {*options, *QUESTION, *ANSWER, *map(plain_name, [*listed(said.question), *listed(said.answer)])}
    seen = [name for name, value in values.items() if name not in read and is_seen(name, value)]
    why = [f"{fields.names[name]!r} is a picture" for name in seen]
    why += [f"its text has a picture's place, {place[0][:40]!r}" for place in map(PLACE.search, texts) if place]
    if why and said.image is None:
        why = f"{why[0]} or the like, and only text is asked: leave such rows out"
        raise fields.error(why, "image=[] if they need none")


def is_seen(name: str, value: Any) -> bool:
    """Whether a column holds a picture, sound or film: its bytes, or the name, address or code of a file of it.

    Under a name that says so, any text is one that is longer than "False".
    """
    value = literal(value)
    if isinstance(value, list):
        return any(is_seen(name, each) for each in value)
    if isinstance(value, dict):  # as the datasets library writes them: {"bytes", "path"}, {"array", "sampling_rate"}
        return any(map(value.get, ("bytes", "sampling_rate"))) or is_seen(name, [*value.values()])
    if not isinstance(value, str):
        return isinstance(value, bytes)
    if name.rstrip("s0123456789") in MEDIA and len(value.strip()) > len("False"):
        return True
    kind, _ = guess_type(value.strip().partition("?")[0], strict=False)
    return len(value.split()) == 1 and (kind or "").partition("/")[0] in ("image", "audio", "video")


def question_of(fields: Fields) -> str:
    """The question, with the texts that stand above it."""
    said = fields.said
    asked = [fields.need(name, QUESTION, "the question", "question") for name in listed(said.question) or [None]]
    above = [fields.values.get(fields.name(name, ())) for name in listed(said.context)]
    if said.context is None:
        above = [fields.values[name] for name in CONTEXT if name in fields.values]
    texts = [text for text in (*above, *asked) if text is not None]
    if not all(map(is_plain, texts)):
        raise fields.error("'question', or what stands above it, holds no text", "question=NAME")
    # GPQA has blanks around
    return "\n\n".join(dict.fromkeys(str(text).strip() if "recordid" in fields.names else str(text) for text in texts))


def answer_of(fields: Fields) -> dict[str, Any]:
    """Of a row without options: {answer, accepted (further ones that are as right), solution, if it is its end}."""
    solved = ("solution",) if end_of(str(fields.values.get("solution", "")))[1] else ()
    known = (*ANSWER, *solved)
    if fields.name(fields.said.answer, known) is None and (pointer := fields.name(None, POINTER)):
        why = f"{fields.names[pointer]!r} tells one of several options, and no column is known to be these"
        raise fields.error(why, "options=NAME")
    value = fields.need(fields.said.answer, known, "the answer", "answer")
    found = literal(value)
    if isinstance(found, list) and all(type(each) in (int, float) for each in found):
        value = value if found is not value else ", ".join(map(str, found))  # as a text "[1, 2]" is an interval
    else:
        value = found
    if isinstance(value, dict):  # TriviaQA, SQuAD
        value = [value["value"], *(value.get("aliases") or ())] if "value" in value else value.get("text")
    values = value if isinstance(value, list) else [value]
    values = [str(each) for each in values if is_plain(each) and not is_missing(each)]
    if not values:
        column = fields.names[fields.name(fields.said.answer, known)]
        raise fields.error(f"{column!r} holds no answer", "answer=NAME")
    text, solution = end_of(values[0])
    more = tuple(dict.fromkeys(each for each in values if each != values[0]))
    found = {"answer": text, "accepted": more or SYNONYMS.get(text.strip().casefold(), ())}
    return found if solution is None else found | {"solution": solution}
