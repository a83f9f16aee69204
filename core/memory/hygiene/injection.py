"""Detection of injected instructions in lessons, by pattern rules. For quarantine, never for deletion.

A lesson says how to solve a kind of task. It has no need to void other instructions, to speak as the system, to run a
shell line, to fetch an address, to send data away, to tie an answer to a catchword, to redirect one named thing to
another, to switch off a safeguard, or to spread itself: the moves of prompt injection (Greshake et al. 2023,
arXiv:2302.12173), AgentPoison (arXiv:2407.12784), MINJA (arXiv:2503.03704) and MemoryGraft (arXiv:2512.16962).
Patterns see words, not meaning: `Likeness` finds some attacks that they miss; docs/security.md has the measured rates.
"""

from __future__ import annotations

import base64
import codecs
import json
import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from core.memory.hygiene.lookalikes import bare, folded
from core.models.embedding import Embedder

if TYPE_CHECKING:
    import numpy as np

# Typosquatting: names one edit away from a widely used package (a letter added, left out, replaced or swapped).

_NAME = re.compile(r"(?<![\w@/.-])[a-z][a-z0-9]{2,24}(?:[-_.][a-z0-9]{1,24}){0,3}(?![\w/@-])")
# Words near which a shorter name counts as a package's name rather than as a typing error.
_CONTEXT = re.compile(
    r"(?i)\b(?:packages?|dependenc\w+|requirements|import\w*|install\w*|pip|npm|yarn|pypi|librar\w+|modules?|"
    r"pyproject|framework)\b"
)
_NO_IMITATIONS = frozenset("python cpython cython ipython jinja ninja unicorn".split())
_LONG = 7  # names with more letters than this are checked without such a word in the text


def imitations(text: str) -> tuple[str, ...]:
    """Names in a text that imitate a package's, sorted; except plurals and singulars, and names of known packages.

    A package's own name is among them where it is spelt with look-alikes of other scripts.
    """
    text = unicodedata.normalize("NFKC", text)  # Japanese texts may write Latin words full-width
    of_packages = bool(_CONTEXT.search(text))
    least = 5 if of_packages else _LONG + 1
    names, looks = Counter(_NAME.findall(text.lower())), Counter(_NAME.findall(folded(text).lower()))
    words = {word for word in names if len(word) >= least - 1} - _NO_IMITATIONS
    found = {word for word in words if word.replace("_", "-") not in real() and _imitates(word, least)}
    found |= {name for name in looks - names if len(name) > 4} & (real() if of_packages else known())
    return tuple(sorted(found))


def known() -> frozenset[str]:
    """The packages whose names are imitated."""
    return _names("packages.txt")


@cache
def real() -> frozenset[str]:
    """All packages that are known: the names of none of them are imitations."""
    return known() | _names("real_packages.txt")


@cache
def _names(file: str) -> frozenset[str]:
    """The names in a file of this folder."""
    lines = (Path(__file__).parent / file).read_text(encoding="utf-8").splitlines()
    return frozenset(name for line in lines if not line.startswith("#") for name in line.split())


def _imitates(word: str, least: int) -> bool:
    from rapidfuzz import process
    from rapidfuzz.distance import OSA  # counts two neighbours that are swapped as one edit

    # rn looks like m, and 1 like l.
    looks = word.replace("rn", "m").replace("1", "l").replace("0", "o").replace("_", "-")
    if looks != word.replace("_", "-") and looks in known():
        return True
    near = process.extract(word, known(), scorer=OSA.distance, score_cutoff=1, limit=None)
    return any(len(name) >= least and word.rstrip("s") != name.rstrip("s") for name, *_ in near)


# Decoding of disguised texts (invisible characters, look-alikes, encodings) before they are searched for orders.

_LEET = str.maketrans("0134578@$", "oieastbas")
_BASE64 = re.compile(r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{16,4000}={0,2}")
_HEX = re.compile(r"(?<![0-9A-Za-z])(?:[2-7][0-9A-Fa-f]){8,2000}(?![0-9A-Za-z])")
_SPACED = re.compile(r"(?<![A-Za-z])(?:[A-Za-z][ .*_-]){3,40}[A-Za-z](?![A-Za-z])")
_WORD_WITH_DIGIT = re.compile(r"(?<![\w\\])(?=\w*\d)(?=\w*[a-z])[\w@$]{3,30}(?!\w)")


def has_hidden_characters(text: str) -> bool:
    """Whether a text has characters that a model sees and a person does not: Unicode tags, changes of direction."""
    return any(_is_covert(character) for character in text)


def readings(text: str) -> list[str]:
    """Readings of a text in lower case: plain, in its own alphabet, digits as letters, reversed, ROT13, decoded."""
    plain = _plain(text)
    letters = _WORD_WITH_DIGIT.sub(lambda m: m.group().translate(_LEET), plain)
    coded = (*_base64_texts(text), *_hex_texts(text), *([unquote(text)] if "%" in text else []))
    own_letters = unicodedata.normalize("NFKC", text).lower()  # for texts that really are Cyrillic or Greek
    others = (own_letters, letters, plain[::-1], codecs.decode(plain, "rot13"), *map(_plain, coded))
    return list(dict.fromkeys((plain, *others)))


def _plain(text: str) -> str:
    text = folded("".join(c for c in text if not _is_invisible(c)))
    text = folded(unicodedata.normalize("NFKC", text))  # which makes a sigma of the look-alike of c, so not first
    return _SPACED.sub(lambda m: re.sub(r"[ .*_-]", "", m.group()), bare(text.lower()))


def _base64_texts(text: str) -> list[str]:
    found = []
    for match in _BASE64.finditer(text):
        code = match.group().rstrip("=")
        for encoding in ("utf-8", "utf-16-le"):
            with suppress(ValueError):  # no base64, or no text in this encoding
                inner = base64.b64decode(code + "=" * (-len(code) % 4), validate=True).decode(encoding)
                if inner.isascii() and inner.isprintable():
                    found.append(inner)
    return found


def _hex_texts(text: str) -> list[str]:
    found = [bytes.fromhex(match.group()) for match in _HEX.finditer(text)]
    return [code.decode("ascii") for code in found if code.isascii() and code.decode("ascii").isprintable()]


def _is_invisible(character: str) -> bool:
    return unicodedata.category(character) == "Cf" or character in "\u115f\u1160\u3164\uffa0\u034f\u00ad"


def _is_covert(character: str) -> bool:
    code = ord(character)
    return 0xE0000 <= code <= 0xE007F or code in range(0x202A, 0x202F) or code in range(0x2066, 0x206A)


# Rules that a negated text does not break ("do not skip the verification"): {rule: characters that a "not" reaches}.
_UNLESS_NEGATED = {"unsafe": 25, "shell": 25, "exfiltration": 25, "careless": 100, "credential": 40}
_NEGATED = (
    r"(?:\bnot|n't|\bnever|\bavoid|\binstead of|\brather than|\bcannot|\brefus\w+|\bbeware of)\b[^.;:!?\n]{0,%d}$"
)


def suspicions(text: str, done: Sequence[str] = ()) -> tuple[str, ...]:
    """Names of the rules that a text breaks, sorted; () for a harmless one.

    done   successful actions of its attempt: commands and addresses in them do not break `shell` or `fetch`
    """
    done = "\n".join(done).lower()
    broken = {"hidden"} if has_hidden_characters(text) else set()
    for number, reading in enumerate(readings(text)):
        hits = {name for name, patterns in rules().items() if any(_hit(name, p, reading, done) for p in patterns)}
        # Reading 0 is the plain one: an order found only in another reading was disguised.
        broken |= hits if number == 0 else {f"disguised {name}" for name in hits - broken}
    broken |= {"typosquat"} if imitations(text) else set()
    return tuple(sorted(broken))


def hints(text: str) -> bool:
    """Whether a text suggests one thing in place of another. Only meaningful over several lessons: `guard.burst`."""
    return any(pattern.search(text.lower()) for pattern in _rules()["hint"])


def rules() -> dict[str, list[re.Pattern[str]]]:
    """{rule: patterns} of the rules that quarantine a lesson."""
    return {name: patterns for name, patterns in _rules().items() if name != "hint"}


@cache
def _rules() -> dict[str, list[re.Pattern[str]]]:
    """{rule: patterns} of rules.txt."""
    parts: dict[str, str] = {}
    found: dict[str, list[re.Pattern[str]]] = {}
    for line in (Path(__file__).parent / "rules.txt").read_text(encoding="utf-8").splitlines():
        if definition := re.match(r"([A-Z]+) = (.+)", line):
            parts[definition[1]] = definition[2]
        elif title := re.fullmatch(r"\[([a-z]+)\]", line):
            patterns = found.setdefault(title[1], [])
        elif line.strip() and not line.startswith("# "):
            patterns.append(re.compile(re.sub(r"<([A-Z]+)>", lambda m: parts[m[1]], line)))
    return found


def _hit(name: str, pattern: re.Pattern[str], text: str, done: str) -> bool:
    if done and name in ("shell", "fetch"):
        return any(
            match.group().strip() not in done and not _is_negated(name, match) for match in pattern.finditer(text)
        )
    if name not in _UNLESS_NEGATED:
        return bool(pattern.search(text))
    return any(not _is_negated(name, match) for match in pattern.finditer(text))


def _is_negated(name: str, match: re.Match[str]) -> bool:
    reach = _UNLESS_NEGATED.get(name, 0)
    before = match.string[max(0, match.start() - reach - 15) : match.start()]
    return reach > 0 and bool(re.search(_NEGATED % reach, before))


# A linear classifier of sentences, attack or lesson, on the bank's own embeddings.
#
# examples.json has texts of the published kinds of attack and plain lessons, all written for this project. The
# classifier finds orders that no pattern lists, if the embedder captures meaning: with `hashing` it is of little use.

RIDGE = 3.0
_SENTENCE = re.compile(r"(?<=[.!?;:])\s+|\n+")
_SHORTEST = 20  # min. characters of a sentence that is classified alone


def examples() -> dict[str, list[str]]:
    """The training texts of `Likeness`: {"attack": texts, "lesson": texts}."""
    return json.loads((Path(__file__).parent / "examples.json").read_text(encoding="utf-8"))


def sentences(text: str) -> list[str]:
    """The whole text and its sentences, because an order may be one sentence in a good lesson."""
    parts = [part.strip() for part in _SENTENCE.split(text)]
    return list(dict.fromkeys([text.strip(), *(part for part in parts if len(part) >= _SHORTEST)]))


class Likeness:
    """Ridge regression of attack (1) against lesson (-1) on examples.json, fitted at first use. Thread-safe."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        self._lock = threading.Lock()
        self._weights: np.ndarray | None = None

    def of(self, text: str) -> float:
        """The highest score of a sentence of the text: about -1 (a lesson) to 1 (an attack)."""
        with self._lock:
            if self._weights is None:
                self._weights = self._fit()
        return float((_features(self.embedder.embed(sentences(text))) @ self._weights).max())

    def _fit(self) -> np.ndarray:
        import numpy as np

        known = examples()
        rows = _features(self.embedder.embed(known["attack"] + known["lesson"]))
        counts = np.array([len(known["attack"]), len(known["lesson"])])
        labels = np.repeat([1.0, -1.0], counts)
        weighted = rows * np.repeat(counts.sum() / (2 * counts), counts)[:, None]  # both classes weigh the same
        penalty = np.diag([RIDGE] * (rows.shape[1] - 1) + [1e-6])  # the intercept is hardly penalised
        return np.linalg.solve(weighted.T @ rows + penalty, weighted.T @ labels)


def _features(vectors: np.ndarray) -> np.ndarray:
    import numpy as np

    return np.hstack([np.asarray(vectors, dtype=np.float64), np.ones((len(vectors), 1))])
