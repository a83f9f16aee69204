"""Right and wrong answers built from gold ones, and text that loops: what is held over many cases at once."""

import json
import random
import time
from itertools import product

import pytest
from conftest import REPO

from benchmarks.grading_pairs import made_golds, pairs
from single_turn_bench.answers import extract_answer
from single_turn_bench.boxes import boxed_answer
from single_turn_bench.choice import find_choice
from single_turn_bench.equivalence import grade_math

WARMUP = [json.loads(line)["answer"] for line in (REPO / "single_turn_bench/warmup.jsonl").read_text().splitlines()]
MOST_WRONG = 0.002

# A model that loops writes one of these until its budget ends.
LOOPS = {
    "white space": ["\n", " ", "\n \n", "\r\n", "\t"],
    "brackets and marks": ["{", "(", "[", "$", "*", "* \n", "#", "#\n", "\\", "\\(", "\\[", "$$x", "\"", "`"],
    "boxes": ["\\boxed{", "\\boxed ", "\\boxed{1}", "\\text{"],
    "letters": ["A. ", "A.\n", "(A) ", "A ", "option: "],
    "questions": ["Q:\n", "Question:\n", "\nQuestion: x\n"],
    "statements": ["answer is ", "is ", "A is ", "is x^2 ", "is correct ", "answer to ", "Answer:\n", "final answer\n",
                   "#### ", "because ", "answer we" + 26 * " ", "so "],
    "numbers": ["1,", "1/", "٤، "],
    "other languages": ["答案是", "不是A，", "C es la ", "ответ ", "A과"],
}  # fmt: skip


@pytest.fixture(scope="module")
def built():
    return pairs(WARMUP + list(made_golds(random.Random(0))), seed=0)[::2]


@pytest.mark.parametrize("right", [True, False], ids=["rewritten", "perturbed"])
def test_hardly_any_built_pair_is_graded_wrongly(built, right):
    chosen = [pair for pair in built if pair.right is right]
    assert len(chosen) > 250
    wrong = [pair for pair in chosen if grade_math(pair.response, pair.gold) is not right]
    assert len(wrong) <= MOST_WRONG * len(chosen), wrong


def seconds(read, text, enough=0.0):
    """Of the processor, so that a busy machine does not count; the better of two, unless the first is within enough."""
    taken = []
    while len(taken) < 2 and not (taken and taken[0] <= enough):
        begun = time.process_time()
        read(text)
        taken.append(time.process_time() - begun)
    return min(taken)


READERS = {"answer": extract_answer, "box": boxed_answer, "letter": lambda text: find_choice(text, 10)}


@pytest.mark.parametrize("kind", LOOPS)
def test_reading_takes_time_in_proportion_to_the_length(subtests, kind):
    alone, behind_an_answer = (
        product(READERS, [""], LOOPS[kind]),
        product(["answer"], ["The answer is 5 "], LOOPS[kind]),
    )
    for name, before, loop in (*alone, *behind_an_answer):
        with subtests.test(name, before=before, loop=loop):
            read = READERS[name]
            short, long = (before + loop * (n // len(loop)) for n in (1_562, 25_000))
            first = seconds(read, short)
            if first > 0.02:  # 16 times the text in at most 48 times the time; a quadratic pattern takes 256 times
                assert seconds(read, before + loop * (6_250 // len(loop)), 11 * first) < 12 * first
            most = 48 * max(first, 0.005)
            assert seconds(read, long, most) <= most
