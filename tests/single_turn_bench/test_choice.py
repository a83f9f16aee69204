"""The letter that a response chooses, and the order in which options are shown."""

import json
from collections import Counter
from itertools import product
from pathlib import Path

import pytest

from single_turn_bench import extract_choice
from single_turn_bench.choice import find_choice, names_others, shown_options, shuffle_options
from single_turn_bench.rows import parse_row

OUTPUTS = Path(__file__).resolve().parents[3] / "shared" / "data" / "grader_pairs" / "mmlu_pro_outputs_800.jsonl"


CLEAR = [
    ("The answer is (B).", 4, "B"),
    ("**Answer: C**", 4, "C"),
    ("answer: (c)", 4, "C"),
    ("Answer:\nB", 4, "B"),
    (r"\boxed{B}", 4, "B"),
    (r"$\boxed{\text{(D)}}$", 4, "D"),
    (r"The answer is: \(\boxed{D}\)", 4, "D"),
    (r"answer is $\mathbf{B}$", 4, "B"),
    ("C", 4, "C"),
    ("c", 4, "C"),
    ("B. because it is the largest", 4, "B"),
    ("It grows.\n\nD) 12", 4, "D"),
    ("B is the correct answer.", 4, "B"),
    ("I choose D.", 4, "D"),
    ("I would go with (A).", 4, "A"),
    ("The correct answer is option (A) 5", 4, "A"),
    ("The best answer is:\n\n(C) 5 m/s", 4, "C"),
    ("First the answer is A, but then the answer is C.", 4, "C"),
    ("Option B is incorrect. Option C is correct.", 4, "C"),
    ("The correct answer is (C), not (D).", 4, "C"),
    ("The answer is not B. It is C", 4, "C"),
    ("The answer is A because of this", 4, "A"),
    ("The answer is 'C'.", 4, "C"),
    ("The answer is ‘C’.", 4, "C"),
    ("The answer is “C”.", 4, "C"),
    ("‘C’", 4, "C"),
    ("'C' is correct.", 4, "C"),
    ("What fits here is 'C' alone", 4, "C"),
    ("The answer is D’Alembert's", 4, None),
    ("The answer is C's", 4, None),
    ("The answer is (I).", 10, "I"),
    ("The answer is I.", 10, "I"),
    ("<think>The answer is A</think>\nThe answer is B", 4, "B"),
    ("The answer is (C).\n\nQuestion:\nWhat else?\nA. x\nB. y\nThe answer is (A).", 4, "C"),
    ("The answer is (J).", 4, None),
    ("The answer depends on the weather", 10, None),
    ("I think that a good choice would be to wait.", 10, None),
    ("A good choice would be to wait.", 4, None),
    ("The answer is I think unclear", 10, None),
    ("The answer is a matter of taste", 4, None),
    ("Answer: A dog barks", 4, None),
    ("The answer is Dr. Smith", 4, None),
    ("The answer is Apple", 4, None),
    ("A: 5\nB: 6", 4, None),
    ("", 4, None),
    ("The correct answer is **C**. Vitamin D is irrelevant.", 4, "C"),
    ("The correct answer is *C*. Vitamin D is irrelevant.", 4, "C"),
    ("The correct answer is __C__. Vitamin D is irrelevant.", 4, "C"),
    ("The answer is **Option C**. Vitamin D is irrelevant.", 4, "C"),
    ("**Answer: C**\n\nOption D is wrong. Type B blood does not matter.", 4, "C"),
    ("### Final Answer\n**C**\n\nI hope this helps! A plan B exists.", 4, "C"),
    ("### Answer\n\n(C) 5 m\n\nOption D is wrong.", 4, "C"),
    ("Let's analyze each option: A. no. B. yes. C. no. Hence (C)", 4, "C"),
    ("Let's analyze each answer choice: A. no. B. yes. C. no. Hence (C). Vitamin D is irrelevant.", 4, "C"),
    ("Options: (A) 1 (B) 2 (C) 3 (D) 4. Therefore, option C. Vitamin D is irrelevant.", 4, "C"),
    ("Let's analyze each option:\nA. no\nB. no\nC. no\n\n**A**", 4, "A"),
    ("Ans: C. Vitamin D is irrelevant.", 4, "C"),
    ("Thus B increases. The answer is (C).", 4, "C"),
    ("It must be B. Neither A nor C fits.", 4, "B"),
    ("The pressure must be B times larger; C fits.", 4, "C"),
    ("The answer is not B.", 4, None),
    ("The answer is (A). If the answer is B, the sum is 5.", 4, "A"),
    ("It holds for C alone. I would not choose B.", 4, "C"),
    ("I don't think the answer is B. The one left is D", 4, "D"),
    ("Neither A nor B is correct; D holds.", 4, "D"),
    ("The answer is B. Wait, it is C.", 4, "C"),
    ("The answer is B. Wait, no: it's (C).\n", 4, "C"),
    ("The answer is B. Oh, it's C.", 4, "C"),
    ("The answer is not B, it is C.", 4, "C"),
    ("The answer is (C). The magnetic field through it is B.", 4, "C"),
    ("I think the answer is C; the distractor is the one that is B.", 4, "C"),
    ("A is true, B is true and D is true, so only C is false.", 4, "C"),
    ("(A), (B) and (D) hold. Hence (C) is not true.", 4, "C"),
    ("Therefore, C is false.", 4, "C"),
    ("Only B works, so C is false.", 4, "B"),
    ("The correct answers are A and C.", 4, "A"),
    (r"\boxed{\text{A only}}", 4, "A"),
    (r"\boxed{\text{I only}}", 10, None),
    ("The answer is $C \\approx 5$ farad, hence (D).", 4, "D"),
    ("The answer is „B“.", 4, "B"),
    ("A, C and D are wrong.", 4, None),
    ("(B) holds; (A), (C) and (D) fail.", 4, "B"),
    ("The answer is B.\n\nHuman: And what else? The answer is A", 4, "B"),
    (r"\boxed{A, C}", 4, None),
    (r"\boxed{A} and \boxed{C}", 4, None),
    (r"\boxed{\text{A and C}}", 4, None),
    ("A and C", 4, None),
    ("I am torn.\n\n**A, B or D**", 4, None),
    ("Both (A) and (C)", 4, None),
    ("<answer>B/C</answer>", 4, None),
    ("A B C D", 4, None),
    ("First A and B. But it is\n\nC", 4, "C"),
    ("option c", 4, "C"),
]


def test_the_last_clear_statement_of_a_letter(subtests):
    for response, n_options, letter in CLEAR:
        with subtests.test(response=response):
            assert extract_choice(response, n_options) == letter


@pytest.mark.parametrize(
    ("response", "letter"),
    [
        ("I select B first.\nQ = mcT\nThe answer is (D).", "D"),
        ("I select B first.\nQ = ...\nThe answer is (D).", "D"),
        ("The answer is (B) at first sight.\nQ := 5\nSo the answer is (A).", "A"),
        ("The answer is (B).\nQ/m = 5\nSo the answer is (A).", "A"),
        ("The answer is (B).\nQ: What?\nA: The answer is (A).", "B"),
        ("The answer is (B).\nQ3: What?\nA: The answer is (A).", "B"),
        ("The answer is (B).\n\nQuestion 12\nThe answer is (A).", "B"),
        ("Answer choices: A: 1, B: 2\nQuestion: Which?\nThe answer is (A).", "A"),
    ],
)
def test_a_quantity_called_q_is_no_next_question(response, letter):
    assert extract_choice(response, 4) == letter


QUANTITIES = [
    ("The answer is (C). We choose Q so that it fits.", "C"),
    ("The answer is (C). We choose B so that it fits.", "C"),
    ("The answer is (C). We choose B to be the field.", "C"),
    ("The answer is (C). We pick A as the area of it.", "C"),
    ("We choose T as the temperature. The answer is B. We select P as the point.", "B"),
    ("The answer is (A). Thus Q is the best measure.", "A"),
    ("The answer is B. The solution is Q.", "B"),
    (r"The answer is (A), that is $\boxed{x}$", "A"),
    ("The answer is (C). We choose B as the origin, so that it fits.", "C"),
    ("I would go with B as the law demands it, while D ignores it.", "B"),
    ("I select C as its value agrees, unlike D.", "C"),
    ("I pick C as the others, such as D, fail.", "C"),
    ("Select B to be safe rather than D", "B"),
    ("I pick C as the best explanation of this, unlike D.", "C"),
    ("I choose C as the answer.", "C"),
    ("I choose C as my final answer.", "C"),
    ("I pick C as the correct choice", "C"),
    ("I choose option Q. A and B fail.", None),
    ("I choose (Q). A and B fail.", None),
    ("The answer is J. A and B fail.", None),
    (r"(A) fails. \boxed{Q}", None),
]


def test_a_letter_that_names_a_quantity_is_no_choice(subtests):
    for response, letter in QUANTITIES:
        with subtests.test(response=response):
            assert extract_choice(response, 4) == letter


STATED = [
    "The correct answer is **{}**.",
    "The answer is *{}*.",
    "The answer is __{}__.",
    "The correct answer is **{}.**",
    "**Answer: {}**",
    "**Answer**: {}",
    "Final answer: **{}**",
    "### Final Answer\n**{}**",
    "Correct option: **{}**",
    "The correct option is {}.",
    "Hence ({})",
    "Hence, ({}).",
    "Thus, the answer is option {}.",
    "Therefore, the answer is **Option {}**.",
    "I choose {}.",
    "The answer must be {}.",
    "The correct answer is:\n\n**{}. some text**",
    "$\\boxed{{{}}}$",
    "The answer is \\textbf{{({})}}.",
    "**{}** is the correct answer.",
    "Ans: {}",
    "The answer is **{}**, since it holds.",
]
BEFORE = [
    "",
    "Let's analyze each option: A. no. B. no. C. no. D. no. ",
    "Let's analyze each option:\nA. small.\nB. large.\nC. red.\n\n",
    "Options: (A) 1 (B) 2 (C) 3 (D) 4. ",
    "Option A is wrong. (B) fails. ",
    "We consider each choice: A: no, B: yes, C: no.\n",
    "**A.** no\n**B.** no\n**C.** no\n**D.** no\n\n",
]
AFTER = ["", " Vitamin D is irrelevant.", " Type A blood does not matter.", "\n\nOption A is wrong, since it is small."]


def test_a_statement_is_found_among_lists_of_options_and_other_letters(subtests):
    for stated in STATED:
        with subtests.test(stated=stated):
            for before, after, letter in product(BEFORE, AFTER, "ABCD"):
                response = before + stated.format(letter) + after
                assert extract_choice(response, 4) == letter, response


def test_the_rule_is_recorded_and_a_mere_mention_is_the_weakest():
    assert find_choice(r"\boxed{A}", 4).rule == "boxed"
    assert find_choice("The answer is B", 4).rule == "statement"
    assert find_choice("It follows. D", 4).rule == "lone"
    assert find_choice("The one that fits is (C) here", 4).rule == "bracketed"
    assert find_choice("That leaves B over", 4).rule == "mention"
    assert find_choice("nothing", 4).rule == "none"


@pytest.mark.parametrize("n_options", [0, 27])
def test_a_senseless_number_of_options_is_an_error(n_options):
    with pytest.raises(ValueError, match="n_options"):
        extract_choice("B", n_options)


def test_options_are_shuffled_by_seed_and_id_alone():
    options = ("w", "x", "y", "z")
    shown, letter, order = shuffle_options(options, 2, 7, "gpqa/1")
    assert (shown, letter, order) == shuffle_options(options, 2, 7, "gpqa/1")
    assert shown["ABCD".index(letter)] == "y"
    assert tuple(options[index] for index in order) == shown
    assert sorted(order) == [0, 1, 2, 3]


def test_the_key_is_spread_over_all_letters():
    letters = Counter(shuffle_options("abcd", 0, 0, f"task{number}")[1] for number in range(400))
    assert set(letters) == set("ABCD")
    assert min(letters.values()) > 60
    per_seed = {shuffle_options("abcd", 0, seed, "task")[1] for seed in range(20)}
    assert len(per_seed) > 1


NAMING = """both A and C|A or B|Both (A) and (C)|Both a & c|neither B nor D|A, B and C|(a) and (b)|A and B only|Only C
B only|Option A|Same as option (b)|Answers A and D|Not A|all of the above|None of the other options|the first two|None
The first two are correct|All are correct|None of these|all these answers|Two of the above|no option is right
At least two of the above|A combination of the above|The above are all correct|All of the listed|All except C|All but D
A/C|A to C|Same as B|Options 1 and 3|Both statements|Not listed above"""
NAMING_NONE = """Vitamin C|Hepatitis B|A dog|X and Y|Above 30 degrees|Both countries|All mammals|the first king|A|5 A
A-B|none of Europe's rivers|all or nothing|neither alloy|when E and F are true|(a) 109 V, (b) 83 A|both are beyond us
same as a control|all but a few|DNA to RNA|the same as before|option trading|All states ratified it"""


def test_an_option_that_names_others_is_told_by_its_text(subtests):
    for texts, right in ((NAMING, True), (NAMING_NONE, False)):
        for text in texts.replace("\n", "|").split("|"):
            with subtests.test(text=text):
                assert names_others(text, 4) is right
    assert names_others("both e and f.", 6) and not names_others("both e and f.", 4)  # which letters there are


def test_options_that_name_others_keep_their_order_and_come_last_where_there_is_none():
    options = ("morphine", "ibuprofen", "fentanyl", "both A and C")
    assert {shown_options(options, 3, seed, "q", shuffle=True) for seed in range(9)} == {(options, "D", (0, 1, 2, 3))}
    raw = {"Record ID": "r", "Question": "Which?", "Correct Answer": "none of the others"}  # the right one comes first
    raw |= {f"Incorrect Answer {number}": f"wrong {number}" for number in (1, 2, 3)}
    row = parse_row(raw, "gpqa", "here")
    assert (row.options[3], row.answer) == ("none of the others", "D")
    assert len({shown_options(row.options, 3, seed, row.id, shuffle=True) for seed in range(9)}) == 1


def test_the_text_of_one_option_is_its_letter():
    options = ("Vitamin A", "Vitamin C", "2", "vitamin a.", "")
    said = {
        "So it is <answer>vitamin c</answer>.": ("B", "option"),
        r"\boxed{\text{Vitamin C}}": ("B", "option"),
        "The answer is Vitamin C.": ("B", "option"),
        "First I thought that the answer is (A).\n<answer>2</answer>": ("C", "option"),
        "<answer>2</answer> The answer is (A).": ("C", "option"),
        "The answer is (A), Vitamin C.": ("A", "statement"),
        "<answer>vitamin a</answer>": (None, "none"),  # two options have this text
        "It may be Vitamin C or not": ("C", "mention"),
        "<answer>Vitamin A</answer>": ("A", "option"),  # in these signs, one
    }
    for response, found in said.items():
        read = find_choice(response, 5, options)
        assert (read.answer, read.rule) == found, response
        assert read.stated is (found[1] in ("option", "statement"))


@pytest.mark.skipif(not OUTPUTS.is_file(), reason="../shared/data is absent")
def test_agreement_with_the_rules_of_mmlu_pro():
    rows = [json.loads(line) for line in OUTPUTS.read_text(encoding="utf-8").splitlines()]
    fired = [row for row in rows if row["rule_pred"]]
    agreed = sum(extract_choice(row["response"], row["n_options"]) == row["rule_pred"] for row in fired)
    assert agreed / len(fired) >= 0.97
