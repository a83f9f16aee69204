r"""Right and wrong answers built from gold answers, graded by this grader and by math-verify: how often each is wrong.

    python -m benchmarks.grading_pairs [--path FOLDER] [--seed 0] [--show 20] [--json FILE] [--quick]

A perturbation changes what the gold answer says (one more, a sign, an order, a bracket, a base, the power of a unit, a
rounding to 2 or 3 decimals); a rewrite says the same (sympy's notations, decimals, spacing, prose around it, a chain
or a sum that ends in it). The gold answers are those of math500, aime24, aime25, gsm8k and warmup, of which those that
are absent are left out, and made ones of kinds that these lack. --show: pairs graded wrongly; --quick: a fourth of the
pairs, without math-verify, which takes most of the time.
"""

from __future__ import annotations

import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.lines import Lines, lines_parser
from core.errors import UserError
from single_turn_bench.datasets import load_rows
from single_turn_bench.equivalence import MathGrader, grade_response

DATASETS = ("math500", "aime24", "aime25", "gsm8k", "warmup")
MOST = 500  # gold answers of one dataset
PER_KIND = 2  # pairs of one kind from one gold answer
INTEGER = re.compile(r"(?<![\\A-Za-z\d.])\d+(?![\d.])")
INTERVAL = re.compile(r"^(?:x \\in )?(?:\\left)?\s*([(\[])(.*?)(?:\\right)?\s*([)\]])$")
BASED = re.compile(r"^(-?\w+)_\{?(\d+)\}?$")
UNIT = re.compile(r"^(.*\d)\s*\\(?:text|mbox)\{\s*([a-z]+)\}\^(\d)$")
PROSE = (
    "Therefore, the answer is ${}$.",
    "So the final answer is: ${}$",
    "**Final Answer:** ${}$",
    "### Solution\nWe work it out in 3 steps.\n\n**Answer: ${}$**",
    "After 2 checks we get\n\\[\n{}\n\\]",
    "Hence \\(\\boxed{{{}}}\\), as 1 + 1 = 2 shows.",
    "$$\\boxed{{ {} }}$$\nThis was problem 7.",
    "The final answer is \\({}\\). I hope it is correct.",
    "<think>Perhaps $\\boxed{{0}}$?</think>\nThe answer is $\\boxed{{{}}}$.",
    "1. First step.\n2. Second step.\n\nThus the answer is\n$$\n{}\n$$",
    "Final Answer: The final answer is ${}$. I hope it is correct.",
    "#### {}",
    "The answer is **${}$**.",
    "The final answer is $\\boxed{{{}}}$. Let me know if you have 2 more questions.",
    "$$x = 3$$\nand so on. Answer: \\({}\\)",
    "**Step 1:** 2 + 3 = 5.\n**Step 2:** 5 + 4 = 9.\n\n**Final answer:** \\(\\boxed{{{}}}\\)",
    "The answer is: {}",
    "Answer: {}",
    "{}",
    "It follows that the answer must be ${}$, since 2 + 2 = 4.",
    "Therefore ${}$ is the answer.",
    "Hence we find ${}$.",
    "\\begin{{align*}}x &= 1 \\\\ &= 2\\end{{align*}}\nAnswer: ${}$",
    "The answer is ${}$ because 3 + 4 = 7.",
    "The answer is ${}$ (see step 2).",
    "The final answer is **{}**",
    "**Answer:** {}",
    "Adding 3 and 4 gives 7.\n\n**${}$**",
    "After checking 3 cases, we conclude that the desired value is ${}$.",
)


@dataclass(frozen=True)
class Pair:
    """response: what a model wrote, with a box or in prose; right: what a grader should say."""

    kind: str
    gold: str
    response: str
    right: bool


def made_golds(rng: random.Random) -> Iterator[str]:
    """Kinds that the datasets hold few of: huge and tiny values, bases, trigonometry, units, words, lists, sets."""
    for _ in range(12):
        a, b, c = rng.randrange(2, 10), rng.randrange(20, 400), rng.randrange(2, 99)
        yield from (f"{a}^{{{b}}}", f"{a}^{{{b}}} - {c}", rf"\frac{{{c}}}{{{b}!}}", rf"\binom{{{b}}}{{{a}}}", f"{b}!")
        yield from (f"-{rng.randrange(1, 6)}21_{{{rng.randrange(7, 10)}}}", f"{rng.randrange(2, 6)}04_8")
        yield from (rf"\frac{{\sqrt{{{c}}}}}{{{b}}}", rf"{a}\pi^2", rf"\frac{{{b}\pi}}{{{c + 1}}}", f"e^{{{a}}}")
        yield from (rf"{c} \text{{ cm}}^2", rf"{b}\text{{ m}}^3", f"{c}m^2", rf"{b}\%", rf"\$ {b}.50", f"{b}.{c}5")
        yield from (f"{a}, {c + 10}, {b + 100}", f"({a}, {c + 10})", rf"\{{{a}, {c + 10}, {b + 100}\}}")
        yield from (rf"[{a}, {c + 10})", rf"(-\infty, {-a}] \cup ({c}, \infty)", f"{a * c},{b + 500},000", "0, 1")
        yield from (f"{a}x^2 - {c}x + {b}", rf"\frac{{{a}x}}{{x + {c}}}", rf"{a} + {c}i", f"y = {a}x + {c}", f"x = {c}")
    yield from (
        r"\sin 30^\circ",
        r"\cos 36^\circ",
        r"2\tan(15^\circ)",
        r"\log_2 3",
        r"\ln 10",
        r"\arctan 2",
        r"e^{100}",
    )
    yield from ("AAS", "SSA", r"\text{AAS}", r"\text{odd}", r"\text{Tuesday}", r"\text{(C)}", r"\text{June 20}")


def perturbed(gold: str, rng: random.Random) -> Iterator[tuple[str, str]]:
    """(kind, wrong answer), of each kind all that there are."""
    plain = re.sub(r",\\!\s*", ",", gold)
    yield from changed_value(gold, plain)
    yield from changed_group(plain)
    if re.fullmatch(r"(?:\\text\{)?[A-Z]{3,}\}?", plain):
        letters = re.sub(r"\\text|[{}]", "", plain)
        yield from (("order", "".join(swap)) for swap in (letters[1:] + letters[0], letters[0] + letters[:0:-1]))
    elif is_word(gold) and rng.random() < 0.5:
        yield "word", r"\text{neither}"
    if based := BASED.match(plain):
        yield "base", f"{based[1]}_{int(based[2]) + 1}"
        yield "base", f"{based[1]}_{{{int(based[2]) - 1}}}"
        yield "sign", plain[1:] if plain.startswith("-") else f"-{plain}"
    if unit := UNIT.match(plain):
        yield "unit power", rf"{unit[1]} \text{{ {unit[2]}}}^{int(unit[3]) + 1}"
        yield "unit power", rf"{unit[1]}\text{{ {unit[2]}}}"
    elif re.fullmatch(r"\d+m\^2", plain):
        yield "unit power", plain[:-1] + "3"


def changed_value(gold: str, plain: str) -> Iterator[tuple[str, str]]:
    """One more, one less, another sign, and a rounding of an exact value to 2 or 3 decimals."""
    value_part = plain.partition("_")[0] if BASED.match(plain) else plain
    for match in INTEGER.finditer(re.sub(r"(?<=\d),(?=\d{3})", "", value_part)):
        text = re.sub(r"(?<=\d),(?=\d{3})", "", value_part)
        more = f"{text[: match.start()]}{int(match[0]) + 1}{text[match.end() :]}{plain[len(value_part) :]}"
        if not re.search(r"\.\d*$", text[: match.start()]):
            yield "+1", more
    if (exact := value(gold)) is not None:
        yield "+1", f"{plain} + 1"
        yield "+1", f"{plain} - 1"
        if exact != 0:
            yield "sign", plain[1:] if plain.startswith("-") and exact.is_number and "+" not in plain else f"-({plain})"
        if (
            exact.is_number
            and exact.is_real
            and not exact.is_Float
            and not exact.is_integer
            and 1e-3 < abs(exact) < 1e6
        ):
            for decimals in (2, 3):
                rounded = f"{float(exact):.{decimals}f}"
                if abs(float(exact) - float(rounded)) > 1e-6 and not re.search(r"\.\d", gold) and "%" not in gold:
                    yield "rounding", rounded
    for match in re.finditer(r"(?<=[\w})] )[+-](?= [\w\\])|(?<=[\w})])[+-](?=[\w\\])", plain):
        yield "sign", plain[: match.start()] + {"+": "-", "-": "+"}[match[0]] + plain[match.end() :]


def changed_group(plain: str) -> Iterator[tuple[str, str]]:
    """Of tuples, intervals, fractions and lists: another order, bracket, sign or number of items."""
    if pair := INTERVAL.match(plain):
        opener, inside, closer = pair.groups()
        items = [item.strip() for item in inside.split(",")]
        if len(items) > 1 and not re.search(r"[()\[\]]", inside):
            if items != items[::-1]:
                yield "order", f"{opener}{', '.join(items[::-1])}{closer}"
            if len(items) == 2:
                yield "bracket", f"{'[('[opener == '[']}{inside}{closer}"
                yield "bracket", f"{opener}{inside}{'])'[closer == ']']}"
            moved = f"-{items[0]}" if not items[0].startswith("-") else items[0][1:]
            if items[0].strip("-") != "0" and "infty" not in items[0]:
                yield "sign", f"{opener}{', '.join([moved, *items[1:]])}{closer}"
    if fraction := re.fullmatch(r"(-?)\\d?frac\{(\d+)\}\{(\d+)\}", plain):
        yield "order", rf"{fraction[1]}\frac{{{fraction[3]}}}{{{fraction[2]}}}"
    if re.fullmatch(r"\d+(, \d+)+", plain):
        yield "items", plain.rpartition(",")[0]
        yield "items", f"{plain}, 1000"
        yield "items", re.sub(r"\d+$", "1,000,000", plain)


def rewritten(gold: str, rng: random.Random) -> Iterator[tuple[str, str]]:
    """(kind, right answer as a bare answer)."""
    import sympy

    yield "spacing", re.sub(r"\s*([+=<>]|\\cup)\s*", r"  \1 ", gold)
    if "\\text" not in gold:
        yield "spacing", re.sub(r"(?<![\\\w])\s*([()\[\]])", r"\1 ", gold).replace(",", ", " if "(" in gold else ",")
        yield "spacing", re.sub(r"(?<!\d)(?<!\\) (?![A-Za-z])", r" \\, ", gold)
    yield "notation", gold.replace(r"\frac", r"\dfrac").replace(r"\ddfrac", r"\dfrac")
    yield (
        "notation",
        gold.replace("(", r"\left(")
        .replace(r"\left\left(", r"\left(")
        .replace(")", r"\right)")
        .replace(r"\right\right)", r"\right)")
        if re.fullmatch(r"[^\[\]\\]*\([^\[\]\\]*\)[^\[\]\\]*", gold)
        else gold,
    )
    exact = value(gold)
    if exact is None:
        return
    has_dot = exact.has(sympy.Float)
    if not has_dot:
        yield "sympy", sympy.latex(exact)
        yield "sympy", sympy.latex(exact, **rng.choice(LATEX))
        yield "sympy", str(exact) if not exact.has(sympy.I) else sympy.latex(exact)
        if exact.free_symbols:
            yield "sympy", sympy.latex(rng.choice((sympy.factor, sympy.expand, sympy.together))(exact))
    if exact.is_number and exact.is_real:
        if exact.is_Integer and abs(exact) < 10**12:
            number = int(exact)
            first = rng.randrange(1, 50)
            yield "sum", f"m+n = {number}"
            yield "sum", f"p + q + r = {number}"
            yield "sum", f"m+n = {number - first} + {first} = {number}" if number > first else f"x = {number}"
            yield "decimals", f"{number}.0"
            yield "decimals", f"{number:,}" if abs(number) > 999 else f"{number}.00"
        elif not has_dot and 1e-3 < abs(exact) < 1e6 and "%" not in gold:
            number = float(exact)
            yield "decimals", f"{number:.{rng.randrange(6, 11)}f}"
            if abs(number * 100 - round(number * 100)) > 1e-9:
                yield "approximation", rf"{gold} \approx {number:.2f}"
                yield "approximation", rf"x = {gold} \approx {number:.{rng.randrange(1, 5)}f}"
    if not re.match(r"^[a-z] =|.*=", gold):
        yield "named", f"x = {gold}" if not exact.free_symbols else rf"f(x) = {gold}"


LATEX = (
    {"fold_short_frac": True},
    {"mul_symbol": "times"},
    {"mul_symbol": "dot"},
    {"root_notation": False},
    {"fold_frac_powers": True},
    {"order": "rev-lex"},
    {"ln_notation": True},
    {"inv_trig_style": "full"},
    {"long_frac_ratio": 1},
)


def is_word(gold: str) -> bool:
    return re.fullmatch(r"(?:\\text\{)?\(?[A-Za-z ]{2,}\)?\}?", gold) is not None


@cache
def value(gold: str):
    """The gold answer as a sympy expression, or None where it is none (lists, words, bases, units, relations)."""
    import sympy
    from latex2sympy2_extended import latex2sympy

    text = re.sub(r",\\!\s*|(?<=\d),(?=\d{3})", "", gold)
    if is_word(text) or re.search(
        r"[,=_;]|\\(?:text|mbox|in|cup|pm|begin|circ|%|\$)(?![a-z])|[\[\]%$]", text.replace(r"\log_", "")
    ):
        return None
    text = (
        re.sub(r"(\d+)\s*\\frac\s*\{?(\d)\}?\{?(\d)\}?$", r"(\1+\\frac{\2}{\3})", text) if INTEGER.match(text) else text
    )
    try:
        with sympy.evaluate(True):
            parsed = latex2sympy(text, is_real=True)
    except Exception:  # noqa: BLE001  the parser raises bare Exception on text outside its grammar
        return None
    if not isinstance(parsed, sympy.Expr):
        return None
    parsed = parsed.replace(lambda part: part.func is sympy.log and len(part.args) == 2, lambda part: part.doit())
    return parsed.subs(sympy.Symbol("i", real=True), sympy.I)


def pairs(golds: list[str], seed: int) -> list[Pair]:
    """At most PER_KIND pairs of each kind from each gold answer; half of the answers in a box, half in prose."""
    found = []
    for gold in dict.fromkeys(golds):
        rng = random.Random(f"{seed}:{gold}")
        for right, answers in ((False, perturbed(gold, rng)), (True, rewritten(gold, rng))):
            by_kind: dict[str, list[str]] = {}
            for kind, answer in answers:
                by_kind.setdefault(kind, []).append(answer)
            for kind, texts in by_kind.items():
                texts = list(dict.fromkeys(texts))
                for text in rng.sample(texts, min(PER_KIND, len(texts))):
                    frame = rng.choice(PROSE) if rng.random() < 0.5 else r"\boxed{{{}}}"
                    found.append(Pair(kind, gold, frame.format(text), right))
        found += [Pair("prose", gold, frame.format(gold), True) for frame in rng.sample(PROSE, PER_KIND)]
    return found


def math_verify(response: str, gold: str) -> bool:
    from math_verify import parse, verify

    return bool(verify(parse(f"${gold}$"), parse(response)))


def main() -> int:
    options = lines_parser(__doc__, quick=True)
    options.add_argument("--path", type=Path, help="a folder that holds the datasets' files")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--show", type=int, default=0, help="list this many pairs that this grader grades wrongly")
    given, lines = options.parse_args(), Lines()
    golds = []
    for name in DATASETS:
        try:
            golds += [row.answer for row in load_rows(name, None if name == "warmup" else given.path).rows][:MOST]
        except UserError:
            print(f"{name} is not here", file=sys.stderr)
    built = pairs([*golds, *made_golds(random.Random(given.seed))], given.seed)
    built = built[::4] if given.quick else built
    begun = time.monotonic()
    with MathGrader() as grader:
        ours = [grade_response(pair.response, pair.gold, grader) for pair in built]
        timeouts = grader.n_timeouts
    wall = time.monotonic() - begun
    theirs = [] if given.quick else [math_verify(pair.response, pair.gold) for pair in built]
    for right, label in ((False, "perturbed"), (True, "rewritten")):
        kinds = Counter(pair.kind for pair in built if pair.right is right)
        for kind, n in [*sorted(kinds.items()), ("all", kinds.total())]:
            rows = [i for i, pair in enumerate(built) if pair.right is right and kind in ("all", pair.kind)]
            wrong, of_theirs = (sum(graded[i] != right for i in rows) for graded in (ours, theirs or ours))
            note = f"math-verify {of_theirs}" if theirs else ""
            lines.add(f"{label}, {kind}: graded wrongly", wrong, 0, f"of {n}", note=note)
    lines.add("a pair", 1000 * wall / len(built), 30, "ms", note=f"{timeouts} timeouts")
    wrong = [pair for pair, verdict in zip(built, ours) if verdict != pair.right]
    for pair in wrong[: given.show]:
        print(f"{'reject' if pair.right else 'accept'} {pair.kind}: {pair.gold!r} {pair.response!r}")
    return lines.end(given.json)


if __name__ == "__main__":
    sys.exit(main())
