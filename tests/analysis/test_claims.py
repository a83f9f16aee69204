"""experiment=scenarios and its table: what claude-flow's report claims of each job, beside our runs of it."""

from __future__ import annotations

import shutil

import forkserver
import pandas as pd
import pytest
from conftest import WITH_KITS, command, read_rows, write_rows
from test_scenarios import PLAYERS

from analysis.claims import attempts_of
from analysis.published import load
from analysis.tables import build_tables, load_episodes
from analysis.text_table import to_markdown
from envs.scenarios.env import JOBS

WORDS = dict(zip(JOBS, ("Log in", "cheapest", "Charge", "In the database", "Import", "Bring version"), strict=True))
SCRIPTED = ("agent=act", "llm=scripted", "llm.script.path=test_claims.play", "embedder=hashing")


def play(messages, role, sample):
    """A worker that does what it was told, a judge that sees the rule of a job that failed, a perfect distiller."""
    page = messages[1]["content"] if role == "agent" else messages[-1]["content"]
    job = [name for name, word in WORDS.items() if word in page][0]
    if role == "judge":
        return f'Thoughts: it is said.\nStatus: "{"failure" if "he rule" in page else "success"}"'
    if role == "extractor":
        lesson = JOBS[job].lesson()
        parts = f"## Title {lesson.title}", f"## Description {lesson.description}", f"## Content {lesson.content}"
        return "\n".join(("# Memory Item 1", *parts))
    told = "\n".join(message["content"] for message in messages[:2])
    player = PLAYERS[job](lambda rule: rule in told, told)
    action = next(player)
    try:
        for message in messages[3::2]:
            action = player.send(message["content"])
    except StopIteration:
        return "wait(seconds=1)"
    return action


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two jobs of the experiment, with two seeds."""
    folder = tmp_path_factory.mktemp("claims")
    words = ("experiment=scenarios", "env=scenarios", "env.jobs=[login,shop]", *SCRIPTED, "seed=0,1")
    told = {"env": WITH_KITS, "cwd": folder, "capture_output": True, "text": True, "timeout": 240, "check": False}
    done = forkserver.run(command(*words, f"run_dir={folder}"), **told)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_table_has_each_job_beside_what_is_claimed(runs):
    _, (ours, beside) = build_tables(load_episodes([str(runs)]), "scenarios")
    assert [row[0] for row in ours.rows] == ["no_memory", "reasoningbank", "told_lesson"]
    assert beside.head == [
        "job", "no_memory", "reasoningbank", "told_lesson", "claimed\nno_memory", "claimed\nreasoningbank"
    ]  # fmt: skip
    login, shop = beside.rows
    assert login[0] == "login" and login[4:] == ["0 of 3 solved", "2 of 3 solved"]
    assert shop[0] == "shop" and shop[4:] == ["3 attempts, all failed", "33 % fewer attempts"]
    # A perfect distiller fails once and then never: in three rounds what the report claims.
    for job in (login, shop):
        told = [cell.split("\n")[:2] for cell in job[1:4]]
        assert told == [
            ["0 / 6", "3.0 attempts"], ["4 / 6", "2.0 attempts (33 % fewer)"], ["6 / 6", "1.0 attempts (67 % fewer)"]
        ]  # fmt: skip
    assert any("a claim without data" in note for note in beside.notes)
    assert "claimed<br>no_memory" in to_markdown(beside)


def test_steps_are_those_of_the_episodes(runs):
    frame = load_episodes([str(runs)])
    _, (_, beside) = build_tables(frame, "scenarios")
    mine = frame[(frame["arm"] == "reasoningbank") & (frame["task_type"] == "shop")]
    assert beside.rows[1][2].endswith(f"\n{mine['steps'].mean():.1f} steps")


def test_attempts_are_counted_up_to_the_first_success():
    rounds = {0: [0.0, 1.0, 0.0], 1: [0.0, 0.0, 0.0], 2: [1.0], 3: [float("nan"), 0.0, 0.0]}
    frame = pd.DataFrame([{"seed": seed, "success": won} for seed, all_ in rounds.items() for won in all_])
    assert attempts_of(frame) == {0: 2, 1: 3, 2: 1}  # of the seed with a broken round it is not known


def test_a_broken_round_saves_no_attempt(runs, tmp_path):
    folder = shutil.copytree(runs, tmp_path / "runs")
    for seed, cell in ((0, "4 / 5\n2.0 attempts (33 % fewer)"), (1, "4 / 4\n- attempts")):
        [one] = folder.glob(f"arm=reasoningbank*seed={seed}")
        rows = read_rows(one)
        first = next(row for row in rows if row["task_type"] == "login")
        first["status"] = first["trajectories"][0]["ended_by"] = "infra_error"
        first["trajectories"][0]["error"] = "server: gone"
        write_rows(one, rows)
        _, (_, beside) = build_tables(load_episodes([str(folder)]), "scenarios")
        assert beside.rows[0][2].rpartition("\n")[0] == cell


def test_a_claim_stands_in_no_other_table():
    claims = [each for each in load() if "job" in each.values]
    assert {each.values["job"] for each in claims} == set(JOBS)
    assert all(not each.tables and "without data" in each.note and "success" not in each.values for each in claims)


def test_runs_without_an_episode_that_counts_have_no_such_table(runs, tmp_path):
    one = shutil.copytree(next(runs.glob("arm=no_memory*")), tmp_path / "run")
    write_rows(one, read_rows(one)[:2])
    _, texts = build_tables(load_episodes([str(one)]), "scenarios")
    assert [text.title.split(":")[0] for text in texts] == ["Scenarios"]
