"""Whether a text is in English: the embedders that were trained on English alone tell no other texts apart."""

from __future__ import annotations

import re
from functools import lru_cache

MOST_OTHER_LETTERS = 0.3  # share of letters of other scripts in a text that still counts as English
_WORD = re.compile(r"[^\W\d_]+")
_ENGLISH = frozenset(
    "the a an and or of to in for is are be with on that this it as by from not do if use when at you your must should "
    "before after then how what which all each only can will into its no have has was were".split()
)
# The commonest words of other languages that are written in Latin letters, without those that English has as well.
_OTHERS = (
    frozenset(
        "der die das und nicht mit für auf ist ein eine einen einem einer zu den dem des von im wird wenn bei vor nach"
        " immer nur aber oder ich wir man zur zum beim vom kann soll sich wie sind als auch durch über werden muss "  # German
        "le la les une et est dans pour avec pas que qui du au aux sur ce cette il elle être sont mais ou"
        " toujours avant après vous nous doit "  # French
        "el los las una y es en para con por se del al no lo su más pero como"
        " siempre antes después debe cuando "  # Spanish
        "o os um uma e é em não dos das ao à mais mas sempre antes depois deve quando "  # Portuguese
        "il gli un di che non per sono della nel alla più sempre prima dopo deve "  # Italian
        "het een van niet voor op te zijn dat met naar wordt altijd moet "  # Dutch
        "och att det som på är inte av med till ett i eller men "  # Swedish, Danish, Norwegian
        "nie jest się na z w do przed po oraz ale "  # Polish
        "ve bir bu için ile değil her olarak "  # Turkish
        "yang dan di untuk dengan tidak ini itu dari sebelum setelah".split()  # Indonesian
    )
    - _ENGLISH
    - frozenset("die on in an at do no me so by is as am i o e y w z".split())
)


@lru_cache(maxsize=4096)
def is_english(text: str) -> bool:
    """False for a text in another script, and for one whose commonest words are those of another language."""
    letters = [sign for sign in text if sign.isalpha()]
    others = sum(sign > "\u024f" for sign in letters)
    if others > MOST_OTHER_LETTERS * len(letters):
        return False
    words = [word.lower() for word in _WORD.findall(text)]
    foreign = sum(word in _OTHERS for word in words)
    return foreign < 2 or foreign <= sum(word in _ENGLISH for word in words)
