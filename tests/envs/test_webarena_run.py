"""env=webarena through main.py: a scripted player on real tasks, on the stand-in's pages. A known answer.

The student knows what to say, and says it in a sentence unless a lesson of its prompt asks for JSON. So the first task
of each site is lost, and the lesson of that loss, which names the site, wins the site's others. Without memory: none.
"""

from __future__ import annotations

import json
import re
from importlib.util import find_spec

import pytest
from conftest import read_json, read_rows
from web_kit import needs_browser
from webarena_sites import PRODUCTS, WHITE, serving

from analysis.audit import audit
from analysis.runs import read_run
from core.errors import StopRun
from core.page import PAGE
from core.types import NOT_TAKEN
from envs.web.page import elements

pytestmark = [
    *needs_browser,
    pytest.mark.skipif(not find_spec("jsonpath_ng"), reason="the extra webarena is not installed"),
]
LESSON = "On the site {} the user wants the final message as one JSON object."
WORDS = ("env=webarena", "env.slow_mo_ms=0", "env.settle_s=0.05", "embedder=hashing", "llm=scripted")
PLAYER = "llm.script.path=test_webarena_run.play"
IDS = (21, 23, 27, 28, 431)


def play(messages, role, sample):
    """A student, a judge, a distiller and a grader, each of which knows its prompt and nothing else."""
    text = messages[-1]["content"]
    if role == "agent":
        return student(messages)
    if role == "grader":
        return "correct" if "student answer: no orders" in text else "incorrect"
    assert "RootWebArea" not in text.partition("What the agent did:")[2].partition("Where it ended:")[0]
    if role == "judge":
        assert text.partition("Where it ended:")[2].count("RootWebArea") == 1, "the judge sees the last page"
        return f'Thoughts: by the form.\nStatus: "{"success" if "task_type" in text else "failure"}"'
    site = "forum" if "forum" in re.search(r"Task:\n(.+)", text)[1] else "shop"
    title = "# Memory Item 1\n## Title The message at the end\n## Description A form."
    return f"```\n{title}\n## Content {LESSON.format(site)}\n```"


def student(messages):
    goal = re.search(r"Goal: (.+)", messages[1]["content"])[1]
    lessons, page = messages[0]["content"], messages[-1]["content"].partition(f"{PAGE}\n")[2]
    known = [site for site in ("shop", "forum") if LESSON.format(site) in lessons]
    site = "forum" if "forum" in goal else "shop"
    assert known in ([], [site]), "a lesson of another site"
    found = elements(page)
    if "to the shopping cart" in goal and "You added it" not in page:
        wanted = PRODUCTS[WHITE][1]
        button = next((each.bid for each in found if each.text == "Add to Cart"), None)
        there = any(each.role == "heading" and each.text == wanted for each in found)
        bid = button if there else next(each.bid for each in found if each.text == wanted and each.clickable)
        return f"Thought: one step.\nAction: scroll(0, 10); click({bid!r})"
    task_type, data = "RETRIEVE", None
    if "reviewer" in goal:
        names = next(each.text for each in found if ", say " in each.text).split(", say ")[1]
        data = re.split(r", | and ", names)
    elif site == "forum":
        forum = next(name for name in ("personal finances", "Worcester") if name in goal)
        _, by, post = next(each.text for each in found if each.text.startswith(forum)).split(" | ")
        data = [{"username": by, "post_title": post, "count": 0}]
    elif "orders" in goal:
        data = "no orders"
    else:
        task_type = "MUTATE"
    said = {"task_type": task_type, "status": "SUCCESS", "retrieved_data": data}
    words = json.dumps(said) if known else data if isinstance(data, str) else f"I found {data}."
    return f"Thought: I know it.\nAction: send_msg_to_user({words!r})"


@pytest.fixture(scope="module")
def sites():
    with serving("shopping", "reddit") as started:
        yield started


def urls(sites):
    return [f"env.urls.{name}={site.url}" for name, site in sites.items()]


def test_a_lesson_of_a_site_wins_the_sites_other_tasks_and_no_others(here, sites, tmp_path):
    words = (*WORDS, PLAYER, *urls(sites), f"env.ids={list(IDS)}")
    run_dir, _ = here(*words, run_dir=tmp_path / "memory")
    rows = {int(row["task_id"].partition("/")[2]): row for row in read_rows(run_dir)}
    assert list(rows) == list(IDS), "by ascending number"
    assert {number: row["status"] for number, row in rows.items()} == {
        21: "failure",
        23: "success",
        27: "failure",
        28: "success",
        431: "success",
    }
    assert [row["task_type"] for row in rows.values()] == ["shopping", "shopping", "reddit", "reddit", "shopping"]
    taught = {record["id"]: row["task_type"] for row in rows.values() for record in row["records"]}
    shown = {number: [taught[hit["id"]] for hit in row["retrieved"]] for number, row in rows.items()}
    assert shown == {21: [], 23: ["shopping"], 27: [], 28: ["reddit"], 431: ["shopping"]}
    assert read_json(run_dir / "summary.json")["judge_agreement"] == 1.0
    [attempt] = rows[431]["trajectories"]
    assert attempt["info"]["score"] == attempt["reward"] == 1.0 and len(attempt["steps"]) == 3
    assert not any(word in step["observation"] for step in attempt["steps"] for word in ("score", "success", "Success"))
    assert audit(read_run(run_dir))["broken"] == {}


def test_without_memory_nothing_is_solved(here, sites, tmp_path):
    """Of the tasks that memory wins."""
    words = (*WORDS, PLAYER, *urls(sites), "env.ids=[23,28,431]", "workflow=vanilla", "memory=none")
    _, rate = here(*words, run_dir=tmp_path / "none")
    assert rate == 0.0


def test_what_broke_with_the_sites_is_tried_again_where_they_are_then(here, sites, tmp_path):
    """An address is no part of what a run is: the same run goes on at another one."""
    words = (*WORDS, PLAYER, "env.ids=[21,23]")
    gone = [f"env.urls.{name}=http://127.0.0.1:9" for name in sites]
    with pytest.raises(StopRun, match="2 of 2 tasks broken"):
        here(*words, *gone, "retry_broken=0", "stop_after_broken=null", run_dir=tmp_path / "moved")
    run_dir = tmp_path / "moved"
    assert [row["status"] for row in read_rows(run_dir)] == ["infra_error"] * 2
    assert (
        "the site shopping at http://127.0.0.1:9 does not answer" in read_rows(run_dir)[0]["trajectories"][0]["error"]
    )
    run_dir, rate = here(*words, *urls(sites), run_dir=run_dir)
    assert rate == 0.5 and read_json(run_dir / "summary.json")["n"] == 2


def test_a_refinement_begins_anew_on_the_site(here, sites, tmp_path):
    words = (*WORDS, PLAYER, *urls(sites), "env.ids=[21,23]", "workflow=matts_sequential")
    run_dir, rate = here(*words, run_dir=tmp_path / "refined")
    assert rate == 0.5 and [len(row["trajectories"]) for row in read_rows(run_dir)] == [2, 2]
    run_dir, _ = here(*words, "refine=continue", "max_steps=1", "env.ids=[431]", run_dir=tmp_path / "noted")
    [row] = read_rows(run_dir)
    assert [len(made["steps"]) for made in row["trajectories"]] == [1, 1] and row["status"] == "failure"
    assert row["trajectories"][1]["steps"][0]["observation"] == NOT_TAKEN, "an evaluated attempt does not go on"


def test_a_model_grades_what_the_original_leaves_to_one_and_the_record_says_so(here, sites, tmp_path):
    """Task 47 asks for no orders and no money: two questions, of which the grader affirms both or none."""
    words = (*WORDS, PLAYER, *urls(sites), "env.version=original", "env.ids=[23,47]", "workflow=vanilla")
    run_dir, rate = here(*words, run_dir=tmp_path / "graded")
    rows = {row["task_id"]: row for row in read_rows(run_dir)}
    assert rate == 1.0, rows
    marked = {name: row["trajectories"][0]["info"].get("graded_by_model", False) for name, row in rows.items()}
    assert marked == {"webarena/23": False, "webarena/47": True}
    calls = [json.loads(line) for line in (run_dir / "calls.jsonl").read_text().splitlines()]
    assert [call["role"] for call in calls if call["task"] == "webarena/47"] == ["agent", "grader", "grader"]
    assert audit(read_run(run_dir))["broken"] == {}
