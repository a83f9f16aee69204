"""What the columns of a data file hold: what `env.columns` says, else what their usual names say.

    env.columns={question: q, answer: gold, options: [a, b, c, d]}

A file that neither settles is refused, in one sentence that shows its columns and names the key to set.
"""

from __future__ import annotations

import json
import re
from ast import literal_eval
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from mimetypes import guess_type
from typing import Any

from core import normal_form
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
WRONG = re.compile(r"(?:incorrectanswer|distractor)(?:s|\d)")  # beside the right one: GPQA, SciQ
STEMS = ("option", "opt", "op", "choice", "ending", "answer", "sol", "")  # option_a, opa, choice1, ending0, A
LABELLED = re.compile(r"\s*[(\[]?([A-Za-z]|\d{1,2})(?:[)\]、]\s*|[.:]\s+)(\S.*)", re.S)  # "A) red"
CALLED = re.compile(r"(?:(?:the )?(?:correct )?(?:answer|option)(?: is)?:? *)?[(\[]?([a-z]|\d{1,2})[)\].]*", re.I)
BARE_LETTER = re.compile(r"[(\[]?[A-Ha-h][)\].]?")
SHOWN_LETTERS = re.compile(r"(?:^|[\s(\[])A\s?[).:\]].*?(?:^|[\s(\[])B\s?[).:\]]", re.S)  # in a question's text
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
LETTER, TEXT, FROM_0, FROM_1 = WAYS = ("letter", "text", "from_0", "from_1")


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


def in_order(labels: Sequence[Any]) -> bool:
    """Whether they are A, B, C ... or 0, 1, 2 ... or 1, 2, 3 ..."""
    counted = [[str(number + start) for number in range(len(labels))] for start in (0, 1)]
    return len(labels) > 1 and [str(label).upper() for label in labels] in ([*LETTERS[: len(labels)]], *counted)


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
    said = fields.said
    if said.image is not None:
        return
    read = {*options, *QUESTION, *ANSWER, *map(plain_name, [*listed(said.question), *listed(said.answer)])}
    held = next((name for name, value in fields.values.items() if name not in read and is_seen(name, value)), None)
    if held is None and (place := next(filter(None, map(PLACE.search, texts)), None)) is None:
        return
    where = (
        f"its text has a picture's place, {place[0][:40]!r}" if held is None else f"{fields.names[held]!r} is a picture"
    )
    raise fields.error(
        f"{where} or the like, and only text is asked: leave such rows out", "image=[] if they need none"
    )


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


def right_of(choice: Choice, ways: Collection[str] = WAYS) -> int:
    """The place of the right option. A number does not say where it counts from, so it is refused if nobody does.

    ways   those in which every row of the file can be read: proposed where the right option has to be said
    """
    fields, said = choice.fields, choice.fields.said
    (column, value), index = value_of(choice), fields.name(None, ("answerindex", "answeridx"))
    found = readings(choice, value)
    found = {way: place for way, place in found.items() if said.answer_as in (None, way)}
    shown = f"{fields.names[column]!r} is {value[:60]!r}"
    if not found and names_several(choice, value):
        raise fields.error(
            f"{shown}, several options, but a question has one that is right: leave it out, ask for one option in each "
            "row, or take the options away, so that the answer is graded as a text"
        )
    if not found:
        how = f" as a {said.answer_as}" if said.answer_as else ""
        why = f"{shown}, which tells no single one of {len(choice.options)} options{how}"
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


def names_several(choice: Choice, value: str) -> bool:
    """Whether words of a value tell several options in one way: "A and C", but not "B green"."""
    parts = [found for word in re.findall(r"\w+", value) if (found := readings(choice, word))]
    ways = set(WAYS).intersection(*parts) if parts else ()
    return bool(ways) and all(len({found[way] for found in parts}) > 1 for way in ways)


def ways_of(choices: Iterable[Choice]) -> set[str]:
    """The ways in which each of a file's rows tells one of its options."""
    return set(WAYS).intersection(*(readings(choice, value_of(choice)[1]) for choice in choices))


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
        value = [value["value"], *value.get("aliases", ())] if "value" in value else value.get("text")
    values = [
        str(each) for each in (value if isinstance(value, list) else [value]) if is_plain(each) and not is_missing(each)
    ]
    if not values:
        column = fields.names[fields.name(fields.said.answer, known)]
        raise fields.error(f"{column!r} holds no answer", "answer=NAME")
    text, solution = end_of(values[0])
    more = tuple(dict.fromkeys(each for each in values if each != values[0]))
    found = {"answer": text, "accepted": more or SYNONYMS.get(text.strip().casefold(), ())}
    return found if solution is None else found | {"solution": solution}


def check_free(rows: Sequence[tuple[Fields, str, str]]) -> None:
    """Raises UserError where rows read without options, (columns, question, answer), are likely to have some."""
    if not rows or rows[0][0].said.options is not None:
        return
    fields, _, answer = rows[0]
    shown = any(SHOWN_LETTERS.search(asked) or "options" in each.names for each, asked, _ in rows)
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
