"""The whole loop on the web: what was learned on one seed of a kind solves the other seeds. A known answer.

The student presses a button at once, and fails, unless a lesson of its prompt says what comes first. So the first task
of each kind is lost, and the lesson of that loss solves the other: half of all. Without memory: none.
"""

from __future__ import annotations

import re

import pytest
from conftest import read_json, read_rows
from web_kit import needs_browser

from core.agent import LEFT_OUT
from core.page import PAGE
from envs.web.page import elements

pytestmark = needs_browser
KINDS = ("click-option", "enter-text", "login-user")  # one is chosen, one is typed, two are typed
FILL = "Where the goal begins with {}, type its quoted texts into the fields first, then press the button."
SELECT = "Where the goal begins with {}, click the thing that it names first, then press the button."
_LESSON = re.compile(r"the goal begins with ([\w ]+), (type|click)")
WORDS = (
    *("env=miniwob", "env.slow_mo_ms=0", "env.settle_s=0.05", f"env.kinds=[{','.join(KINDS)}]", "embedder=hashing"),
    *("env.seeds=2", "llm=scripted", "llm.script.path=test_miniwob_known_answer.play"),
)


def play(messages, role, sample):
    """A student, a judge and a distiller, each of which knows its prompt and nothing else."""
    text = messages[-1]["content"]
    if role == "agent":
        return student(messages)
    assert "RootWebArea" not in text.partition("What the agent did:")[2].partition("Where it ended:")[0]
    if role == "judge":
        pages = text.partition("Where it ended:")[2]
        assert pages.count("RootWebArea") == 1, "the judge sees the last page"
        return f'Thoughts: by the steps.\nStatus: "{"success" if "Step 2" in text else "failure"}"'
    goal = re.search(r"Task:\n(.+)", text)[1]
    content = (SELECT if goal.startswith("Select") else FILL).format(beginning(goal))
    return f"```\n# Memory Item 1\n## Title What comes first\n## Description A form.\n## Content {content}\n```"


def student(messages):
    goal = re.search(r"Goal: (.+)", messages[1]["content"])[1]
    users = [message["content"] for message in messages[1:] if message["role"] == "user"]
    assert [PAGE in said for said in users] == [False] * (len(users) - 1) + [True], "one page, the newest"
    assert all(LEFT_OUT in said for said in users[:-1])
    found = elements(users[-1].partition(f"{PAGE}\n")[2])
    button = next(each.bid for each in found if each.role == "button")
    first = []
    told = [(how, start) for start, how in _LESSON.findall(messages[0]["content"])]
    if ("type", beginning(goal)) in told:
        texts, fields = re.findall('"([^"]+)"', goal), [each.bid for each in found if each.role == "textbox"]
        texts += texts[-1:] * (len(fields) - len(texts))
        first = [f"fill({bid!r}, {text!r})" for bid, text in zip(fields, texts)]
    elif ("click", beginning(goal)) in told:
        name = re.search(r"Select (\S+) and", goal)[1]
        first = [f"click({next(each.bid for each in found if each.role == 'radio' and each.text == name)!r})"]
    plan = [*first, f"click({button!r})"]
    return f"Thought: Step {len(users)}.\nAction: {plan[min(len(users), len(plan)) - 1]}"


def beginning(goal):
    return re.match(r"Select|Enter the username|Enter", goal)[0]


@pytest.fixture(scope="module")
def goals(tmp_path_factory):
    return tmp_path_factory.mktemp("goals")


def test_a_lesson_of_one_seed_solves_the_others(here, goals, tmp_path):
    run_dir, rate = here(*WORDS, f"env.cache_dir={goals}", run_dir=tmp_path / "memory")
    rows, summary = read_rows(run_dir), read_json(run_dir / "summary.json")
    assert [row["status"] for row in rows] == ["failure"] * 3 + ["success"] * 3
    assert [row["task_type"] for row in rows[:3]] == list(KINDS)
    assert rate == 0.5 and summary["judge_agreement"] == 1.0
    # the record holds every page that was shown, the prompt one at a time
    assert all(PAGE in step["observation"] for row in rows for step in row["trajectories"][0]["steps"])


def test_without_memory_nothing_is_solved(here, goals, tmp_path):
    words = (*WORDS, f"env.cache_dir={goals}", "env.kinds=[click-option,enter-text]", "workflow=vanilla")
    run_dir, rate = here(*words, run_dir=tmp_path / "none")
    assert rate == 0.0 and len(read_rows(run_dir)) == 4


def test_two_attempts_at_once_have_a_browser_each(here, goals, tmp_path):
    words = (*WORDS, f"env.cache_dir={goals}", "workflow=matts_parallel", "k=2", "max_concurrency=2")
    run_dir, _ = here(*words, "env.kinds=[enter-text]", run_dir=tmp_path / "k2")
    assert [row["status"] for row in read_rows(run_dir)] == ["failure", "success"]
