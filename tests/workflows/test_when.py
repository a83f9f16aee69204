"""retrieval.when: lessons in the opening (task), also after each step (step), or only where the agent is stuck."""

from __future__ import annotations

import re

import pytest
from conftest import TOY, command, read_json, read_rows, write_rows
from kill_kit import kill_at

from analysis.audit import audit
from analysis.runs import read_run
from envs import toy_script
from envs.toy import ToyEnv


@pytest.fixture
def waits(monkeypatch):
    """A student that first waits where it knows no word, which is no action here, and then guesses. It says what it was
    shown again, word by word. Returns the (role, prompt) of all calls."""
    original, asked = toy_script.play, []

    def play(messages, role, sample):
        asked.append((role, "\n".join(message["content"] for message in messages)))
        said = original(messages, role, sample)
        if role != "agent":
            return said
        seen = asked[-1][1]
        if "say sesame" in said and "Nothing happens" not in seen:
            return "Thought: Let me see.\nAction: wait"
        lesson = re.search(r'The word of the \w+ family is "\w+"\.', seen)
        return said.replace("Thought:", f"Thought: {lesson.group()}") if lesson else said

    monkeypatch.setattr("envs.toy_script.play", play)
    return asked


@pytest.mark.parametrize(
    ("when", "steps", "opening"),
    [
        ("task", [2] * 4 + [1] * 36, [0] + [1] * 39),
        ("step", [2] * 4 + [1] * 36, [0] + [1] * 39),
        ("stuck", [2] * 40, [0] * 40),
    ],
)
def test_the_lesson_stands_where_it_is_to_stand(here, waits, when, steps, opening):
    """4 families of 10 boxes; 36 open to who is told the word, at once if the opening tells it, else after a wait.

    The first boxes have no lesson of their family. With `step` the nearest after a wait is the one that the opening
    shows already.
    """
    run, rate = here(*TOY, f"retrieval.when={when}")
    rows = read_rows(run)
    assert rate == 36 / 40
    assert [len(row["trajectories"][0]["steps"]) for row in rows] == steps
    assert [sum("step" not in hit for hit in row["retrieved"]) for row in rows] == opening
    later = [[hit for hit in row["retrieved"] if "step" in hit] for row in rows]
    assert {hit["step"] for each in later for hit in each} == ({1} if when == "stuck" else set())
    if when == "stuck":
        assert [len(each) for each in later] == [0] + [1] * 39
    for row, each in zip(rows, later, strict=True):
        [made] = row["trajectories"]
        blocks = [len(re.findall(r"^\[\d+\] ", step["observation"], re.MULTILINE)) for step in made["steps"]]
        assert sum(blocks) == len(each) == len(made.get("recalled", ()))
        assert [shown["id"] for shown in made.get("recalled", ())] == [hit["id"] for hit in each]
    report = audit(read_run(run))
    assert report["broken"] == {} and {"shown_items", "followed_lessons"} <= {*report["ok"]}
    for role in ("judge", "extractor"):
        prompts = [prompt for asker, prompt in waits if asker == role]
        assert not any("<memory_items>" in prompt or 'family is "' in prompt for prompt in prompts)
        assert any("[memory item]" in prompt for prompt in prompts)


def test_what_it_costs_is_in_the_tables(here, waits, tmp_path):
    from analysis.tables import build_tables, columns_named, every_run, load_episodes

    for when in ("task", "stuck"):
        here(*TOY, f"retrieval.when={when}", "arm=reasoningbank", run_dir=tmp_path / when)
    columns = every_run(columns_named("lessons_shown lesson_tokens lessons_at tokens"))
    _, [table] = build_tables(load_episodes([str(tmp_path)]), columns)
    rows = [dict(zip(table.head, row, strict=True)) for row in table.rows]
    assert [row["lessons shown / task"] for row in rows] == ["0.97", "0.97"]
    assert [row["their tokens / task"] for row in rows][0] == [row["their tokens / task"] for row in rows][1]
    assert len({row["tokens before them"] for row in rows}) == 2


def test_a_block_that_shows_what_was_not_retrieved_is_found(here, waits):
    run, _ = here(*TOY, "retrieval.when=stuck", "limit=6")
    rows = read_rows(run)
    step = rows[5]["trajectories"][0]["steps"][0]
    step["observation"] = step["observation"].replace("Title", "Tale").replace("Word of", "Words for")
    write_rows(run, rows)
    assert "was shown what it had not retrieved" in audit(read_run(run))["broken"]["shown_items"][0]


# A world for `step`: the task does not name its box's family, nor does its lessons' key; waiting shows a sign with it.
SIGNS = ("env._target_=benchmarks.broken_worlds.UnnamedToyEnv", "memory.key=item")


@pytest.fixture
def signs(waits, monkeypatch):
    original = ToyEnv._step

    def step(self, action):
        if action == "wait":
            sign = f"Nothing happens. A sign: {' '.join([self._task.type] * 9)}."
            return sign, 0.0, False, {"valid": False, "won": False}
        return original(self, action)

    monkeypatch.setattr(ToyEnv, "_step", step)
    return waits


@pytest.mark.parametrize("when", ["step", "stuck"])
def test_what_was_last_observed_finds_the_lesson(here, signs, when):
    """The sign, not the task, finds the word of the box's family: 36 of 40 open."""
    run, rate = here(*TOY, *SIGNS, f"retrieval.when={when}")
    rows = read_rows(run)
    later = [row for row in rows if any("step" in hit for hit in row["retrieved"])]
    assert rate == 36 / 40 and len(later) > 20
    assert all(hit["step"] == 1 for row in later for hit in row["retrieved"] if "step" in hit)
    assert audit(read_run(run))["broken"] == {}


def test_a_record_is_shown_once_and_one_cap_holds_for_the_whole_prompt(here, signs):
    run, _ = here(*TOY, *SIGNS, "retrieval.when=step", "retrieval.top_k=3", "memory.max_tokens=60")
    rows = read_rows(run)
    shown = [[hit["id"] for hit in row["retrieved"] if hit["n_shown"]] for row in rows]
    assert all(len(ids) == len(set(ids)) <= 2 for ids in shown) and max(map(len, shown)) == 2
    assert any(hit["n_shown"] == 0 for row in rows for hit in row["retrieved"] if "step" in hit)
    left_out = sum(hit["n_items"] - hit["n_shown"] for row in rows for hit in row["retrieved"])
    assert read_json(run / "summary.json")["n_not_shown"] == left_out > 0
    assert audit(read_run(run))["broken"] == {}


@pytest.mark.parametrize(("arm", "when"), [("matts_parallel", "step"), ("matts_sequential", "stuck")])
def test_it_holds_for_several_attempts(here, signs, arm, when):
    run, rate = here(*TOY, *SIGNS, f"arm={arm}", f"retrieval.when={when}", "retrieval.top_k=2", "limit=12")
    assert audit(read_run(run))["broken"] == {}
    hits = [hit for row in read_rows(run) for hit in row["retrieved"] if "step" in hit]
    assert hits and rate > 0
    if arm == "matts_parallel":
        assert {hit["sample"] for hit in hits} == {0, 1, 2}


def test_a_stored_run_of_it_is_learned_from_again(here, waits, tmp_path):
    run, _ = here(*TOY, "retrieval.when=stuck", "limit=8")
    again, _ = here(*TOY, f"attempts_from={run}", run_dir=tmp_path / "again")
    first, second = (
        [[record["items"] for record in row["records"]] for row in read_rows(folder)] for folder in (run, again)
    )
    assert first == second


def test_killed_it_comes_to_the_same_bytes(here, tmp_path):
    words = (*TOY, "retrieval.when=step", "retrieval.top_k=2", "arm=matts_parallel", "llm.delay_s=0.01", "limit=12")
    whole, _ = here(*words, run_dir=tmp_path / "whole")
    folder = tmp_path / "killed"
    for n in (2, 9):
        kill_at(n, command(*words, f"run_dir={folder}"), folder)
    here(*words, run_dir=folder)
    assert (folder / "episodes.jsonl").read_bytes() == (whole / "episodes.jsonl").read_bytes()
