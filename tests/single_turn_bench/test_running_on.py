"""A model that has answered and writes the next question itself: the first answer counts."""

from __future__ import annotations

import pytest

from core.agent import BashAgent, ReActAgent
from core.learning.structured import parse_lessons, parse_status
from single_turn_bench.answers import extract_answer
from single_turn_bench.choice import extract_choice
from single_turn_bench.verbatim import verbatim_answer

REACT, BASH = ReActAgent(answer_format=""), BashAgent(answer_format="")
NEXT = [
    "Question: What is 3+3?\nAnswer: 6",
    "Problem: What is 3+3?\nSolution: \\boxed{6}",
    "Q: What is 3+3?\nA: 6",
    "Task: What is 3+3?\nThe answer is 6.",
    "User: What is 3+3?\nAssistant: \\boxed{6}",
    "Human: And 3+3?\n\nAssistant: 6",
    "### Question\nWhat is 3+3?\n### Answer\n6",
    "## Problem 2\nWhat is 3+3?\n\\boxed{6}",
    "Exercise 2: 3+3\nAnswer: 6",
    "**Question 2:** What is 3+3?\n**Answer:** 6",
    "Next question: What is 3+3?\nThe answer is 6.",
    "Puzzle 3: x\nAnswer: 6",
    "### Instruction:\nWhat is 3+3?\n### Response:\n6",
    "Student: And 3+3?\nThe answer is 6.",
    "Another problem: 3+3\n#### 6",
    "Question 2\nWhat is 3+3?\nAnswer: 6",
]


ANSWERED = ("\\boxed{42}", "The answer is 42.", "#### 42", "42", "So she has 42 apples.", "<answer>42</answer>")


def test_the_first_answer_counts(subtests):
    for asked in NEXT:
        with subtests.test(asked=asked):
            for first in ANSWERED:
                assert extract_answer(f"{first}\n\n{asked}").answer in ("42", "42 apples")
            letters = asked.replace("6", "C")
            for first in ("B", "The answer is (B).", "\\boxed{B}", "<answer>B</answer>", "B is correct."):
                assert extract_choice(f"{first}\n\n{letters}", 4) == "B"
            for first in ("dog, cat", "The answer is dog, cat.", "<answer>dog, cat</answer>"):
                assert verbatim_answer(f"{first}\n\n{asked}\n<answer>cow</answer>").answer == "dog, cat"


def test_a_heading_of_the_prompt_that_comes_again_is_the_next_question():
    text = "### Sum of the day\n6 * 7\nThe answer is 42.\n### Sum of the day\n3 + 3\nThe answer is 6."
    assert extract_answer(text).answer == "42"
    assert extract_answer(text.replace("Sum of the day", "Solution")).answer == "6"  # its own heading: solved once more


@pytest.mark.parametrize(
    "text",
    [
        "Problem: What is 6*7?\nSolution: 6*7 = 42, so the answer is 42.",
        "Question: 6*7?\nAnswer: 42",
        "Let me restate the question.\nQuestion: What is 6*7?\nThe answer is 42.",
        "We have 3 unknowns.\n\n**Problem:** find x.\nThe answer is 42",
        "Put it in \\boxed{}.\nQuestion: 6*7?\n\\boxed{42}",
        "The final answer must be an integer.\nProblem: 6*7\nAnswer: 42",
        "Task: multiply.\nUser: 6*7\nThe answer is \\boxed{42}",
        "The answer is 41. Wait, I made a mistake: the answer is 42.",
        "The answer is 41.\nHuman error. So the answer is 42.",
        "For the case of 1 the answer is 41.\nObservation: it grows by one.\nSo the answer is 42.",
        "Answer: 41?\nProblems arise: it is too small.\nAnswer: 42",
    ],
)
def test_a_question_before_the_answer_and_prose_behind_it_cut_nothing(text):
    assert extract_answer(text).answer == "42"


@pytest.mark.parametrize(
    "text",
    [
        "Question: which?\nThe answer is B",
        "A. x\nB. y\n\nQuestion: which?\nAnswer: B",
        "User wants a letter.\nB",
        "I read: Question: ... A, B or C.\nThe answer is (B).",
        "Problem 2 is hard. The answer is B.",
        "Task: choose.\nThe answer is B",
        "Either A or C.\nQuestion: which?\nThe answer is B",
        "Let's see.\nQ = A + C\nThe answer is B",
    ],
)
def test_a_letter_is_read_behind_a_question_said_again(text):
    assert extract_choice(text, 4) == "B"


@pytest.mark.parametrize(
    "then", ["Observation: A bed.", "Observation 2: A bed.", "User: A bed.", "Task: Next.", "Human: Go on."]
)
def test_the_first_action_counts(then):
    more = "Thought: now\nAction: go to bed 2"
    assert REACT.parse(f"Thought: I look.\nAction: go to bed 1\n{then}\n{more}") == ("I look.", "go to bed 1")
    assert REACT.parse(f"I look. Action: go to bed 1\n{then}\nNow. Action: go to bed 2")[1] == "go to bed 1"
    assert BASH.parse(f"I look.\n```bash\nls\n```\n{then}\n```bash\nrm x\n```") == ("I look.", "ls")


def test_an_observation_on_the_line_of_the_action_is_none_of_it():
    assert REACT.parse("Action: go to bed 1 Observation: You see a bed.")[1] == "go to bed 1"
    assert REACT.parse("Task: find a bed.\nObservation: none.\nAction: go to bed 1")[1] == "go to bed 1"
    assert BASH.parse("Task: look.\n```bash\nls\n```")[1] == "ls"


def test_a_judge_and_a_distiller_run_on_too():
    assert parse_status("Thoughts: a\nStatus: success\n\nTask: Another.\nStatus: failure") == "success"
    assert parse_status('{"status": "success"}\n\nQuestion: b\n{"status": "failure"}') == "success"
    assert parse_status("Task: a\nThoughts: b\nStatus: failure\nNo: Status: b\nStatus: success") == "success"
    item = "# Memory Item 1\n## Title T\n## Description D\n## Content Write the sum.\n\n"
    [lesson] = parse_lessons(f"{item}User: What is 3+3?\nAssistant: 6", 3)[0]
    assert lesson.content == "Write the sum."
