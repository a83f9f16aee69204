"""A reply's text, made ready for the readers: thoughts left out, LaTeX's backslashes told from JSON's escapes."""

from __future__ import annotations

import re
from typing import Any

# LaTeX commands whose first letter is also a JSON escape: "\frac" in a model's JSON is no form feed.
_LATEX = frozenset(
    "backepsilon backprime backsim backslash bar barwedge bcancel because begin beta beth between bf big bigcap "
    "bigcirc bigcup bigg biggl biggr bigl bigoplus bigotimes bigr bigsqcup bigstar biguplus bigvee bigwedge binom "
    "blacksquare bm bmatrix bmod boldsymbol bot bowtie boxed boxminus boxplus boxtimes breve bullet bumpeq fbox "
    "flat floor footnotesize forall frac frown nRightarrow nVdash nabla natural ncong ne nearrow neg neq newcommand "
    "newline nexists ngeq ngtr ni nleq nless nmid nolimits nonumber not notag notin nparallel nprec nrightarrow "
    "nsim nsubseteq nsucc nsupseteq nu nvdash nwarrow rVert rangle rbrace rbrack rceil re rfloor rgroup rho right "
    "rightarrow rightharpoonup rightleftharpoons rightsquigarrow rm root rtimes rvert tag tan tanh tau tbinom text "
    "textbf textit textnormal textrm textsf textstyle texttt tfrac therefore theta thickapprox thinspace tilde "
    "times to top triangle triangledown triangleq triangleright".split()
)
# What is left of these without the n also begins a line of prose: "\ni" is LaTeX or a newline before "i".
_NEWLINE_OR_LATEX = frozenset("ne nexists ni nless nmid nparallel nsim nu".split())
_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{4}|([a-zA-Z]+)|.)", re.DOTALL)
_DOUBLED = re.compile(r"(?<!\\)(?:\\\\)+(?=[a-zA-Z])")
_ABBREVIATION = re.compile(r"\\n(?:i\.e|e\.g)\b")
_MARK = re.compile(r"\n|(?<!\\)\"|<(/?)think(?:ing)?>", re.IGNORECASE)


def spoken(text: str | None) -> str:
    """The text without what a reasoning model thinks aloud; "" for None.

    A block that is never closed goes on to the end. A closing tag alone ends a block that the prompt's template opened.
    A tag inside double quotes is something that is said.
    """
    if not isinstance(text, str):
        return ""
    kept: list[str] = []
    begin, thinking, quoted = 0, False, False
    for mark in _MARK.finditer(text):
        closing = mark.group(1)
        if closing is None:
            quoted = mark.group() == '"' and not quoted
        elif thinking or quoted:
            if closing and thinking:
                begin, thinking, quoted = mark.end(), False, False
        elif closing:
            kept.clear()
            begin = mark.end()
        else:
            kept.append(text[begin : mark.start()])
            thinking = True
    return "".join(kept) if thinking else "".join(kept) + text[begin:]


def escape_latex(text: str) -> str:
    """The text with each backslash doubled that JSON would misread. What is escaped rightly stays as it is."""
    single = any(m.group(1) and m.group(1)[0] not in "bfnrtu" for m in _ESCAPE.finditer(text))
    careful = not single and _DOUBLED.search(text) is not None  # a writer who doubles LaTeX's means a newline by \n

    def keep(match: re.Match) -> str:
        whole, letters = match.group(0), match.group(1)
        if letters is None:
            return whole if whole[1] in "\"'\\/u" else "\\" + whole
        if letters in _NEWLINE_OR_LATEX and (careful or _ABBREVIATION.match(text, match.start())):
            return whole
        if letters in _LATEX or letters[0] not in "bfnrt":
            return "\\" + whole
        return whole

    return _ESCAPE.sub(keep, text)


def storable(value: Any) -> Any:
    """The value with half surrogate pairs replaced in its strings: no store and no provider takes them."""
    if isinstance(value, str):
        clean = value.encode("utf-8", "replace").decode()
        return value if clean == value else type(value)(clean)
    if isinstance(value, list):
        return [storable(item) for item in value]
    if isinstance(value, dict):
        return {storable(key): storable(item) for key, item in value.items()}
    return value
