"""Worked examples for the prompt (`env.shots`): our own in shots.json, or those of another file of that form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.page import HTML

OWN = Path(__file__).with_name("shots.json")
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
REPLY = {"ids": "ids", "choices": "choice"}  # {form: the key of an example's reply}


def examples(n: int, form: str, file: str | None = None) -> str:
    """The first n examples as text; "" for 0.

    form   ids | choices, as in the env

    Raises UserError if the file has fewer, or one that is not of the form.
    """
    path = OWN if file is None else Path(file)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))[:n] if n else []
        texts = [_as_text(each, form) for each in found]
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise UserError(f"env.shots_file={path} has no examples as in {OWN.name}: {why}.") from error
    if len(texts) < n:
        raise UserError(f"env.shots={n}: {path.name} has {len(texts)} examples.")
    return "\n\n".join(f"Example {number}\n{text}" for number, text in enumerate(texts, 1))


def _as_text(example: dict[str, Any], form: str) -> str:
    """An example as a step is shown, with the reply to it."""
    lines = [HTML, example["html"]]
    if form == "choices":
        listed = ["None of the above", *example["choices"]]
        lines += ["", "Which element is to be acted on next?"]
        lines += [f"{letter}. {text}" for letter, text in zip(LETTERS, listed, strict=False)]
    lines += ["", f"Task: {example['task']}", "", "Previous actions:", *(example["previous"] or ["None"])]
    return "\n".join((*lines, "", f"Reply: {example[REPLY[form]]}"))
