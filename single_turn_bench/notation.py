r"""One notation for answers: LaTeX, plain text and Unicode that mean the same become the same LaTeX.

    \dfrac 34            -> \frac{3}{4}
    10,\!080             -> 10,080
    15\mbox{ cm}^2       -> 15 cm^2
    x ∈ [−2, 7]          -> x \in [-2, 7]
    (3*sqrt(5))/7        -> (3\cdot \sqrt{5})/7

Nothing here knows mathematics: units, lists and values are read by the modules that compare.
"""

from __future__ import annotations

import re

from single_turn_bench.characters import FOREIGN, plain_characters
from single_turn_bench.scan import balanced, brace_arguments, brace_groups

MAX_CHARS = 2_000  # longer answers are compared as text only

UNICODE = str.maketrans(
    {
        "−": "-", "–": "-", "—": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "÷": "/", "∕": "/", "⁄": "/",
        "π": r"\pi ", "∞": r"\infty ", "√": r"\sqrt ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "≈": r"\approx ",
        "∈": r"\in ", "∪": r"\cup ", "∩": r"\cap ", "∅": r"\emptyset ", "±": r"\pm ", "∓": r"\mp ", "°": r"^\circ ",
        "²": "^2", "³": "^3", "½": r"\frac{1}{2}", "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}", "θ": r"\theta ",
        "α": r"\alpha ", "β": r"\beta ", "φ": r"\varphi ", "λ": r"\lambda ", "∠": r"\angle ", "…": r"\dots ",
        "“": '"', "”": '"', "’": "'", "‘": "'", "„": '"', "«": '"', "»": '"', "\u00a0": " ", "\u2009": " ",
        "\u202f": " ", "⩽": r"\le ", "⩾": r"\ge ", "≦": r"\le ", "≧": r"\ge ", "∣": "|", "∖": r"\setminus ",
        "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "ℚ": r"\mathbb{Q}", "℃": " C", "℉": " F",
        "⟨": "(", "⟩": ")", "∧": r"\land ", "∨": r"\lor ", "⊤": r"\top ",
        "£": "$", "€": "$", "¥": "$", "¢": " cents ", "₹": "$",
    }
)  # fmt: skip

FUNCTIONS = "arcsin|arccos|arctan|sinh|cosh|tanh|sin|cos|tan|cot|sec|csc|log|ln|exp|gcd|lcm"
CONSTANTS = "pi|infty|theta|alpha|beta|gamma|lambda|varphi|phi|omega"

ANGLE = r"(?:\d+(?:\.\d+)?|\\?[A-Za-z]+)"
DEGREE = r"(?:\^\s*(?:\\(?:circ|degree)(?![a-z])|\{\s*\\(?:circ|degree)\s*\})|\\degrees?(?![a-z]))"

BASES = "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen".split()
BASE_NAMES = {word: number for number, word in enumerate(BASES, 2)} | {
    "binary": 2, "ternary": 3, "octal": 8, "decimal": 10, "hexadecimal": 16, "hex": 16
}  # fmt: skip
BASE = rf"(?P<%s>\d{{1,2}}|(?:{'|'.join(sorted(BASE_NAMES, key=len, reverse=True))})(?![A-Za-z]))"
# 52_{(8)}, 52_{ eight }, 52_ base 8; 52 (base 8), 52 in base eight
IN_BASE = re.compile(
    rf"_\s*(?P<open>\{{)?\s*\(?\s*(?:base[\s-]*)?{BASE % 'index'}\s*\)?\s*(?(open)\}})"
    rf"|(?<=[\w)}}])\s*\(?\s*(?:\bin\s+)?\bbase[\s-]*{BASE % 'words'}\s*\)?\s*$",
    re.I,
)
SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
# Upright letters behind a value are a unit, and no variable: 5\text{ m}, 2\pi\,\mathrm{s}.
UPRIGHT = {
    "m": "meters", "g": "grams", "s": "seconds", "h": "hours", "L": "liters", "J": "joules", "N": "newtons",
    "W": "watts", "V": "volts",
}  # fmt: skip
UPRIGHT_WORD = r"\\(?:text|mathrm|mbox|rm)\s*\{\s*([A-Za-z]+)\s*\}\s*((?:\^\s*(?:\d|\{\s*-?\d\s*\}))?)"
UNIT_QUOTIENT = re.compile(rf"\\[dt]?frac\s*\{{\s*{UPRIGHT_WORD}\s*\}}\s*\{{\s*{UPRIGHT_WORD}\s*\}}")
BEHIND_VALUE = re.compile(r"(?:[\d})]|\\pi)(?:\s|~|\\[,;: !])*$")

# ]0, 1] as half the world writes (0, 1]
OUTWARD = re.compile(r"(?:^|\\in)\s*\]|\[\s*$")
BETWEEN = re.compile(r"([\[\]])([^\[\],]*,[^\[\],]*)([\[\]])")
OR = re.compile(r"(?<![A-Za-z\\]),?\s*or(?![a-z])")
BOUNDS = re.compile(r"[<>]|\\(?:le|ge|ne)(?![a-z])")


def alternatives(match: re.Match) -> str:
    r"""`x < 2 or x > 3` keeps its "or", as \lor; "and" and a comma may also say that both hold."""
    parts = OR.split(match.group())
    return r" \lor ".join(parts) if all(map(BOUNDS.search, parts)) else match.group()


# In order; each is (pattern, replacement) on the text that the ones before it left.
STEPS = [
    # words of another script around a number: 共 42 个苹果, 42\\text{ 元}
    (rf"(?<=[\d)}}\]%])\s*(?:\\(?:text\w*|mathrm|mbox)\s*\{{\s*)?[{FOREIGN}][^\d\\$=<>(){{}}\[\],;]*\}}?\s*$", ""),
    (rf"^\s*[{FOREIGN}\s]+(?=[-+]?[$€£¥₹]?\d)", ""),
    (r'\\?"', " "),
    (r"(?<![A-Za-z])(?:[Rr]s\.?|INR|USD|EUR|GBP|US(?=\s*\\*\$))\s*(?=[\\$]*\s*-?[\d.])", " "),  # ₹ and $ go below
    (r"(?<=\d)\s*/-$", ""),  # Rs 500/-
    (r"&(lt|gt|le|ge);", r"\\\1 "),
    (r"\\+\$", " "),  # \$ is money
    (r"(?<!\\)\\[()\[\]]", " "),  # \( \) \[ \] delimit mathematics
    (r"\$", " "),
    (r"\\(?:displaystyle|textstyle|limits|boldsymbol|m?left(?![a-z])\.?|m?right(?![a-z])\.?|middle(?![a-z]))", " "),
    (r"\\(?:[bB]igg?[lrm]?)(?![a-z])", " "),
    (r"\\(?:text)?color\s*\{[^{}]*\}", " "),
    (r"(?<=\d)\s*([ap])\.\s?m(?![A-Za-z])\.?", r" \1m"),
    (r"(?<=\d):00(?=\s*(?i:[ap]m)(?![A-Za-z]))", ""),
    (r",\s*\\!\s*", ","),
    (r"\s*\{\s*,\s*\}\s*", ","),
    (r"(?<=\d)\\[,;: ](?=\d{3})", ""),  # 10\,080
    (r"\\!", ""),
    (r"~=|\\(?:simeq|cong)(?![a-z])", r"\\approx "),
    (r"(?<!\\)\\(?:[,;:> ]|q?quad|[hv]space\{[^{}]*\}|phantom\{[^{}]*\})|(?<!\\)~", " "),
    (r"\\[dtc]frac(?![a-z])", r"\\frac"),
    (r"\\[dt]binom(?![a-z])", r"\\binom"),
    (r"\{([^{}\\]*)\\choose(?![a-z])\s*([^{}\\]*)\}", r"\\binom{\1}{\2}"),
    # the degrees of an angle do not matter, those of \sin 30^\circ do
    (
        rf"(?<=\\)((?:sin|cos|tan|cot|sec|csc)(?![a-z])\s*(?:\^\s*\{{?\s*\d\s*\}}?\s*)?[({{]*\s*)(-?{ANGLE})\s*{DEGREE}",
        r"\1(\2\\cdot\\frac{\\pi}{180})",
    ),
    (DEGREE, " "),
    (r"\\(?:lbrace|lgroup)(?![a-z])", r"\\{"),
    (r"\\(?:rbrace|rgroup)(?![a-z])", r"\\}"),
    (r"\\langle(?![a-z])", "("),
    (r"\\rangle(?![a-z])", ")"),
    (r"\\[lr]?vert(?![a-z])|\\mid(?![a-z])", "|"),
    (r"\\(?:lt)(?![a-z])", "<"),
    (r"\\(?:gt)(?![a-z])", ">"),
    (r"\\(?:leqslant|leqq|leq|le)(?![a-z])|<=", r"\\le "),
    (r"\\(?:geqslant|geqq|geq|ge)(?![a-z])|>=", r"\\ge "),
    (r"\\(?:neq|ne)(?![a-z])|!=", r"\\ne "),
    (r"\\(?:wedge|land)(?![a-z])", r"\\land "),
    (r"\\(?:vee|lor)(?![a-z])", r"\\lor "),
    (r"(?s)^.*(?<![A-Za-z\\])or(?![a-z]).*$", alternatives),
    (r"(?<=[)\]])\s*U\s*(?=[(\[])", r" \\cup "),
    (r"(^|=)\s*<([^<>=]*,[^<>=]*)>\s*$", r"\1(\2)"),
    (r"(?<![A-Za-z\\])abs\s*\(([^()]*)\)", r"|\1|"),
    (r"\\(?:R|reals?)(?![A-Za-z])|\\Bbb\s*\{?\s*R\s*\}?", r"\\mathbb{R}"),
    (r"\\mathbb\s*\{?\s*([RZNQC])\s*\}?", r"\\mathbb{\1}"),
    (r"\\(?:smallsetminus|backslash)(?![a-z])", r"\\setminus "),
    (r"\\varnothing(?![a-z])", r"\\emptyset "),
    (r"\\(?:overline|overrightarrow|vec)\s*\{\s*([A-Z]{1,3})\s*\}", r"\1"),
    (r"\\colon(?![a-z])", ":"),
    (r"\*\*", "^"),
    (r"\*", r"\\cdot "),
    (rf"(?<![\\A-Za-z])(sqrt|{CONSTANTS})(?![A-Za-z])", r"\\\1 "),
    (r"(?<![A-Za-z])a(?=(?:sin|cos|tan)h?\s*(?:[({]|\\left))", "arc"),  # sympy's names
    (r"(?<![\\A-Za-z])factorial(?=\([A-Za-z\d]+\))(\([A-Za-z\d]+\))", r"\1!"),
    (rf"(?<![\\A-Za-z])({FUNCTIONS})(?![A-Za-z])(?=\s*[({{^\\\w])", r"\\\1 "),  # "30 sec" is no secant
    (r"(?<![\\A-Za-z])(?:infinity|inf)(?![A-Za-z])", r"\\infty "),
    (r"\+\s*\\infty", r"\\infty "),
    (r"(?<![A-Za-z\\]),?\s*(?:and|or)(?![a-z])", ", "),
    (r"\s*\\?%|\s*(?<![A-Za-z])(?:per\s?cent(?:age)?|pct)(?![A-Za-z])", r"\\%"),
    (r"\^\s*(-?\d{2,}|-\s*\w)", r"^{\1}"),  # plain text: 2^10, x^-1
    (r"(?<![\d.])(\d+)\s+(\d+)/(\d+)(?!\d|\.\d)", r"\1\\frac{\2}{\3}"),  # 3 1/2
    (r"\s+", " "),
]
COMPILED = [(re.compile(pattern), replacement) for pattern, replacement in STEPS]

STYLED = re.compile(
    r"\\(?:text(?:bf|it|rm|sf|normal)?|mbox|hbox|math(?:rm|bf|it|sf|normal)|operatorname|underline)\s*\*?\s*"
    r"\{([^{}]*(?:\^\{-?\d\}[^{}]*)*)\}"
)
REPEATING = re.compile(  # not in another base: 0.\overline{12}_3
    r"(?<![\d.])(\d{0,20})\.(\d{0,40})\\(?:overline|bar)\s*\{?\s*(\d{1,40})(?!\d)\s*\}?(?!\s*\}?\s*_)"
)
OVER_ESCAPED = re.compile(r"\\{2,}(?=[a-zA-Z{}(\[])")
LEADING = ' \t\n\r,;:`"*='
TRAILING = ' \t\n\r,;:`"*.\\'


def normalize(answer: str) -> str:
    """The answer in the one notation. Over MAX_CHARS only its edges are trimmed."""
    text = trim(answer)
    if len(text) > MAX_CHARS:
        return text
    text = re.sub("[₀-₉]+", lambda match: f"_{{{match[0].translate(SUBSCRIPTS)}}}", text)  # a base, not digits
    text = plain_characters(text).translate(UNICODE)
    if "matrix" not in text and "array" not in text:  # where a doubled backslash is the end of a row
        text = OVER_ESCAPED.sub(r"\\", text)
    text = unbox(text)
    text = UNIT_QUOTIENT.sub(r" \\text{\1}\2/\\text{\3}\4", text)
    for _ in range(2):  # \textbf{\text{...}}
        text = STYLED.sub(plain_words, text)
    for pattern, replacement in COMPILED:
        text = pattern.sub(replacement, text)
    text = IN_BASE.sub(in_base, text)
    if OUTWARD.search(text):
        text = BETWEEN.sub(lambda match: f"{'[('[match[1] == ']']}{match[2]}{'])'[match[3] == '[']}", text)
    text = REPEATING.sub(repeating_fraction, brace_arguments(brace_groups(text)))
    text = trim(text)
    # {1,3}: plain braces group, they are no set
    while text.startswith("{") and (inside := balanced(text, 0)) is not None and len(inside) + 2 == len(text):
        text = trim(inside)
    return text


def trim(text: str) -> str:
    return text.lstrip(LEADING).rstrip(TRAILING)


def plain_words(match: re.Match) -> str:
    r"""\text{ cm} becomes words; `\mathrm{e}`, `\text{E}` become the letter, `5\text{ m}` the word of its unit."""
    inside = match.group(1)
    upright = re.match(r"\\(?:text|mathrm|mbox)(?![a-z])", match.group()) and UPRIGHT.get(inside.strip())
    if upright and BEHIND_VALUE.search(match.string, max(0, match.start() - 40), match.start()):
        return f" {upright} "
    return inside if len(inside.strip()) == 1 else f" {inside} "


def in_base(match: re.Match) -> str:
    """The base of a number as an index of digits, whether it was a digit, a word or a note behind."""
    base = match["index"] or match["words"]
    if not re.search(r"\(|[A-Za-z]", match.group()):
        return match.group()  # \log_28 is \log_2 8
    return f"_{{{BASE_NAMES.get(base.lower(), base)}}}"


def repeating_fraction(match: re.Match) -> str:
    r"""0.1\overline{6} is \frac{15}{90}."""
    whole, fixed, period = match.groups(default="")
    top = int(whole + fixed + period) - int(whole + fixed or "0")
    return rf"\frac{{{top}}}{{{'9' * len(period)}{'0' * len(fixed)}}}"


def unbox(text: str) -> str:
    r"""\boxed{x} inside an answer is x."""
    for _ in range(4):
        match = re.search(r"\\(?:boxed|fbox|framebox)\s*\{", text)
        inside = balanced(text, match.end() - 1) if match else None
        if inside is None:
            return text
        text = text[: match.start()] + inside + text[match.end() + len(inside) + 1 :]
    return text
