"""memory.validate: a lesson is shown only once it has helped on earlier tasks."""

from __future__ import annotations

import json
import re

import pytest
from conftest import TOY, command, read_json, read_rows
from kill_kit import kill_at

from analysis.audit import audit
from analysis.report.data import lessons_of
from analysis.runs import read_run
from core.errors import UserError
from core.memory.open import read_records
from envs import toy_script

EVERY = ("arm=validated", "memory.validate.every=8")


@pytest.fixture
def wrong_thirds(monkeypatch):
    """What boxes 3, 6, 9 of a family teach is a wrong word."""
    original = toy_script.play

    def play(messages, role, sample):
        said = original(messages, role, sample)
        [box, *_] = re.findall(r"box (\d+) of the", messages[-1]["content"]) or ["1"]
        return said if role != "extractor" or int(box) % 3 else re.sub(r'family is "\w+"', 'family is "wrong"', said)

    monkeypatch.setattr("envs.toy_script.play", play)


def boxes(run):
    """{record: (family, number of the box that taught it)} and {record: its status in the bank}."""
    made = {record["id"]: row["task_id"].split("/")[1:] for row in read_rows(run) for record in row["records"]}
    status = {record.id: record.status for record in read_records(run / "bank.sqlite", "default")}
    return {id: (family, int(box)) for id, (family, box) in made.items()}, status


def test_where_every_third_lesson_is_wrong_the_gate_keeps_the_right_ones_and_loses_none(here, wrong_thirds):
    """4 families of 10 boxes in turn; what boxes 3, 6 and 9 of a family teach is wrong: 12 lessons of 40.

    Until the trials after the 8th task nothing is shown: 8 boxes stay locked. Then a lesson of the family that was
    found right is there for each: 32 open. A right lesson opens each of the three earlier boxes that are nearest, which
    are of its family, or one, where there is no further one; without a lesson none opens. A wrong one opens none.
    """
    run, rate = here(*TOY, *EVERY)
    made, status = boxes(run)
    assert len(made) == 40 and rate == 32 / 40
    for id, (_, box) in made.items():
        assert status[id] == ("quarantined" if box % 3 == 0 else "active")
    rows = read_rows(run)
    found = [each for row in rows for each in row.get("validated", ())]
    assert [row["index"] for row in rows if "validated" in row] == [7, 15, 23, 31, 39]
    assert {each["won_without"] for each in found} == {0} and {each["won_with"] for each in found} == {0, 1, 3}
    assert all(each["tasks"] and made[each["id"]] != tuple(each["tasks"]) for each in found)
    shown = {hit["id"] for row in rows for hit in row["retrieved"]}
    assert shown and all(made[id][1] % 3 for id in shown)
    assert audit(read_run(run))["broken"] == {}


def test_where_the_newest_lessons_are_shown_the_gate_makes_the_difference(here, wrong_thirds, tmp_path):
    """The last four lessons are one of each family. Without the gate boxes 4, 7 and 10 are told what 3, 6 and 9 taught:
    12 more than the first four stay locked. With it the last right ones are shown, from the 9th task on.
    """
    words = ("retrieval=recent", "retrieval.top_k=4")
    assert here(*TOY, *words, run_dir=tmp_path / "plain")[1] == 24 / 40
    assert here(*TOY, *EVERY, *words, run_dir=tmp_path / "validated")[1] == 32 / 40


def test_a_lesson_that_harms_is_taken_back(here, monkeypatch):
    """The student opens a box by a guess; told anything, it waits until the steps are over: each lesson harms."""

    original = toy_script.play

    def play(messages, role, sample):
        if role == "agent" and "<memory_items>" in messages[0]["content"]:
            return "Thought: .\nAction: wait"
        return original(messages, role, sample)

    monkeypatch.setattr("envs.toy_script.play", play)
    run, rate = here(*TOY, *EVERY, "env.p_guess=1", "limit=16")
    _, status = boxes(run)
    assert rate == 1 and len(status) == 16 and set(status.values()) == {"archived"}
    found = [each for row in read_rows(run) for each in row.get("validated", ())]
    assert all((each["won_with"], each["won_without"]) == (0, len(each["tasks"])) for each in found)


def test_what_the_trials_cost_is_counted(here):
    run, _ = here(*TOY, *EVERY, "limit=8")
    [row] = [row for row in read_rows(run) if "validated" in row]
    used = row["usage"]["validation"]
    with_lesson = sum(len(each["tasks"]) for each in row["validated"])
    without = len({task for each in row["validated"] for task in each["tasks"]})
    assert used["calls"] == 2 * (with_lesson + without)  # the agent's one step, and the judge
    tokens = used["prompt_tokens"] + used["completion_tokens"]
    assert read_json(run / "summary.json")["tokens"]["validation"] == tokens > 0
    from analysis.tables import build_tables, columns_named, every_run, load_episodes

    _, [table] = build_tables(load_episodes([str(run)]), every_run(columns_named("validation_tokens")))
    assert table.rows[0][table.head.index("tokens of validation / task")] == f"{tokens / 8:,.0f}"


def test_a_record_says_how_it_was_tried_in_show_in_the_report_and_over_mcp(here, program):
    """One of three with the lesson, none of three without it. Wilson's intervals are, with z z = 3.84146,

    of 1 in 3   (1/3 + 0.64024 -+ 1.95996 sqrt(0.07407 + 0.10671)) / 2.28049 = 0.06149 to 0.79234
    of 0 in 3   0 to 3.84146 / 6.84146 = 0.56150

    so Newcombe's of the difference 1/3 reaches from 1/3 - sqrt(0.27184^2 + 0.56150^2) = -0.29051 to 1/3 + 0.45901.
    """
    said = "on 3 earlier tasks: 1 judged solved with it, 0 without: +33.3 points, 95 % interval -29.1 to +79.2"
    run, _ = here(*TOY, *EVERY, "limit=8")
    id, bank = read_rows(run)[0]["records"][0]["id"], run / "bank.sqlite"
    shown = program("-m", "core.memory", "show", bank, id)
    assert f"tried: {said}" in shown.stdout, shown.stdout + shown.stderr
    asked = program("-m", "mcp_server", "get_detail", "--bank", bank, "--memory-id", id, "--json")
    assert json.loads(asked.stdout)["tried"] == said, asked.stdout + asked.stderr
    for stored in (read_records(bank, "default"), []):  # also where the bank is gone
        assert {each["tried"] for each in lessons_of(read_run(run), stored) if each["id"] == id} == {said}


def test_killed_during_trials_it_comes_to_the_same_bytes(here, tmp_path):
    words = (*TOY, *EVERY, "limit=24", "llm.delay_s=0.01")
    whole, _ = here(*words, run_dir=tmp_path / "whole")
    folder = tmp_path / "killed"
    for n in (7, 17):  # in a round of trials and after it
        kill_at(n, command(*words, f"run_dir={folder}"), folder)
    resumed, _ = here(*words, run_dir=folder)
    assert (resumed / "episodes.jsonl").read_bytes() == (whole / "episodes.jsonl").read_bytes()
    assert boxes(resumed) == boxes(whole)


def test_a_budget_that_ends_in_a_round_of_trials_stops_the_run_which_goes_on(here, tmp_path):
    whole, _ = here(*TOY, *EVERY, "limit=8", run_dir=tmp_path / "whole")
    calls = len(read_rows(whole, "calls.jsonl"))
    folder = tmp_path / "short"
    here(*TOY, *EVERY, "limit=8", f"budget.run.calls={calls - 3}", run_dir=folder)
    assert [row["status"] for row in read_rows(folder)][-1] == "stopped"
    here(*TOY, *EVERY, "limit=8", "budget.run.calls=1000", run_dir=folder)
    assert (folder / "episodes.jsonl").read_bytes() == (whole / "episodes.jsonl").read_bytes()
    assert boxes(folder) == boxes(whole)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("stream.batch=4",), "stream.batch=4"),
        (("setting=frozen", "memory.path=BANK"), "a setting that learns"),
        (("judge=self_consistency",), "judge=llm, heuristic or oracle"),
        (("memory.validate.n=0",), "memory.validate.n=0"),
    ],
)
def test_where_lessons_cannot_be_tried_it_says_so(here, tmp_path, words, why):
    if any("BANK" in word for word in words):
        made, _ = here(*TOY, "limit=2", run_dir=tmp_path / "made")
        words = [word.replace("BANK", str(made / "bank.sqlite")) for word in words]
    with pytest.raises(UserError, match=re.escape(why)):
        here(*TOY, *EVERY, *words, "limit=2", run_dir=tmp_path / "run")
