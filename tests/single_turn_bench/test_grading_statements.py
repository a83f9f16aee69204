"""Answers that are stated in prose, behind a mark or as an equation: what of the statement is the answer."""

import pytest

from single_turn_bench.answers import extract_answer
from single_turn_bench.equivalence import grade_response, shared_grader


@pytest.fixture(scope="module")
def grader():
    return shared_grader()


PROSE = [
    ("So the answer is **$18** per day.", "18"),
    ("**Answer: 18** dollars", "18"),
    ("The answer is *18* dollars.", "18"),
    ("The answer is __18__ as 9 * 2 = 18.", "18"),
    ("The answer is `18` eggs.", "18"),
    ("**The answer is 18**, because she sells 9 at 2 each.", "18"),
    ("The answer is 18 (9 eggs at $2).", "18"),
    ("The answer is 18 (that is, 20 - 2).", "18"),
    ("The answer is 18 dollars ($9 * 2).", "18"),
    ("Answer: **18 dollars** (9 * 2).", "18"),
    ("The answer is 18 (9 \\times 2).", "18"),
    ("The answer is only 18 because 9 eggs are sold.", "18"),
    ("The answer is $18 per day ($9 a half).", "18"),
    ("The answer is 18 dollars because 9 eggs are sold.", "18"),
    ("The answer is $18 because 9 * $2 = $18.", "18"),
    ("The answer is $18, since 9 * $2 = $18.", "18"),
    ("The answer is 42, not 40.", "42"),
    ("The answer is 42 - not 40.", "42"),
    ("The answer is 42 rather than 40.", "42"),
    ("The answer is 42 apples in 7 days.", "42"),
    ("The answer is $42 in 7 days.", "42"),
    ("The answer is 42, since 40+2 = 42.", "42"),
    ("The answer is 42, I believe.", "42"),
    ("The answer is 42, which she keeps.", "42"),
    ("The answer is x = 5 because 2x = 10.", "5"),
    (r"The answer is \frac{1}{2} since 2 of 4 are red.", "1/2"),
    ("The answer is (3, 4), not (4, 3).", "(3,4)"),
    ("The answer is 2 and 3 because x^2 - 5x + 6 = 0.", "2, 3"),
    ("The answer is 3 times 6 = 18", "18"),
    ("The answer is 5 x 3 = 15", "15"),
    ("The answer is 7 days * 6 = 42", "42"),
    ("The answer is 9 * 2 = 18.", "18"),
    ("The answer is 9*2*1 = 18.", "18"),
    ("The answer is 2**3", "8"),
    ("the answer is 1,000", "1000"),
    ("The answer is 1/2", "0.5"),
    ("the answer is x = 5", "5"),
    ("The answer is (3, 4)", "(3,4)"),
    ("the answer is 2 and 3", "2, 3"),
    ("The answer is a_2 + b_3", "a_2+b_3"),
    ("The answer is 2 (mod 5)", "2"),
    ("The answer is 3 (x + 1)", "3x+3"),
    ("The answer is 20% of 50, which is 10.", "10"),
    ("The answer is 9 eggs at $2 each, which is $18.", "18"),
    ("The answer is 18 dollars per day for 2 days, so 36 dollars.", "36"),
    ("The answer is 6 divided by 2, which is 3.", "3"),
    ("The answer is 5 times as many as 3, so 15.", "15"),
    ("The answer is the sum, which is 18.", "18"),
    ("They earn 5 million dollars in all of these years together.", "5000000"),
]


def test_the_value_that_a_sentence_states_is_its_answer(subtests, grader):
    for response, gold in PROSE:
        with subtests.test(response=response):
            assert grade_response(response, gold, grader)


@pytest.mark.parametrize(
    ("response", "wrong"),
    [
        ("The answer is 42, not 40.", "40"),
        ("The answer is 18 dollars because 9 eggs are sold.", "9"),
        ("The answer is 42 apples in 7 days.", "7"),
        ("The answer is 3 times 6 = 18", "3"),
        ("The answer is 9 eggs at $2 each, which is $18.", "9"),
        ("The answer is 20% of 50, which is 10.", "20"),
    ],
)
def test_other_numbers_of_the_sentence_are_not(grader, response, wrong):
    assert not grade_response(response, wrong, grader)


CLAUSES = (
    "in total, so the oven is paid", "in total", "altogether, for the whole week", "all in all", "to be exact",
    "when rounded", "after all the costs are paid", "given the prices above", "once the tip is added",
    "if my sums are right", "I believe", "which is the total", "as requested", "per day", "rounded up",
    "including tax", "of course", "give or take", "overall", "not counting ties", "exactly", "at least",
    "based on this", "every week", "with nothing left", "respectively", "hope this helps", "before tax",
    "no more, no less", "more or less", "end of story", "thank you", "no question", "as 9 * 8 = 72",
    "so she is happy", "assuming no leap year", "nothing else", "and no more", "see above",
)  # fmt: skip


def test_a_clause_without_a_value_is_no_part_of_the_answer(subtests, grader):
    for clause in CLAUSES:
        with subtests.test(clause):
            for stated in (
                "The answer is 72, {}.",
                "The answer is 72; {}",
                "72, {}.",
                "#### **72**, {}",
                "The answer is 72 — {}.",
            ):
                assert grade_response(stated.format(clause), "72", grader), stated
            assert not grade_response(f"The answer is 71, {clause}.", "72", grader)


CLAUSES_AND_ITEMS = [
    ("The answer is 72 - that is all.", "72", True),
    ("the answer is 15, so she has 15 left", "15", True),
    ("42 apples altogether", "42", True),
    ("= 9, which is the number of ways", "9", True),
    ("3*3 = 9, which is the number of ways", "9", True),
    ("The answer is 1/2, in lowest terms.", "1/2", True),
    (r"The answer is 2\sqrt{3}, in simplest radical form.", r"2\sqrt{3}", True),
    ("The answer is (72, 3), in this order.", "(72, 3)", True),
    ("The answer is 72 and 73, respectively.", "72, 73", True),
    ("The answer is 72 km/h, on average.", "72", True),
    ("The answer is x = 2, as claimed.", "2", True),
    ("The answer is 5, Monday", "5, Monday", True),
    ("The answer is 5, Monday", "5", False),
    ("The answer is 2, x.", "2, x", True),
    ("The answer is 3, 4.", "3, 4", True),
    ("The answer is 3, 4.", "3", False),
    ("The answer is 3, four", "3, four", True),
    ("The answer is 3, or four", "3", False),
    ("The answer is 3, and five", "3", False),
    ("The answer is 2, if n is even, and 1, if n is odd.", "2", False),
    (r"\boxed{5, \text{north}}", r"5, \text{north}", True),
    ("The answer is 18 dollars per day for 2 days, so 36 dollars.", "36", True),
]


def test_a_clause_and_a_further_item_are_told_apart(subtests, grader):
    for response, gold, right in CLAUSES_AND_ITEMS:
        with subtests.test(response=response, gold=gold):
            assert grade_response(response, gold, grader) is right


HEADINGS = [
    ("#### Step 1: She has 9\n#### Step 2: Multiply by 2\n9 * 2 = 18\n\nSo the answer is 18.", "18"),
    ("She makes 9 * 2 = \\boxed{18} dollars.\n\n#### 2. Check the sum\n9 + 9 = 18", "18"),
    ("\\boxed{5}.\n\n#### Step 3: Check with n = 12", "5"),
    ("\\boxed{5}.\n\n#### 3 Checking\nIt holds.", "5"),
    ("#### Conclusion\nThe answer is 18.", "18"),
    ("#### Answer\n\n18", "18"),
    ("\\boxed{5} is too low.\n#### 18", "18"),
    ("\\boxed{5} is too low.\n#### **18**\n", "18**"),
    ("\\boxed{5} is too low.\n#### 18 dollars", "18 dollars"),
    ("\\boxed{5} is too low.\n#### Answer: 18", "18"),
    ("9 * 2 = 18. #### 18", "18"),
    ("#### 18\n\n#### 2. Check\nIt is more than 12.", "18"),
    ("#### 18\n\nQuestion: How many are 3 more?", "18"),
    ("She asks her sister.\n#### Evelyn", "Evelyn"),
]  # fmt: skip


def test_a_heading_is_no_mark_of_an_answer(subtests):
    for text, answer in HEADINGS:
        with subtests.test(text=text):
            assert extract_answer(text).answer.strip("*") == answer.strip("*")


ONLY_ASKED = [
    (r"So $\boxed{204}$. The final answer is an integer between 0 and 999.", "204"),
    (r"So $\boxed{204}$. Note that the final answer is an integer from 000 to 999, inclusive.", "204"),
    (r"So $\boxed{204}$. The final answer is required to be less than 1000.", "204"),
    (r"So $\boxed{204}$. Final answer: a three-digit number, at most 999.", "204"),
    (r"So $\boxed{204}$. The final answer is in the form m+n, with m = 3.", "204"),
    (r"So $\boxed{204}$. The final answer is rounded to 2 decimals.", "204"),
    (r"So $\boxed{204}$. The final answer is always between $0$ and $999$.", "204"),
    (r"So $\boxed{204}$. The final answer is boxed above and has 3 digits.", "204"),
    (r"So $\boxed{204}$. The final answer is 204, which is between 0 and 999.", "204"),
    (r"The final answer is an integer between 0 and 999. So $\boxed{204}$.", "204"),
    (r"\boxed{204} is too low. The final answer is 205. It is an integer up to 999.", "205"),
    (r"\boxed{204} is too low. The final answer is 205. The final answer is at most 999.", "205"),
    (r"\boxed{204} is too low. The final answer is therefore 205 dollars.", "205 dollars"),
    ("The answer is 42. The final answer is an integer between 0 and 999.", "42"),
    ("The answer is 42. The final answer must be an integer between 0 and 999.", "42"),
    ("The answer is 42. The final answer is rounded to 2 decimals.", "42"),
    ("The final answer is an integer between 0 and 999, namely 204.", "204"),
    ("The final answer is an integer: 5", "5"),
    (r"\boxed{12}. Wait, I forgot to subtract 2. So the answer is 10.", "10"),
    (r"\boxed{12}. Wait, let me check: 6 + 6 = 12. The answer is right.", "12"),
    (r"\boxed{12}. Checking with n = 3, the answer is 12 > 10 there.", "12"),
    (r"\boxed{12}. Wait, I should check: if n=3, the answer is 7. OK so it holds.", "12"),
    (r"\boxed{12}. Wait, if I add them I get 10, so the answer is 10.", "10"),
    ("The first answer is 12. The final answer is a value of 35.", "35"),
    ("The first answer is 12. The final answer is a whole number 35.", "35"),
    ("The first answer is 12. The final answer is an average value of $35$ apples.", "$35$"),
    ("The answer is 42. The final answer is a number of 2 digits.", "42"),
]


def test_what_is_only_asked_of_an_answer_does_not_overrule_it(subtests):
    for text, answer in ONLY_ASKED:
        with subtests.test(text=text):
            assert extract_answer(text).answer == answer


DENIED = [
    ("The answer isn't 5. It's 6.", "6"),
    ("The answer is not 5. It is 6.", "6"),
    ("The answer is not 5, it is 6.", "6"),
    ("The answer is not 5 but 6.", "6"),
    ("The answer is not zero. So it must be 6.", "6"),
    ("Answer: not a function", "not a function"),
    ("We get 3 = 5. The answer is not possible.", "not possible"),
    ("She has 18. The answer is 18. Our answer of 18 is correct.", "18"),
    ("She has 18. So the answer of 18 is reasonable and consistent.", "18"),
    ("The answer is 18. The answer we got is reasonable, as 9 < 20.", "18"),
    ("The answer is 18. The answer is correct.", "18"),
    ("It is 7/3. The answer is not an integer.", "7/3"),
    ("Answer: right", "right"),
    ("It has no solution.\n#### inconsistent", "inconsistent"),
    ("The answer of the first part is 5. We used 3 steps.", "5"),
    ("The answer, then, is 5. Here 3 was used.", "5"),
    ("The answer comes out to 5. We used 3 steps.", "5"),
    ("The answer turns out to be 5. We used 3 steps.", "5"),
    ("Ans: 5\nWe used 3 steps.", "5"),
    ("The answer is the interval (0, 1].", "(0, 1]"),
    ("So the point is (-1/2, 3).", "(-1/2, 3)"),
    ("She has 3 apples (2 red, 1 green).", "1"),
    ("She adds up (1, 2, 3) and has 6.", "6"),
    ("So the ratio is 3:4.", "3:4"),
    ("She arrives at 12:30 pm.", "12:30"),
    ("It costs 1\u202f234 dollars.", "1\u202f234"),
    (r"$$\boxed{}$$ The answer is 5.", "5"),
    (r"\boxed{ }" + "\n5", "5"),
    (r"\boxed{4}, or rather \boxed{}", "4"),
    (r"So $\boxed{4}$, in \boxed{answer} as you asked.", "4"),
    (r"I give it in \boxed{\text{your answer}}. The answer is 4.", "4"),
    (r"I give it in \boxed{...}. The answer is 4.", "4"),
]


def test_denied_answers_groups_ratios_and_empty_boxes(subtests):
    for text, answer in DENIED:
        with subtests.test(text=text):
            assert extract_answer(text).answer == answer


EQUATIONS = [
    ("x = 8", "8", True),
    ("12 + 30 = 42", "42", True),
    ("f(x) = 8", "8", True),
    ("f(1) + f(2) = 8", "8", True),
    (r"\sin A = \frac{3}{5}", "3/5", True),
    (r"\text{Area} = 12", "12", True),
    (r"5 \text{ apples} + 3 \text{ apples} = 8 \text{ apples}", "8", True),
    ("(x+1)^2 = x^2 + 2x + 1", "x^2+2x+1", True),
    (r"\sum_{k=1}^{10} k = 55", "55", True),
    (r"A^{-1} = \begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", True),
    ("3 m + 5 m = 8 m", "8", True),
    ("E[X^2] = 3", "3", True),
    (r"\mathbf{u} \cdot \mathbf{v} = 3", "3", True),
    ("x + y = 3 + 4 = 7", "7", True),
    (r"2\pi = 6.283185", r"2\pi", True),
    ("2x = 8", "8", False),
    ("x + 3 = 7", "7", False),
    ("3x^2 = 12", "12", False),
    ("x^2+y^2 = 25", "25", False),
    ("2ab = 6", "6", False),
    (r"\frac{x}{2} = 4", "4", False),
    ("a + 3z = 0", "0", False),
    (r"5 \text{ million}", "5000000", True),
    (r"2.5 \text{ million dollars}", "2,500,000", True),
    (r"\frac12 \text{ million}", "500000", True),
    (r"5 \text{ million}", "5", False),
    ("5", r"5 \text{ million}", False),
    (r"5 \text{ million}", r"5 \text{ thousand}", False),
]


def test_what_an_equation_is_worth(subtests, grader):
    for pred, gold, right in EQUATIONS:
        with subtests.test(pred=pred, gold=gold):
            assert grade_response(rf"\boxed{{{pred}}}", gold, grader) is right
