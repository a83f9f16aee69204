"""Prepare a reply's text for parsing and storing: LaTeX's backslashes told from JSON's escapes, no lone surrogates."""

from __future__ import annotations

import re
from typing import Any

from core.jsonl import in_strings

# LaTeX commands that begin like JSON's escapes \n, \r or \t. (Models do not use \b and \f as escapes.)
_LATEX = frozenset(
    "nRightarrow nVdash nabla natural ncong ne nearrow neg neq newcommand newline nexists ngeq ngtr ni nleq nless "
    "nmid nolimits nonumber not notag notin nparallel nprec nrightarrow nsim nsubseteq nsucc nsupseteq nu nvdash "
    "nwarrow rVert rangle rbrace rbrack rceil re rfloor rgroup rho right rightarrow rightharpoonup rightleftharpoons "
    "rightsquigarrow rm root rtimes rvert tag tan tanh tau tbinom text textbf textit textnormal textrm textsf "
    "textstyle texttt tfrac therefore theta thickapprox thinspace tilde times to top triangle triangledown triangleq "
    "triangleright".split()
)
# Commands that may also be a newline and the beginning of a word: "\ni" is LaTeX, or a newline before "i".
_NEWLINE_OR_LATEX = frozenset("ne nexists ni nless nmid nparallel nsim nu".split())
_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{4}|([a-zA-Z]+)|.)", re.DOTALL)
_DOUBLED = re.compile(r"(?<!\\)(?:\\\\)+(?=[a-zA-Z])")
_ABBREVIATION = re.compile(r"\\n(?:i\.e|e\.g)\b")


def escape_latex(text: str) -> str:
    """The text with each backslash doubled that JSON would misread. Correct escapes are not changed."""
    single = any(m.group(1) and m.group(1)[0] not in "nrtu" for m in _ESCAPE.finditer(text))
    careful = not single and _DOUBLED.search(text) is not None  # LaTeX's backslashes are doubled: \n is a newline

    def keep(match: re.Match) -> str:
        whole, letters = match.group(0), match.group(1)
        if letters is None:
            return whole if whole[1] in "\"'\\/u" else "\\" + whole
        if letters in _NEWLINE_OR_LATEX and (careful or _ABBREVIATION.match(text, match.start())):
            return whole
        if letters in _LATEX or letters[0] not in "nrt":
            return "\\" + whole
        return whole

    return _ESCAPE.sub(keep, text)


def without_surrogates(value: Any) -> Any:
    """The value with lone surrogates in its strings replaced, because stores and providers reject them."""
    return in_strings(value, lambda text: type(text)(text.encode("utf-8", "replace").decode()), keys=True)
