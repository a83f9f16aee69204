"""Whether a text is in English: the embedders that were trained on English alone tell no other texts apart."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

MOST_OTHER = 0.3  # share of words in other scripts that a text in English may have: a label, a name
LEAST_FOREIGN = 2  # words of another language with Latin letters: a single one may be a name or a quotation
SIGNS_OF_A_WORD = 1.5  # characters of a word, on average, in scripts without blanks between words
_SIGN = "(?:[^\\W\\d_]|[\u0300-\u036f\u0900-\u0963\u0966-\u0dff])"  # a letter, or a mark that is written with letters
_WORD = re.compile(rf"{_SIGN}+(?:['\u2019]{_SIGN}+)?")
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_ENGLISH = frozenset(
    "the a an and or of to in for is are be with on that this it as by from not do if use when at you your must "
    "should before after then how what which all each only can will into its no have has was were i my we our they "
    "there where who why does did but so than because been being would could also about more any out up".split()
)
# The commonest words of other languages that are written in Latin letters, without those that English has as well.
_OTHERS = (
    frozenset(
        "der die das und nicht mit für auf ist ein eine einen einem einer zu den dem des von im wird wenn bei vor nach "
        "immer nur aber oder ich wir man zur zum beim vom kann soll sich wie sind als auch durch über werden muss "
        "bevor sonst keine kein diese dieser dieses mehrere dann damit dass noch schon mehr sehr mein ihr "  # German
        "le la les une et est dans pour avec pas que qui du au aux sur ce cette il elle être sont mais ou toujours "
        "avant après vous nous doit jamais faut comment quand plusieurs sans moins trouver tout tous leur donc alors "
        "peut faire entre cher "  # French
        "el los las una y es en para con por se del al no lo su más pero como siempre antes después debe cuando "
        "nunca hay qué cómo cuál este esta está hacer puede ser entre cada donde "  # Spanish
        "o os um uma e é em não dos das ao à mais mas sempre antes depois deve quando nunca sem como que devo fica "
        "pela pelo numa num qual são está onde cada "  # Portuguese
        "il gli un di che non per sono della nel alla più sempre prima dopo deve mai senza quando "
        "si come nel dei delle degli questo questa anche cosa perché "  # Italian
        "het een van niet voor op te zijn dat met naar wordt altijd moet nooit wanneer "  # Dutch
        "och att det som på är inte av med till ett eller aldrig alltid innan ikke og "  # Swedish, Danish, Norwegian
        "nie jest się na z w do przed po oraz ale zawsze nigdy "  # Polish
        "není je v před vždy nikdy "  # Czech
        "ve bir bu için ile değil her olarak önce sonra "  # Turkish
        "yang dan di untuk dengan tidak ini itu dari sebelum setelah selalu jangan "  # Indonesian
        "không và của là trước khi luôn".split()  # Vietnamese
    )
    - _ENGLISH
    - frozenset(
        "die man den des du al met op per non con pour sin van je ale her un mai se te di da na v og do".split()
    )
    - frozenset("abcdefghijklmnopqrstuvwxyz")
)


@lru_cache(maxsize=4096)
def is_english(text: str) -> bool:
    """False for a text in another script, and for one with more words of another language than of English.

    A single letter of another script (a variable of a formula) and a word in Latin letters with accents (a name) do not
    make a text foreign.
    """
    words = [word.lower() for word in _WORD.findall(unicodedata.normalize("NFKC", text))]
    unspaced = sum(len(_UNSPACED.findall(word)) for word in words) / SIGNS_OF_A_WORD
    spelt = [word for word in words if not _UNSPACED.search(word)]
    others = sum(len(word) > 1 and max(word) > "\u024f" and not _is_latin(word) for word in spelt)
    if unspaced + others > MOST_OTHER * (unspaced + len(spelt)):
        return False
    known = {word for word in spelt if word in _OTHERS}
    foreign = known | {word for word in spelt if _is_accented(word)}
    if len(foreign) < LEAST_FOREIGN or not (known or len(foreign) > MOST_OTHER * len(set(spelt))):
        return True
    return len(foreign) <= len(_ENGLISH & set(spelt))


def _is_latin(word: str) -> bool:
    return all(sign < "\u024f" or unicodedata.name(sign, "").startswith("LATIN") or not sign.isalpha() for sign in word)


def _is_accented(word: str) -> bool:
    return any(sign > "\u00bf" for sign in word if sign not in "\u2019\u00d7") and _is_latin(word)
