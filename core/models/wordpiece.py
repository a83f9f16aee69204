"""The tokens of a text as MiniLM reads them: BERT's uncased WordPiece (Wu et al. 2016, Devlin et al. 2019).

The library tokenizers gives the same, and a test compares them; it brings 33 MB, and a start would wait for its import.
"""

from __future__ import annotations

import json
import re
import string
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

LONGEST_WORD = 100  # characters; a longer word is one unknown token
_IDEOGRAPHS = (  # characters that are a word each
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


class Token(NamedTuple):
    """A token: its number in the vocabulary, its place in the text, and the number of its word."""

    id: int
    start: int
    end: int
    word: int


class WordPiece:
    """The tokenizer of a file tokenizer.json, whose settings are those of the released MiniLM."""

    def __init__(self, file: Path) -> None:
        about = json.loads(file.read_bytes())
        self._ids: dict[str, int] = about["model"]["vocab"]
        self._unknown = self._ids[about["model"]["unk_token"]]
        self.begin, self.end = self._ids["[CLS]"], self._ids["[SEP]"]
        self._marks = re.compile("|".join(re.escape(each["content"]) for each in about["added_tokens"]))
        self._pieces = lru_cache(maxsize=10_000)(self._divided)

    def ids(self, text: str) -> list[int]:
        """The numbers of the text's tokens, between those of begin and end."""
        return [self.begin, *(token.id for token in self.tokens(text)), self.end]

    def tokens(self, text: str) -> Iterator[Token]:
        """The tokens of the text alone."""
        for number, (word, places) in enumerate(self._words(text)):
            done = 0
            for id, length in self._pieces(word):
                yield Token(id, places[done], places[done + length - 1] + 1, number)
                done += length

    def _words(self, text: str) -> Iterator[tuple[str, list[int]]]:
        """(word, the place in the text of each of its characters). The vocabulary's marks, as [SEP], are words."""
        start = 0
        for mark in self._marks.finditer(text):
            yield from _plain_words(text, start, mark.start())
            yield mark[0], [*range(*mark.span())]
            start = mark.end()
        yield from _plain_words(text, start, len(text))

    def _divided(self, word: str) -> list[tuple[int, int]]:
        """(number, characters) of each of a word's pieces: always the longest that the vocabulary has."""
        pieces, start = [], 0
        if len(word) > LONGEST_WORD:
            return [(self._unknown, len(word))]
        while start < len(word):
            ends = range(len(word), start, -1)
            found = ((end, self._ids.get("##" * (start > 0) + word[start:end])) for end in ends)
            end, id = next(((end, id) for end, id in found if id is not None), (0, None))
            if id is None:
                return [(self._unknown, len(word))]
            pieces.append((id, end - start))
            start = end
        return pieces


def _plain_words(text: str, start: int, end: int) -> Iterator[tuple[str, list[int]]]:
    """The words between two places: parted by blanks, and each sign of punctuation and ideograph by itself."""
    word, places = "", []
    for place in range(start, end):
        for sign, is_word in _normal(text[place]):
            if is_word and word:
                yield word, places
                word, places = "", []
            if not is_word:
                word, places = word + sign, [*places, place]
            elif sign != " ":
                yield sign, [place]
    if word:
        yield word, places


@lru_cache(maxsize=4096)
def _normal(sign: str) -> tuple[tuple[str, bool], ...]:
    """What stands for a character, in lower case without accents, and whether each ends the word before it."""
    if sign.isspace() and (unicodedata.category(sign) != "Cc" or sign in "\t\n\r"):
        return ((" ", True),)
    if sign in "\0\ufffd" or unicodedata.category(sign) in ("Cc", "Cf", "Co", "Cs"):
        return ()
    plain = (each for each in unicodedata.normalize("NFD", sign) if unicodedata.category(each) != "Mn")
    alone = any(first <= ord(sign) <= last for first, last in _IDEOGRAPHS)
    return tuple((low, alone or _is_punctuation(low)) for each in plain for low in each.lower())


def _is_punctuation(sign: str) -> bool:
    return sign in string.punctuation or unicodedata.category(sign)[0] == "P"
