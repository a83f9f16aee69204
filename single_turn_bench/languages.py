"""Answers that are stated in other languages: the words become "the answer is", and the English rules read on.

    正确答案是C，因为A和B都不对。          the answer is (C). ...
    La respuesta no es la B, sino la C.    the answer is (C).
    Die Antwort ist 42 Äpfel.              the answer is 42. Äpfel.
    C가 정답입니다.                        the answer is (C). ...

One alternation says "the answer", "the right option", "I choose" and "is correct"; behind it, in the same sentence, the
first letter or number that is not denied counts. A text that states its answer in English is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from single_turn_bench.units import MEASURE

MAX_READ = 20_000  # characters, from the end
MAX_SAID = 50  # statements, from the end
BEGINS, ENDS = r"(?<![^\W\d_])", r"(?![^\W\d_])"
# Of these languages 12.500 is 12 500.
BY_POINTS = (
    r"respuestas?|resultado final|soluci[oó]n(?:es)?|correct[ao]s?|elijo|escojo|selecciono|respostas?|gabarito"
    r"|corret[ao]s?|escolho|rispost[ae]|soluzion[ei]|corrett[ao]|scelgo|(?:end)?antwort(?:en|möglichkeit|option)?|lösung(?:en)?"
    r"|endergebnis|richtige?[rns]?|korrekte?[rns]?|wähle|cevap|cevabı|yanıt|doğru(?:dur)?|seçenek|jawaban(?:nya)?|benar"
    r"|memilih|đáp án|câu trả lời|chọn|odpowiedź|antwoord"
)
SAYS = (
    rf"(?:{BEGINS}(?:(?P<points>{BY_POINTS})|r[ée]ponses?|correctes?|choisis|bonne?|ответ(?:ом|а|ы)?|правильн[а-я]+"
    rf"|верн[а-я]+|верен|выбираю|итого|[وف]?(?:ال)?(?:إجابة|اجابة|جواب|خيار)|[أن]ختار|صحيحة?){ENDS}"
    r"|(?<![不非会會])(?:答案|答(?=\s?:)|正确|正確|选|選)|答え|正解|正答|解答|正しい|適切|정답|답변|답|옳|올바|맞|선택|उत्तर|जवाब|सही|উত্তর|সঠিক|คำตอบ)"
)
NOT = re.compile(
    rf"不|非|错|錯|ない|なく|誤|違|아니|않|틀|नहीं|गलत|নয়|ভুল|{BEGINS}(?:no|non|não|nicht|keine?|ne|n['’]est|pas|не|ни|нет|ni|né|noch"
    rf"|weder|falsch|fals[aoe]s?|fausse?s?|incorrect\w*|errad[ao]|errat[ao]|sbagliat[ao]|невер\w*|неправ\w*|ليست?|لا|غير|خطأ|değil"
    rf"|yanlış\w*|bukan|salah|không|nie){ENDS}",
    re.I,
)
NOT_BEHIND = re.compile(r"[)\]”\"*]{0,3}\s?(?:では|じゃ|가|이|번이)?\s?(?:な[くい]|아니라?|नहीं|নয়|değil)")
LETTER = (
    r"(?<![A-Za-z0-9\u00c0-\u06ff-])(?<![A-Za-z]['’])(?P<letter>[A-ZАВСЕأابجد])(?![A-Za-z0-9\u00c0-\u06ff_$-]|\s?[=^]"
    r"|['’](?!d?[iıuü])[A-Za-z])"
)
DIGITS = r"\d{1,3}(?:[.,'’ \u00a0\u202f]\d{3})+(?:[.,]\d+)?(?!\d)|\d{1,3}(?:,\d\d)+,\d{3}|\d+(?:[.,]\d+)?"
VALUE = re.compile(
    rf"{LETTER}|(?P<formula>[\\$]|{BEGINS}-?(?:[a-zπ]{ENDS}\s?[=<>+^(-]|\d+[a-zπ]{ENDS})|[(\[]\s?-?[^()\[\]\n]{{1,20}},)"
    rf"|(?P<number>(?:-\s?)?(?:(?:R|US)?[$€£¥₹]\s?)?(?:{DIGITS})(?:\s?/\s?\d+)?(?:\s?\\?%)?)(?P<unit>{MEASURE}[²³]?{ENDS})?"
)
ALIKE = str.maketrans("АВСЕأابجد", "ABCEAABCD")  # of a Cyrillic keyboard, and the Arabic order
STATED = re.compile(r"\banswer\s*(?:is\b|:)", re.I)
SAID = re.compile(SAYS, re.I)
BEFORE = re.compile(rf"(?:{VALUE.pattern})(?P<gap>[)\]”\"*]{{0,3}}[^\d,.;:!?\n\\$A-Z]{{0,24}})$")
SENTENCE_END = re.compile(r"(?<=[^\s:*])[^\S\n]*(?:[.!?](?=\s|$)|;|\n\s*\n)")
AND = rf"\s?(?:,|、|{BEGINS}(?:y|e|et|und|и|o|ou|oder|или|veya|ve){ENDS}|和|或|と|와|과)\s?"
FURTHER = re.compile(rf"{AND}(-?\d+(?:[.,]\d+)?)(?![\d.,]*\d)")
# 6×7 = 42, 5 mal 3
CALCULATES = re.compile(r"\s*(?:[-+/×÷·^=≈_(]|\*(?!\*)|\\[a-z]|[^\W\d_]{1,9}\s?\d|[^.,;\n]*=)")
GROUPED, POINT_DECIMAL = re.compile(r"-?[1-9]\d{0,2}(?:\.\d{3})+"), re.compile(r"\d\.\d{1,2}(?![\d.,])")
# What states an answer in words, and in one that is read as it was written (verbatim.py).
STATEMENT = re.compile(
    rf"{SAYS}[^\d.!?;:：\n]{{0,30}}?(?:[:：]|(?:是|为|は|은|는|{BEGINS}(?:es|est|ist|è|é|هي|هو){ENDS})(?!\w?[:：]))"
    r"[ \t*]*",
    re.I,
)
CLAUSE = re.compile(r"[^,.;:!?\n]*")
DENIED = re.compile(rf"[^,.;:!?\n\dA-Z]*?(?:{NOT.pattern})[^,.;:!?\n\dA-Z]*(?:[,.;:!?\n]|$)", re.I)
WORDS = re.compile(r"[^\W\d_]+(?: [^\W\d_]+){0,2}\s*(?:[.!]?\s*$|[.!]\s)")


def in_english(text: str) -> str:
    """The text with what states an answer in another language as "the answer is"."""
    before, end = text[:-MAX_READ], text[-MAX_READ:]
    if STATED.search(end) or not SAID.search(end):
        return text
    out, last = [before], 0
    for said in list(SAID.finditer(end))[-MAX_SAID:]:
        if said.start() >= last and (claim := claim_of(end, said, last)):
            start, stop, stated = claim
            out += [end[last:start], f" the answer is {stated}"]
            last = stop
    return "".join([*out, end[last:]])


def claim_of(text: str, said: re.Match, since: int) -> tuple[int, int, str] | None:
    """(start, end, value) of the statement that `said` is part of; the value stands behind it, else right before."""
    rest = text[said.end() : said.end() + 80]
    if cut := SENTENCE_END.search(rest):
        rest = rest[: cut.start()]
    behind = next(undenied(rest), None)
    if behind is None or "," in rest[: behind.start()]:
        head = text[max(since, said.start() - 40) : said.start()]
        value = BEFORE.search(head)
        article = value and value["letter"] in ("A", "E", "O") and not value["gap"].strip()
        if value and not (value["formula"] or article or NOT.search(value["gap"])):
            start = said.start() - len(head) + value.start()
            return start, CLAUSE.match(text, said.end()).end(), spelled(value, said, text) + ". "
    if behind is None:
        words = STATEMENT.match(text, said.start())
        states = words and not NOT.search(words.group()) and WORDS.match(text, words.end())
        return (said.start(), words.end(), "") if states else None
    stop = said.end() + behind.end()
    calculates = behind["number"] and CALCULATES.match(text, stop) and not FURTHER.match(text, stop)
    if behind["formula"] or calculates:
        return said.start(), said.end() + behind.start(), ""
    stated = spelled(behind, said, text)
    while behind["number"] and (further := FURTHER.match(text, stop)):
        stated, stop = f"{stated}, {further[1]}", further.end()
    return said.start(), stop, f"{stated}. "


def undenied(rest: str) -> Iterator[re.Match]:
    """The values of the rest of a sentence that no word before or behind denies."""
    last = 0
    for value in VALUE.finditer(rest):
        if behind := NOT_BEHIND.match(rest, value.end()):  # not this one, but
            last = behind.end()
            continue
        if not (NOT.search(rest, last, value.start()) or DENIED.match(rest, value.end())):
            yield value
        last = value.end()


def spelled(value: re.Match, said: re.Match, text: str) -> str:
    """A letter in brackets, as it is no article then; a number as English groups its digits."""
    if value["letter"]:
        return f"({value['letter'].translate(ALIKE)})"
    number = re.sub("R|US", "", value["number"]).strip()
    if said["points"] and GROUPED.fullmatch(number) and not POINT_DECIMAL.search(text):
        number = number.replace(".", "")
    return number + (value["unit"] or "")
