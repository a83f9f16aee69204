"""The options of a question, in whichever way a data file writes them."""

from __future__ import annotations

import json
import re
import unicodedata
from ast import literal_eval
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from single_turn_bench.choice import LETTERS

LABELLED = re.compile(
    r"\s*(?:[(\[（](?P<both>[A-Za-z]|\d{1,2})[)\]）]"
    r"|(?P<one>[A-Za-z]|\d{1,2})(?:\s?[)）、]|\s?[.:：．](?=\s)|[：．]|\s[-–](?=\s)))\s*(?P<text>\S.*)",
    re.S,
)
INLINE = re.compile(r"(?:^|[\s,;])[(\[（]?([A-Za-z])(?:\s?[)\]）.:、：．]|\s[-–]\s)\s*")
SEPARATORS = ("\n", "|", ";")
LABEL_KEYS = (
    "label",
    "key",
    "letter",
    "id",
    "optionid",
    "choiceid",
    "aid",
    "optionlabel",
    "index",
    "idx",
    "option",
    "choice",
)
TEXT_KEYS = (
    "text",
    "content",
    "value",
    "optiontext",
    "choicetext",
    "answer",
    "answertext",
    "atext",
    "body",
    "para",
    "option",
    "choice",
)
RIGHT_KEYS = ("iscorrect", "correct", "isanswer", "right", "isright")
LIST_KEYS = ("text", "texts", "choices", "options", "content")


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option.

    label   what the file calls it: "B"; None where only its place does
    name    of its column, where each option has one of its own, as `plain_name` gives it
    right   whether the file marks it as the right one; None where it marks none
    place   among all options of the row, empty ones counted, from 0
    """

    text: str
    label: str | None = None
    name: str = ""
    right: bool | None = None
    place: int = 0


def plain_name(column: str) -> str:
    """A column's name without case, spaces and signs: "Option A", "option_a" and "OptionA" are one."""
    return "".join(sign for sign in unicodedata.normalize("NFKC", str(column)).casefold() if sign.isalnum())


def is_missing(value: Any) -> bool:
    """None, an empty text, list or object, and the NaN that tables write for an empty cell."""
    if isinstance(value, str):
        return not value.strip()
    return value is None or value != value or (isinstance(value, list | tuple | dict) and not value)


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


def read_options(value: Any) -> list[Option] | None:
    """The options that a value holds, at least two; None where it cannot be told what they are.

    A list of texts or objects; {"A": text}; {"text": [...], "label": [...]}; {text: 0 or 1}; each of them as a text;
    a text of several lines, or divided by "|" or ";", or with its options lettered.
    """
    if isinstance(value, str):
        found = literal(value)
        options = divided(value) if found is None else read_options(found)
    elif isinstance(value, dict):
        options = of_object(value)
    elif isinstance(value, list | tuple):
        options = of_list(list(value))
    else:
        return None
    return finished(options) if options else None


def finished(options: Sequence[Option]) -> list[Option] | None:
    """With their places, those without a text left out, and labels that stand before the texts read."""
    placed = [replace(option, place=place) for place, option in enumerate(options)]
    kept = [option for option in placed if not is_missing(option.text)]
    labels = [option.label.casefold() for option in kept if option.label]
    if len(kept) < 2 or len(set(labels)) < len(labels):
        return None
    return unlabelled(kept)


def unlabelled(options: list[Option]) -> list[Option]:
    """Labels before the texts ("A) red") become the labels, if all have one and they are A, B, C ... in this order."""
    found = [LABELLED.fullmatch(option.text) for option in options]
    if not all(found):
        return options
    labels = [match["both"] or match["one"] for match in found]
    if not in_order(labels):
        return options
    if any(
        option.label and option.label.upper() != label.upper() for option, label in zip(options, labels, strict=True)
    ):
        return options
    return [
        replace(option, label=label.upper(), text=match["text"].strip())
        for option, label, match in zip(options, labels, found, strict=True)
    ]


def in_order(labels: Sequence[str]) -> bool:
    """Whether they are A, B, C ... or 1, 2, 3 ... or 0, 1, 2 ..."""
    n = len(labels)
    found = [label.strip().upper() for label in labels]
    counted = [[str(number + start) for number in range(n)] for start in (0, 1)]
    return n >= 2 and found in ([*LETTERS[:n]], *counted)


def divided(text: str) -> list[Option] | None:
    """The options of a text: by their letters, else by the one sign that divides it."""
    if text.strip()[:1] in ("[", "{") and text.strip()[-1:] in ("]", "}"):  # a list, but in no form that can be read
        return None
    starts = list(INLINE.finditer(text))
    if text.strip() and len(starts) >= 2 and starts[0].start() == 0 and in_order([start[1] for start in starts]):
        ends = [start.start() for start in starts[1:]] + [len(text)]
        texts = [text[start.end() : end].strip(" ,;|\n") for start, end in zip(starts, ends, strict=True)]
        return [Option(text=each, label=start[1].upper()) for each, start in zip(texts, starts, strict=True)]
    signs = [sign for sign in SEPARATORS if sign in text.strip().strip("|;")]
    if not signs or (signs[0] != "\n" and len(signs) > 1):
        return None
    return [Option(text=part.strip()) for part in text.strip().split(signs[0]) if part.strip()]


def of_list(items: list[Any]) -> list[Option] | None:
    if all(isinstance(item, list | tuple) and len(item) == 2 for item in items):
        if in_order([str(label) for label, _ in items]):
            return [Option(text=as_text(text) or "", label=str(label)) for label, text in items]
        return None
    options = [of_item(item) for item in items]
    return None if None in options else options


def of_item(item: Any) -> Option | None:
    if item is None:
        return Option(text="")
    if not isinstance(item, dict):
        text = as_text(item)
        return None if text is None else Option(text=text)
    parts = {plain_name(key): value for key, value in item.items()}
    if len(parts) == 1 and not set(parts) & set(TEXT_KEYS):  # {"A": "red"}
        ((label, value),) = item.items()
        return Option(text=as_text(value) or "", label=str(label))
    named = next((key for key in TEXT_KEYS if as_text(parts.get(key)) is not None), None)
    if named is None:
        return None
    label = next((parts[key] for key in LABEL_KEYS if key != named and as_text(parts.get(key)) is not None), None)
    right = next((parts[key] for key in RIGHT_KEYS if key != named and parts.get(key) is not None), None)
    return Option(text=as_text(parts[named]), label=None if label is None else str(label), right=as_flag(right))


def of_object(value: dict) -> list[Option] | None:
    parts = {plain_name(key): each for key, each in value.items()}
    texts = next((parts[key] for key in LIST_KEYS if isinstance(parts.get(key), list | tuple)), None)
    if texts is not None:
        return of_lists(
            list(texts), next((parts[key] for key in ("label", "labels", "key", "keys") if key in parts), None)
        )
    keys = sorted(value, key=lambda key: (len(str(key)), str(key).upper()))
    endings = labels_of([str(key) for key in keys])
    flags = [as_flag(each) for each in value.values()]
    if endings is None and None not in flags and sum(flags) == 1:  # {"red": 0, "blue": 1}
        return [Option(text=str(key), right=flag) for key, flag in zip(value, flags, strict=True)]
    if endings is None or any(each is not None and as_text(each) is None for each in value.values()):
        return None
    return [
        Option(text=as_text(value[key]) or "", label=label, name=plain_name(key))
        for key, label in zip(keys, endings, strict=True)
    ]


def of_lists(texts: list[Any], labels: Any) -> list[Option] | None:
    """Texts and their labels, or zeros and a one for the right text."""
    options = of_list(texts)
    if options is None or not isinstance(labels, list | tuple) or len(labels) != len(options):
        return options if labels is None else None
    flags = [as_flag(label) for label in labels]
    if (
        None not in flags and sum(flags) == 1 and not in_order([str(label) for label in labels])
    ):  # 0, 1 name two options
        return [replace(option, right=flag) for option, flag in zip(options, flags, strict=True)]
    return [replace(option, label=str(label)) for option, label in zip(options, labels, strict=True)]


def labels_of(names: Sequence[str]) -> list[str] | None:
    """What tells names apart that are else the same, A, B ... or 1, 2 ...: of "option_1", "option_2" it is 1 and 2."""
    plain = [plain_name(name) for name in names]
    stems = {re.sub(r"(?:\d{1,2}|[a-z])$", "", name) for name in plain}
    if len(stems) != 1:
        return None
    stem = stems.pop()
    endings = [name[len(stem) :].upper() for name in plain]
    return endings if in_order(endings) else None


def as_text(value: Any) -> str | None:
    """A text or a number as a text; None for anything else."""
    if isinstance(value, str | int | float) and value == value:
        return str(value)
    return None


def as_flag(value: Any) -> bool | None:
    """True or False of a mark such as 1, "true" or 0.0; None for anything else."""
    return {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}.get(str(value).casefold())
