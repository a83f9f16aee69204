"""Answers that are stated in other languages: the words around them become English, and one set of rules reads all.

    正确答案是C，因为A和B都不对。          the answer is (C), because A and B are incorrect.
    No es la B, sino la C.              not (B), but (C).
    Die Antwort ist 42 Äpfel.           the answer is 42 because Äpfel.      (the rules cut a reason off)
    Вариант D неверен.                  option D is incorrect

Only the words that state or reject an answer are replaced, where a letter or a value stands beside them; the table has
a row for each language. Prose of a mostly English text that states its answer in English is left alone, and so is a
statement in quotation marks. The characters have one spelling already (characters.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from functools import cache

from single_turn_bench.characters import FOREIGN
from single_turn_bench.languages import LANGUAGES, SCALES, Language
from single_turn_bench.units import MEASURE

MAX_READ = 20_000  # characters, from the end
# Letters of other alphabets that stand for A, B, C, ...: by their place, or, of a Cyrillic keyboard, by their look.
BY_PLACE = str.maketrans("АБВГДأابجده", "ABCDEAABCDE")
BY_LOOK = str.maketrans("АБВСЕ", "ABBCE")
CYRILLIC = re.compile(r"(?<![^\W_])[АБВГДСЕ](?![^\W_])")
ARABIC = re.compile(r"(?<![^\W_])[أابجده](?:ـ)?(?![^\W_])")
A_PREPOSITION = re.compile(r"\s+[а-яё]{2}")

ENGLISH = frozenset("the is of and that we so to in are this which it for not because answer".split())
STATED = re.compile(r"\banswer\s*(?:is\b|:)", re.I)
FINAL = re.compile(
    "final|endgültig|Endergebnis|Endantwort|最[终終后後]|итогов|окончат|최종|अंतिम|نهائي|চূড়ান্ত|nihai|akhir|cuối", re.I
)
QUOTE = r"[\"“„«‘'][\x20\t]{0,3}"
# 12.500 is no 12 500 where other numbers have a decimal point.
GROUPED = re.compile(r"[1-9]\d{0,2}(?:\.\d{3})+")
POINT_DECIMAL = re.compile(r"\d\.(?:\d{1,2}|\d{4,})(?![\d,.])|(?<!\d)0\.\d|[≈~]")
RESULT = re.compile(r"(?:[=≈]|\bso\b[^\d=]*)[ \t]?(-?[$€£¥₹]?\d[\d.,]*(?<=\d)%?)(?![\d]| ?[-+*/×÷^=])[^\d=]*$")
FORMULA = re.compile(r"^(\\(?:[^{}\s]|\{(?:[^{}]|\{[^{}]*\})*\})+)[ \t,]+(?=[^\W\d_]{2})(?!and\b|so\b|because\b|or\b)")
ALONE = re.compile(r"[(\[“\"]{0,3}[A-Z][)\]”\"*]{0,3}[\x20\t]*(?:[.,:;!\n]|\Z)|[-+]?[$€£¥₹]?\d")
STATES = "\x1e"  # behind the words that state the answer, twice where points group digits
MARK = "\x1f"  # behind those that choose or reject a letter or a value

NOT_BEHIND, NOT_BEFORE = r"(?<![^\W\d_])", "(?:(?<=['’])|(?![^\\W\\d_]|[\u0900-\u0dff]))"
OPEN, CLOSE = "[(\\[“\"'«„‘]{0,3}", "[)\\]”\"'»“’]{0,3}"
LETTER = (
    r"(?-i:[A-Z])(?:(?=['’](?:[dt][iıuü]r|[yn]?[iıuü])\b)|(?![\w-]|['’]\w))"
    r"(?![\x20\t]{0,9}[=+*/^<>≈≤≥×·_]|\$[\x20\t]?\d)"
)
ONE = f"{OPEN}{LETTER}{CLOSE}"
SEVERAL = f"{ONE}(?: ?(?:, ?(?:<and_>)?|<and_>) ?(?:<option> ?)?{ONE}){{0,9}}"
NUMBER = (
    r"[-+]?[\x20\t]?(?:(?:R|US)?[$€£¥₹])?[\x20\t]?(?:\d{1,3}(?:[.,'’\x20]\d{3})+(?:[.,]\d+)?|\d+(?:[.,]\d+)?)(?!\d)"
    r"(?:[\x20\t]?/[\x20\t]?\d+)?(?:[\x20\t]*\\?%)?(?:[\x20\t]?[$€£¥₹])?"
)
NUMERIC = r"[-+]?(?:(?:R|US)?[$€£¥₹][\x20\t]?)?\.?\d"
VALUE = (
    rf"[\s:*_`$]{{0,9}}(?:{ONE}|\(?(?-i:[a-z])\)|{NUMERIC}|[-+]?\\|[-+]?[(\[]\s?[-+\d]|\$"
    rf"|[A-Za-z]\w{{0,2}}[\x20\t]?[=<>≤≥∈(+*/^-])"
)
FEW_WORDS = r"[\x20\t]*[^\W\d_][^\d.\n!?,;:$\\]{0,40}(?:[.!?]?[\x20\t]*(?:\n|\Z))"


def in_english(text: str) -> str:
    """The text with the words that state or reject an answer in English, if they are of one of the languages."""
    if not is_foreign(text):
        return text
    before, end = text[:-MAX_READ], text[-MAX_READ:]
    for pattern, said in frames():
        end = pattern.sub(said, end)
    by_points = not POINT_DECIMAL.search(text)
    end = claim().sub(lambda match: with_reason(match, by_points), end)
    return before + end.replace(MARK, "").replace(STATES, "")


def latin_letters(text: str) -> str:
    """The letter of an option as A, B, C, ... where the alphabet is another one: ب is B, and В, of Cyrillic, too.

    Cyrillic letters go by their place (А, Б, В, Г) where one is among them that looks like no Latin one.
    """
    if not re.search(f"[{FOREIGN}]", text):
        return text
    text = ARABIC.sub(lambda match: match[0][0].translate(BY_PLACE), text)
    found = {match[0] for match in CYRILLIC.finditer(text) if names_option(text, match)}
    table = BY_PLACE if found & set("БГД") and not found & set("СЕ") else BY_LOOK
    return CYRILLIC.sub(lambda match: match[0].translate(table) if names_option(text, match) else match[0], text)


def names_option(text: str, match: re.Match) -> bool:
    """Not the preposition or conjunction that a sentence begins with: "В итоге", "А теперь", "С учётом"."""
    begins = re.search(r"(?:^|[.!?\n])\s*$", text[max(0, match.start() - 5) : match.start()])
    verdict = re.compile(r"\s+(?:не\s+)?(?:вер|правильн|подход|явля|ошиб|лож|и\b|или\b)", re.I).match(text, match.end())
    return not (begins and A_PREPOSITION.match(text, match.end()) and not verdict)


def is_foreign(text: str) -> bool:
    """Whether another language may state the answer: some of it stands there, and not within a text in English."""
    others = (len(re.findall(f"[{FOREIGN}]", text)) + 1) // 2
    words = re.findall(r"[^\W\d_]+", text.lower())
    others += sum(word in signs() for word in words)
    if not others:
        return False
    return not (sum(word in ENGLISH for word in words) > others and STATED.search(text))


@cache
def signs() -> frozenset[str]:
    return frozenset(word for row in LANGUAGES for word in row.signs.split())


@cache
def words(field: str, point_groups: bool = False) -> str:
    """A pattern for that field's words in all languages, or in those that group digits by points."""
    rows = [row for row in LANGUAGES if getattr(row, field) and (row.point_groups or not point_groups)]
    spaced = "|".join(getattr(row, field) for row in rows if row.spaced)
    others = "|".join(getattr(row, field) for row in rows if not row.spaced)
    bordered = rf"{NOT_BEHIND}(?:{spaced}){NOT_BEFORE}" if spaced else ""
    return f"(?:{'|'.join(filter(None, (bordered, others)))})"


def blanks(pattern: str) -> str:
    return re.sub(r" (\?)?", lambda match: r"[ \t]{0,9}" if match[1] else r"[ \t]{1,9}", pattern)


@cache
def compiled(pattern: str) -> re.Pattern:
    """`<field>` stands for the words of a field, a blank for some blanks, and ` ?` for some or none."""
    names = "|".join(field.name for field in fields(Language))
    filled = re.sub(rf"(?<!\?P)<({names})>", lambda match: words(match[1]), pattern)
    return re.compile(blanks(filled), re.I)


@cache
def frames() -> tuple[tuple[re.Pattern, Callable[[re.Match], str] | str], ...]:
    """What is replaced by what, in this order: each reads what those before it have written."""
    option = "(?:(?-i:<article>) ?|<article> ?(?=<option>))?(?:<option> ?)?"
    return (
        # 如果答案是A -> if the answer is A
        (compiled(f"<if_> ?,? ?(?=(?:<article> ?)?<answer>|{option}{ONE})"), " if "),
        # C es correcta -> C is correct; A et B sont fausses -> A and B are incorrect; a question is none
        (
            compiled(
                f"{option}(?P<letters>{SEVERAL})(?: ?:)? ?(?:(?P<wrong>(?:<is_> ?){{0,2}}<wrong>"
                f"|<not_> ?(?:<article> ?)?<right>)"
                f"|(?:<is_> ?){{1,2}}(?:<article> ?)?(?:<right>|<answer>)|(?:(?<![AO]\\s)|(?=[{FOREIGN}]))<right>) ?"
                f"(?! ?(?:吗|嗎|か|\\?|{LETTER})| ?(?:<is_>)? ?:?{VALUE})"
            ),
            with_verdict,
        ),
        # B नहीं, बल्कि C -> not B, but C
        (compiled(f"(?P<x>{option}{ONE}|{NUMBER}) ?<not_after>(?P<more> ?,? ?(?:<but> ?)?(?={VALUE}))?"), with_denial),
        # no es la B -> not B
        (compiled(f"<not_> ?(?:<article> ?)?(?:<option> ?|<is_> ?)?(?={ONE}|{NUMERIC})"), f" not {MARK}"),
        # not B, sino la C -> not B, but C
        (
            compiled(
                f"(?P<head>\\bnot {MARK}(?:{ONE}|{NUMBER})[^.\n]{{0,20}}?) ?,? ?<but> ?{option}(?={ONE}|{NUMERIC})"
            ),
            rf"\g<head>, but {MARK}",
        ),
        # 18 ist die Antwort -> the answer is 18
        (
            compiled(f"(?P<x>{NUMBER}) ?(?:<is_> ?){{1,2}}(?:<article> ?)?<answer>(?! ?(?:<is_> ?)?[:=]? ?{VALUE})"),
            rf" the answer is {STATES}\g<x> ",
        ),
        # die richtige Antwort ist also, 答案： -> the answer is, before a letter, a value or a few words
        (
            compiled(
                f"(?P<quote>{QUOTE})?(?:<article> ?)?(?P<noun><answer>)"
                f"(?P<link>(?: ?<is_>){{0,2}}(?: ?<so>)?(?: ?<is_>)?"
                rf"(?: ?[:=]| [–—-](?=[\x20\t]))?)\s{{0,4}}(?P<named><answer> ?|{option})"
                f"(?={VALUE}|not {MARK}|(?!<right>|<wrong>|<is_>|<if_after>|{ONE}){FEW_WORDS})"
            ),
            with_statement,
        ),
        # c'est la réponse C -> the answer is C
        (compiled(f"(?<![^\\W\\d_])<is_> ?(?:<article> ?)?<answer> ?(?={ONE})"), f" the answer is {STATES}"),
        # 故选C, C를 선택 -> I choose C; la opción C -> option C
        (compiled(f"<choose> ?:? ?{option}(?={ONE})"), f" I choose {MARK}"),
        (compiled(f"{option}(?P<letter>{ONE}) ?<choose_after>"), r" I choose \g<letter> "),
        (compiled(f"(?:<article> ?)?<option> ?(?={ONE})"), " option "),
    )


def with_verdict(match: re.Match) -> str:
    letters = re.sub(words("and_"), "and", match["letters"], flags=re.I)
    several = len(re.findall(r"\b[A-Z]\b", letters)) > 1
    return f" {letters} {'are' if several else 'is'} {'incorrect' if match['wrong'] else 'correct'} "


def with_denial(match: re.Match) -> str:
    return f" not {MARK}{match['x'].strip()}{f', but {MARK}' if match['more'] is not None else ' '}"


def with_statement(match: re.Match) -> str:
    """ "the answer is"; words in quotation marks, and a noun with nothing that links it to a letter, stay."""
    noun, link = match["noun"], match["link"].strip()
    denied = match.string.startswith("not ", match.end())
    begins = re.search(r"(?:^|[.!?\n*#])[\s*]*$", match.string[max(0, match.start() - 20) : match.start()])
    alone = begins and ALONE.match(match.string, match.end())
    linked = link or denied or alone or match["named"].strip() or " " in noun or re.search(f"[{FOREIGN}]", noun)
    if match["quote"] or not linked:
        return match[0]
    by_points = re.fullmatch(blanks(words("answer", point_groups=True)), noun, re.I)
    final = "final " if FINAL.search(noun) else ""
    return f" the {final}answer is {STATES * (2 if by_points else 1)}"


@cache
def claim() -> re.Pattern:
    """A letter behind the words that state or reject it, or a statement of numbers or a formula, to its end."""
    numbers = f"(?P<numbers>{NUMBER}(?:(?: ?, | ?<and_> ?){NUMBER}){{0,9}})"
    return compiled(
        f"(?P<mark>{MARK}|{STATES}+)(?:(?P<letter>{OPEN}{LETTER}{CLOSE})(?:['’][dt]?[iıuün]+r?)?|(?<={STATES})"
        rf"(?:[\s:*_`]{{0,9}}{numbers}(?P<unit>{MEASURE}[²³]?(?![^\W\d_]))?(?![\w]|[.,]\d)[*_`]{{0,3}}"
        rf"|(?P<formula>[^\w\n]))"
        rf"(?P<rest>(?:[^.!?\n{MARK}{STATES}]|[.!?](?=\S)){{0,400}}))"
    )


def with_reason(match: re.Match, by_points: bool) -> str:
    """A letter in brackets, as it is no article then; a value without the words behind it, which become a reason."""
    if match["letter"]:
        return "(" + re.search("[A-Z]", match["letter"])[0] + ") "
    rest = compiled("<so> ?").sub(" so ", compiled("<because> ?").sub(" because ", match["rest"]))
    if match["formula"]:
        formula = compiled("<and_> ?(?=[$\\\\])").sub(" and ", match["formula"] + rest)
        return FORMULA.sub(r"\1 because ", formula)
    value = compiled(" ?<and_> ?(?=[-+]?\\d)").sub(" and ", re.sub(r"(?:R|US)(?=[$€£¥₹])", "", match["numbers"]))
    if len(match["mark"]) > 1 and by_points and GROUPED.fullmatch(value):
        value = value.replace(".", ",")
    value, rest = scaled(value + (match["unit"] or ""), rest)
    if result := RESULT.search(rest):
        return result[1]
    if compiled(r" ?(?:[-+*/×÷·^:=≈_(\\\[]|<times>[^\d.]{0,12}\d)").match(rest) or not re.search(r"[^\W\d_]", rest):
        return value + rest
    return f"{value} because {rest.strip()}"


def scaled(value: str, rest: str) -> tuple[str, str]:
    """(value, rest) with the word for a million or ten thousand that the rest begins with taken into the value."""
    for named, scale in SCALES:
        if found := re.match(rf"[\x20\t]?(?:{named}){NOT_BEFORE if isinstance(scale, str) else ''}", rest, re.I):
            if isinstance(scale, str):
                return value + scale, rest[found.end() :]
            whole, _, decimals = value.replace(",", "").partition(".")
            return (whole + decimals.ljust(scale, "0")).lstrip("0"), rest[found.end() :]
    return value, rest


@cache
def statement() -> re.Pattern:
    """What states an answer in any of the languages, in text as it was written."""
    return compiled("(?:<article> ?)?<answer>(?:(?: ?<is_>){1,2}(?: ?[:：])?| ?[:：])[\\x20\\t*]{0,9}")
