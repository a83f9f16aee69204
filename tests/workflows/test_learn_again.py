"""reasoningbank learn, its --judges, and experiment=transfer on the toy world, where the answers are known."""

from __future__ import annotations

import json
import shutil
import sys

import forkserver
import pytest
from conftest import REPO, TOY, command, read_json, read_rows
from kill_kit import kill_at
from report_kit import change_manifest, run_once

from analysis.judges import judged_in, rated
from analysis.runs import read_run
from core.errors import InfraError, UserError
from envs import toy_script
from workflows.stored_attempts import StoredRun


def learn(*words):
    started = [sys.executable, "-m", "scripts.learn", *map(str, words)]
    done = forkserver.run(started, cwd=REPO, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def lessons(run_dir):
    return [[row["task_id"], [record["items"] for record in row["records"]]] for row in read_rows(run_dir)]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return run_once(tmp_path_factory, *TOY, "arm=reasoningbank", "limit=12")


def test_the_own_configuration_gives_the_own_lessons_and_no_call_of_the_agent(source, tmp_path):
    code, _, told = learn(source, f"bank={tmp_path}/again.sqlite")
    assert code == 0, told
    run = tmp_path / "again.run"
    assert lessons(run) == lessons(source)
    assert (tmp_path / "again.sqlite").is_file()
    calls = [json.loads(line) for line in (run / "calls.jsonl").read_text().splitlines()]
    assert {call["role"] for call in calls} == {"judge", "extractor", "embedder"}
    learn(source, f"bank={tmp_path}/again.sqlite")  # a second time pays nothing
    assert len((run / "calls.jsonl").read_text().splitlines()) == len(calls)


KINDS = {
    "matts": ("arm=matts_parallel", "k=3"),
    "rounds": ("arm=matts_sequential", "r=2"),
    "batches": ("arm=reasoningbank", "stream.batch=4"),
    "passes": ("arm=reasoningbank", "stream.passes=2"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_run_gives_its_own_lessons_also_after_a_kill(kind, here, tmp_path):
    folder, bank = tmp_path / "run", tmp_path / "again.sqlite"
    here(*TOY, *KINDS[kind], "limit=8", run_dir=folder)
    words = (str(folder), f"bank={bank}", "llm.delay_s=0.02")
    kill_at(3, [sys.executable, "-m", "scripts.learn", *words], tmp_path / "again.run", cwd=REPO)
    assert not bank.exists()  # it appears when it is whole
    code, _, told = learn(*words)
    assert code == 0, told
    assert lessons(tmp_path / "again.run") == lessons(folder)


def test_attempts_without_memory_give_the_lessons_of_the_arm_that_learned_from_such(source, here, tmp_path):
    """Nothing that the toy's agent reads changes what is to be learned: the labels and lessons are the arm's own."""
    folder = tmp_path / "no_memory"
    here(*TOY, "arm=no_memory", "limit=12", run_dir=folder)
    code, _, told = learn(folder, f"bank={tmp_path}/x.sqlite")
    assert code == 1 and "nothing would be learned" in told and "goes on" not in told
    code, _, told = learn(folder, f"bank={tmp_path}/a.sqlite", "arm=true_labels")
    assert code == 0, told
    assert lessons(tmp_path / "a.run") == lessons(source)


def test_true_labels_are_noted_and_refused_by_an_honest_setting(source, tmp_path):
    code, _, told = learn(source, f"bank={tmp_path}/true.sqlite", "arm=true_labels")
    assert code == 0, told
    labels = {record["label_source"] for row in read_rows(tmp_path / "true.run") for record in row["records"]}
    assert labels == {"oracle"}
    code, _, told = learn(source, f"bank={tmp_path}/x.sqlite", "judge=oracle")
    assert code != 0 and "setting=test_time must not" in told


def test_bad_input_is_one_sentence(source, tmp_path):
    assert "leave it out" in learn(source, f"bank={tmp_path}/a.sqlite", "env=toy")[2]
    (tmp_path / "a.sqlite").write_text("someone else's")
    assert "is there already" in learn(source, f"bank={tmp_path}/a.sqlite")[2]


def test_attempts_that_were_not_stored_whole_are_refused(toy_runs, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(toy_runs / "bank-0", run)
    change_manifest(run, lambda made: made["config"].update(scrub_episodes=True))
    with pytest.raises(UserError, match="did not store its attempts whole: scrub_episodes=true"):
        StoredRun.read(run)


def test_judges_against_the_truth(source, tmp_path):
    words = (source, "--judges", "judge=oracle", "judge=heuristic", "--into", tmp_path / "judges", "--json")
    code, printed, told = learn(*words)
    assert code == 0, told
    recorded, oracle, heuristic = json.loads(printed)["judges"]
    assert recorded["n"] == oracle["n"] == heuristic["n"] == 12
    assert oracle["agreement"] == oracle["kappa"] == 1.0
    assert heuristic["fp"] == 4 and heuristic["agreement"] == pytest.approx(8 / 12)  # it calls every box opened


def test_attempts_that_nobody_judged_are_no_verdicts_that_broke(here, tmp_path, monkeypatch):
    """Four attempts without memory, which ask no judge, and four of which the judge broke at each: 0 and 4 in all."""
    silent, _ = here(*TOY, "arm=no_memory", "limit=4", run_dir=tmp_path / "silent")
    play = toy_script.play

    def gone(messages, role, sample):
        if role == "judge":
            raise InfraError("gone", "server")
        return play(messages, role, sample)

    monkeypatch.setattr("envs.toy_script.play", gone)
    asked, _ = here(*TOY, "limit=4", run_dir=tmp_path / "asked")
    counts = [rated([*judged_in(read_run(run))]) for run in (silent, asked)]
    assert [(each["n"], each["n_none"]) for each in counts] == [(0, 0), (0, 4)]


def test_a_sweep_over_banks(source, tmp_path):
    banks = f"banks={{own: {source}/bank.sqlite}}"
    words = command(*TOY, "experiment=transfer", banks, "limit=12", "seed=0", f"run_dir={tmp_path}/sweep")
    done = forkserver.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "bank=own" in done.stdout
    found = {path.parent.name: read_json(path)["n_success"] for path in (tmp_path / "sweep").glob("*/summary.json")}
    assert found == {
        "arm=no_memory,env=toy,llm=scripted,seed=0": 0,
        "arm=given_bank,env=toy,bank=own,llm=scripted,seed=0": 12,
    }
