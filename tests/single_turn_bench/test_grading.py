"""What counts as the answer, and what counts as equal to it."""

import json
import sys
from pathlib import Path

import forkserver
import pytest

from single_turn_bench import grade_math
from single_turn_bench.answers import extract_answer
from single_turn_bench.equivalence import grade_response, shared_grader

ROOT = Path(__file__).resolve().parents[2]
PAIRS = ROOT.parent / "shared" / "data" / "grader_pairs"


@pytest.fixture(scope="module")
def grader():
    return shared_grader()


FOUND = [
    (r"so \boxed{\frac{1}{2}}.", r"\frac{1}{2}", "boxed"),
    (r"\boxed{3} was a slip, it is \boxed{4}", "4", "boxed"),
    (r"\fbox{7}", "7", "boxed"),
    (r"\boxed 5", "5", "boxed"),
    (r"$\boxed{\text{(C)}}$", r"\text{(C)}", "boxed"),
    (r"\boxed{\boxed{8}}", r"\boxed{8}", "boxed"),
    (r"\boxed{1} and \boxed{2}", "1, 2", "boxed"),
    (r"\boxed{42", "42", "boxed"),
    (r"\boxed{200} first. Final Answer: The final answer is $10,455$. I hope.", "$10,455$", "final_answer"),
    ("<think>so 3</think>\nThe answer is 4.", "4", "final_answer"),
    ("<Thinking>so \\boxed{3}</Thinking>\nThe answer is 4.", "4", "final_answer"),
    ("The final answer is 3.14.", "3.14", "final_answer"),
    ("**Final Answer**\n\n$12$\n", "$12$", "final_answer"),
    ("5 * 3 = <<5*3=15>>15\n#### 15", "15", "final_answer"),
    ("Final answer: the largest $n$ is 34", "34", "final_answer"),
    (r"2\sqrt{3}", r"2\sqrt{3}", "last_line"),
    ("Evelyn", "Evelyn", "last_line"),
    ("The answers are 1 and 2.", "1 and 2", "final_answer"),
    ("42\n\nI computed 6 times 7.", "42", "lone"),
    ("Six times 7.\n\nIt is 42 then, I think.", "42", "last_number"),
    (r"We conclude that $x \ge 5$ suffices for all of it.", r"$x \ge 5$", "last_math"),
    ("She pays $5 a day and then $7, so she pays $12 in all.", "12", "last_number"),
    ("", None, "none"),
    (" \n\t", None, "none"),
]  # fmt: skip


def test_the_answer_and_the_rule_that_found_it(subtests):
    for text, answer, rule in FOUND:
        with subtests.test(text=text):
            found = extract_answer(text)
            assert (found.answer, found.rule) == (answer, rule)


EQUAL = {
    "numbers": [
        (r"10,\!080", "10080"),
        ("58,500", "58500"),
        ("1 000", "1000"),
        (r"\$15,\!000", "15000"),
        (r"\text{(C)}", "C"),
        (r"90^\circ", "90"),
        (r"50\%", "50"),
        (r"33.5\%", "0.335"),
        (r"5.4 \text{ cents}", "5.4"),
        (r"15\mbox{ cm}^2", "15"),
        (r"\frac 34", r"\frac{3}{4}"),
        (r"2\frac12", "2.5"),
        ("3 1/2", "7/2"),
        (r"2\sqrt3", r"\sqrt{12}"),
        ("-1 + sqrt(3)", r"\sqrt{3} - 1"),
        ("(3*sqrt(5))/7", r"\frac{3\sqrt{5}}{7}"),
        ("π/4", r"\frac{\pi}{4}"),
        ("033", "33"),
        ("1.5*10^3", "1500"),
        (r"0.1\overline{6}", r"\frac16"),
    ],
    "equations and expressions": [
        ("x=5", "5"),
        ("5", "x=5"),
        (r"x = 5+5+1 = 11", "x = 11"),
        (r"x\in[-2,7]", "[-2,7]"),
        (r"-2 \le x \le 7", r"x \in [-2,7]"),
        (r"x<2 \text{ or } x>3", r"(-\infty,2)\cup(3,\infty)"),
        ("y = 2x + 3", "2x+3"),
        ("y=2x-5", "2x-y=5"),
        ("2 > x", "x < 2"),
        ("x^2+2x+1", "(x+1)^2"),
        (r"\tan^2(y)+1", r"\sec^2(y)"),
        (r"e^{i\pi}", "-1"),
        (r"\sqrt{-4}", "2i"),
        ("0.333333333", r"\frac13"),
        ("2.6667", r"\frac83"),
        ("1.41421356", r"\sqrt2"),
    ],
    "spellings": [
        ("2,74", "2.74"),
        ("2,74 m", "2.74"),
        ("1.234,56", "1234.56"),
        ("1.234,56 euros", "1234.56"),
        ("1 000,5", "1000.5"),
        ("«5»", "5"),
        (r"\color{red}{5}", "5"),
        (r"{\color{blue}5}", "5"),
        (r"\textcolor{red}{\frac12}", "1/2"),
        (r"\underline{5}", "5"),
        ("12:30 p.m.", "12:30"),
        ("12:30 p.m.", "12:30 pm"),
        ("2,74 Euro", "2.74"),
        ("3,5 km per hour", "3.5"),
        ("2,0 m", "2"),
        ("1,-2", "-2,1"),
        (r"\{3,2,1\}", "1, 2, 3"),
        (r"1 \pm \sqrt{2}", r"1+\sqrt2, 1-\sqrt2"),
        ("(p,q) = (3,2)", "(3,2)"),
        ("p=5,q=2;p=7,q=2", "(5,2),(7,2)"),
        (r"k = 45 \text{ and } n = 2", "(45, 2)"),
        ("1,3", "(1,3)"),
        (r"\begin{bmatrix}1 & 2\\3 & 4\end{bmatrix}", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"),
        (r"\begin{pmatrix}0.5\\2\end{pmatrix}", r"\begin{pmatrix}1/2\\2\end{pmatrix}"),
        ("Tuesday", r"\text{tuesday}"),
        ("52", "52_8"),
        (r"7 \pmod{12}", "7"),
        (r"\varnothing", r"\emptyset"),
    ],
    "large numbers, units, angles and functions": [
        (r"\binom{2026}{1013}", r"\frac{2026!}{(1013!)^2}"),
        (r"2024^{4046}", r"(2024^{2023})^2"),
        (r"\frac{4}{2 \cdot 2004!}", r"\frac{2}{2004!}"),
        (r"\sqrt{5+2\sqrt6} - \sqrt2 - \sqrt3", "0"),
        ("1,000,000", "1000000"),
        ("x = 58,500", "58,500"),
        ("0 + 58,500", "58,500"),
        ("12,000 + 30,000 = 42,000", "42,000"),
        ("-221_8", "-221_{8}"),
        ("15 square cm", r"15\mbox{ cm}^2"),
        ("864 in^2", r"864 \mbox{ inches}^2"),
        ("3m^2", "3"),
        (r"\sin 30^\circ", r"\frac12"),
        (r"\frac{\sin^2 45^{\circ}}{2}", r"\frac14"),
        (r"\tan(22.5°)", r"\sqrt2 - 1"),
        (r"\frac97 \approx 1.29", r"\frac97"),
        (r"x = \frac{14}{3} \approx 4.67", "4.67"),
        ("266.6667", r"\frac{800}{3}"),
        ("0.001990", r"\frac{2}{1005}"),
        (r"\frac{800}{3}", "266.667"),
        ("aas", "AAS"),
        ("BA", "AB"),
        ("14/factorial(178)", r"\frac{14}{178!}"),
        ("atan(2)", r"\arctan 2"),
        (r"\log{\left(10 \right)}", r"\ln 10"),
    ],
}
UNEQUAL = [
    ("2^3", "1"),
    ("43", "42"),
    ("x", "y"),
    ("3x", "3"),
    ("5ab", "5"),
    ("2xy", "2xz"),
    ("(1,2)", "[1,2]"),
    ("[0,1)", "[0,9)"),
    ("(2,1)", "(1,2)"),
    (r"\{1,3\}", "(3,1)"),
    ("1, 2", "1, 2, 3"),
    ("0", "a + 3z = 0"),
    ("11a+c", "7 = 11a+c"),
    ("x=1", "y=1"),
    ("0.33", r"\frac13"),
    ("3.14", r"\pi"),
    ("123456789.13", "123456789.12"),
    ("1000000.5", "1000000"),
    ("0.0000002", "0.0000001"),
    ("(1,234)", "1234"),
    ("32, 349", "32349"),
    ("12:00", "1:00"),
    ("1.234,56", "1.23456"),
    ("1.23,456", "123.456"),
    ("3,4 m", "3"),
    ("2,0", "2"),
    ("3,7 both", "3.7"),
    ("3,7 are solutions", "3.7"),
    ("1,2 in the set", "1.2"),
    ("12:30 p.m.", "12:30 a.m."),
    ("5 pm", "5 a.m."),
    (r"\pm 3", "3"),
    (r"\sqrt{x^2}", "x"),
    ("3^{2025}", "2^{2025}"),
    ("52_8", "52_9"),
    ("Monday", "Tuesday"),
    ("a/b+c", r"\frac{a}{b+c}"),
    ("6+5i", "6-5i"),
    (r"\begin{pmatrix}1\\3\end{pmatrix}", r"\begin{pmatrix}1\\2\end{pmatrix}"),
    ("", "5"),
    (r"\boxed{}", "5"),
    ("2^{100}-1", "2^{100}"),
    (r"2^{100}\sqrt2 + 1", r"2^{100}\sqrt2"),
    ("e^{100}+1", "e^{100}"),
    (r"\frac{2}{2004!}", r"\frac{1}{2004!}"),
    ("10^{-100}", "0"),
    ("3m^3", "3m^2"),
    (r"15\text{ cm}^3", r"15\mbox{ cm}^2"),
    (r"15\text{ cm}", r"15\mbox{ cm}^2"),
    (r"\frac52\text{ in}^3", r"\frac52\text{ in}^2"),
    (r"5\pi\text{ cm}^3", r"5\pi\text{ cm}^2"),
    ("3 m/s^2", "3 m/s"),
    ("0, 1", "1,000,000"),
    ("1,000,000", "0, 1"),
    ("-221_3", "-221_8"),
    ("221_8", "-221_8"),
    (r"\sin 30", r"\frac12"),
    ("ASA", "AAS"),
    (r"\text{SAS}", r"\text{SSA}"),
    (r"\frac98 \approx 1.29", r"\frac97"),
    ("13.287", r"\frac{3840}{289}"),
    ("266.67", r"\frac{800}{3}"),
    ("266.667", r"\frac{800}{3}"),
    ("127.324", r"\frac{400}{\pi}"),
    ("314.159", r"100\pi"),
]


@pytest.mark.parametrize("kind", EQUAL)
def test_equal_answers(subtests, grader, kind):
    for pred, gold in EQUAL[kind]:
        with subtests.test(pred=pred, gold=gold):
            assert grader.equal(pred, gold)
            assert grade_response(rf"Hence the value is $\boxed{{{pred}}}$.", gold, grader)


def test_unequal_answers(subtests, grader):
    for pred, gold in UNEQUAL:
        with subtests.test(pred=pred, gold=gold):
            assert not grader.equal(pred, gold)


RESPONSES = [
    ("It costs 3 + 4 = 7 dollars.", "7", True),
    ("The answer is -3", "-3", True),
    ("The answer is -3", "3", False),
    ("odd $n$", "odd $n$", True),
    (r"Thus $x-p=\boxed{2-2p}$.", "$2-2p$", True),
    (r"\boxed{12\text{ and }13}", r"We see $\boxed{12 $ and $13}$.", True),
    ("AZYUK2A", "2", False),
    (r"\boxed{m+n=113}", "113", True),
    (r"\boxed{m+n=114}", "113", False),
    ("Therefore, $m+n = 113$", "113", True),
    (r"so $p + q + r = \boxed{251}$", "251", True),
    ("Thus $100p+q = 307$.", "307", True),
    (r"It must be that the answer must be $\frac97$, since 2 + 2 = 4.", r"\frac97", True),
    (r"The answer is \frac{9}{7} ≈ 1.29", r"\frac97", True),
    ("The answer is ASA.", "AAS", False),
]


def test_whole_responses(subtests):
    for response, gold, right in RESPONSES:
        with subtests.test(response=response, gold=gold):
            assert grade_math(response, gold) is right


def test_the_package_imports_no_heavy_library():
    heavy = "{'sympy', 'math_verify', 'datasets', 'torch'}"
    code = f"import sys, single_turn_bench.__main__; print({heavy} & set(sys.modules))"
    done = forkserver.run(
        [sys.executable, "-c", code], fresh=True, cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


@pytest.mark.skipif(not PAIRS.is_dir(), reason="../shared/data is absent")
@pytest.mark.parametrize(
    ("name", "least"),
    [("math_verify", 262), ("inspect_ai", 33), ("hendrycks_math", 14), ("gsm8k_solutions_1000", 998)],
)
def test_agreement_with_public_graders(grader, name, least):
    rows = [json.loads(line) for line in (PAIRS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
    agreed = sum(grade_response(r.get("pred", r.get("response")), r["gold"], grader) == r["expected"] for r in rows)
    assert agreed >= least
