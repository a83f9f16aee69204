"""experiment=verdict: from a question to an answer in one command, and the link that breaks."""

from __future__ import annotations

import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time

import forkserver
import numpy as np
import pytest
from conftest import REPO, TOY, command, read_json, wait_for

from analysis.answer import Question, answer_of, stored
from analysis.ladder import BREAKS, HOLDS, STEPS, UNKNOWN, climb, first_break, steps_for
from analysis.report.page import verdicts
from analysis.runs import find_runs, read_run
from analysis.stats import paired, paired_worst
from core.errors import UserError

SMALL = ("experiment=verdict", *TOY, "env.boxes_per_family=5", "hydra.sweeper.skewed=false")


def verdict(folder, *words, status=0):
    done = forkserver.run(
        command(*SMALL, f"run_dir={folder}", *words), cwd=REPO, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def helped(tmp_path_factory):
    folder = tmp_path_factory.mktemp("helped") / "study"
    return folder, verdict(folder)


def test_memory_that_helps_is_said_to_help_after_the_first_look(helped):
    folder, said = helped
    found = read_json(folder / "verdict.json")
    assert found["outcome"] == "better"
    assert [look["n_seeds"] for look in found["looks"]] == [3]
    assert found["looks"][0]["difference"] == pytest.approx(0.8)  # four of five boxes of each family
    assert "Memory helps here: reasoningbank solves 80.0 points more than no_memory" in said
    assert all(each["why"] == "not run" for each in found["ladder"])
    assert found["costs"]["tokens"]["per_extra_success"] > 0


def test_it_says_before_it_starts_what_it_could_find_and_after_the_pilot_what_it_costs(helped):
    _, said = helped
    before, after = said.index("it finds, with a chance of 80 %"), said.index("after 3 tasks of both arms")
    assert before < after < said.index("Memory helps here")


def test_the_pilots_runs_grow_and_nothing_is_paid_twice(helped):
    folder, _ = helped
    for run in folder.glob("*/episodes.jsonl"):
        tasks = [json.loads(line)["task_id"] for line in run.read_text().splitlines()]
        assert len(tasks) == len(set(tasks)) == 20
        calls = [json.loads(line) for line in (run.parent / "calls.jsonl").read_text().splitlines()]
        n_agent = sum(call["role"] == "agent" for call in calls)
        assert n_agent == sum(json.loads(line)["trajectories"][0]["usage"]["calls"] for line in run.open())


def test_the_same_question_comes_to_the_same_bytes_at_no_cost_whatever_changes_no_outcome(helped):
    folder, _ = helped
    before = (folder / "verdict.json").read_bytes()
    assert "nothing new" in verdict(folder, "max_concurrency=2", "budget.run.calls=100000")
    assert (folder / "verdict.json").read_bytes() == before
    assert answer_of(folder, Question.read(folder)) == json.loads(before)


def test_with_a_limit_each_seed_has_the_same_tasks_in_another_order(tmp_path):
    seeds = ("hydra.sweeper.first=2", "hydra.sweeper.most=2", "hydra.sweeper.diagnose=false", "hydra.sweeper.pilot=2")
    verdict(tmp_path / "study", "limit=6", *seeds)
    runs = [read_json(file)["task_ids"] for file in (tmp_path / "study").glob("*/manifest.json")]
    assert len(runs) == 4 and {len(tasks) for tasks in runs} == {6}
    assert len({frozenset(tasks) for tasks in runs}) == 1 and len({tuple(tasks) for tasks in runs}) == 2
    assert read_json(tmp_path / "study" / "verdict.json")["looks"][0]["n_seeds"] == 2


def test_what_to_try_next_is_a_command_that_runs(helped):
    folder, said = helped
    commands = [shlex.split(line) for line in said.partition("to try next:")[2].splitlines() if "main.py" in line]
    assert len(commands) == 3
    assert len({words[-1] for words in commands} | {f"run_dir={folder}"}) == 4  # each in a folder of its own
    for words in commands:
        done = forkserver.run([*words, "dry_run=true"], cwd=REPO, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_plan_that_is_changed_after_a_look_is_refused(helped):
    folder, _ = helped
    before = (folder / "verdict.json").read_bytes()
    said = verdict(folder, "hydra.sweeper.most=20", status=1)
    assert "holds a study with another plan" in said and "most" in said
    assert "Traceback" not in said
    assert (folder / "verdict.json").read_bytes() == before


@pytest.mark.parametrize("word", ["env.p_word=0.5", "limit=10", "hydra.sweeper.first_seed=5", "judge=heuristic"])
def test_another_question_is_not_mixed_into_a_folder(helped, word):
    folder, _ = helped
    before = sorted(path.name for path in folder.glob("*/manifest.json"))
    said = verdict(folder, word, status=1)
    assert "holds a study with another plan" in said and "Traceback" not in said
    assert sorted(path.name for path in folder.glob("*/manifest.json")) == before


def copied(folder, where):
    shutil.copytree(folder, where)
    return where


def test_runs_of_another_configuration_or_seed_in_the_folder_are_not_averaged(helped, tmp_path, cli):
    folder = copied(helped[0], tmp_path / "study")
    words = [*TOY, "env.boxes_per_family=5", "stream.order=shuffled", "arm=reasoningbank"]
    before = read_json(folder / "verdict.json")
    assert cli(*words, "seed=77", f"run_dir={folder / 'more'}").returncode == 0  # beyond the study's seeds
    assert answer_of(folder, Question.read(folder)) == before
    assert cli(*words, "seed=3", "retrieval.top_k=2", f"run_dir={folder / 'other'}").returncode == 0
    with pytest.raises(UserError, match="runs of reasoningbank with several configurations"):
        answer_of(folder, Question.read(folder))


def test_the_report_says_the_answer_that_the_runs_give(helped):
    folder = helped[0]
    [found] = verdicts([read_run(path) for path in find_runs([folder])])
    assert answer_of(folder, Question.read(folder)) == stored(folder)
    assert found["sentence"] == stored(folder)["sentence"] and "not tested:" in found["rest"]


@pytest.mark.parametrize("word", ["arm=no_memory", "seed=3", "k=1,2", "+toy.limit=4"])
def test_it_chooses_arms_and_seeds_itself(tmp_path, word):
    said = verdict(tmp_path / "study", word, status=1)
    assert ("a verdict is one question" in said or "give limit=N" in said) and "Traceback" not in said


def test_a_dry_run_starts_nothing(tmp_path):
    said = verdict(tmp_path / "study", "dry_run=true")
    assert "it finds, with a chance of 80 %" in said and "agent: first prompt" in said
    assert not list(tmp_path.glob("study/*/episodes.jsonl"))


def test_a_budget_that_cannot_pay_the_first_look_is_said_after_the_pilot(tmp_path):
    said = verdict(tmp_path / "study", "budget.run.calls=60", status=1)
    assert "budget.run.calls=60 is too little for the first look" in said


def test_a_budget_that_ends_the_study_leaves_an_answer_and_more_of_it_goes_on(tmp_path):
    folder = tmp_path / "study"
    chance = ("env.p_word=0.3", "env.p_guess=0.3", "hydra.sweeper.diagnose=false")
    said = verdict(folder, *chance, "budget.run.calls=330").partition("to try next:")[2]
    assert read_json(folder / "verdict.json")["outcome"] == "go on"
    assert "budget.run.calls=660" in said and said.index("budget.run.calls=660") < said.index("budget.run.calls=330")
    verdict(folder, *chance, "budget.run.calls=5000", "budget.run.usd=null")
    assert read_json(folder / "verdict.json")["outcome"] == "futile"


def test_killed_at_any_moment_it_comes_to_the_same_answer(tmp_path):
    words = ("env.p_word=0.9", "env.p_guess=0.3", "env.families=2", "env.boxes_per_family=2")
    words += ("hydra.sweeper.first=2", "hydra.sweeper.most=3", "hydra.sweeper.diagnose=true")
    verdict(tmp_path / "whole", *words)
    assert len(list((tmp_path / "whole").glob("*/summary.json"))) > 6  # the ladder's arms, too
    draw = random.Random(3)
    for n_begun in (1, 4, 9):  # in the pilot, before the last look, on the ladder
        killed = forkserver.Popen(
            command(*SMALL, f"run_dir={tmp_path / 'killed'}", *words),
            cwd=REPO,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_for(lambda n=n_begun: len(list((tmp_path / "killed").glob("*/episodes.jsonl"))) >= n)
        time.sleep(draw.uniform(0, 0.3))
        killed.kill()
        assert killed.wait() == -signal.SIGKILL
    verdict(tmp_path / "killed", *words)
    assert (tmp_path / "killed" / "verdict.json").read_bytes() == (tmp_path / "whole" / "verdict.json").read_bytes()
    for run in (tmp_path / "whole").glob("*/episodes.jsonl"):
        assert (tmp_path / "killed" / run.parent.name / "episodes.jsonl").read_bytes() == run.read_bytes()


# The ladder, of made-up outcomes


RATES = {"no_memory": 0.3, "empty_block": 0.3, "placebo": 0.3, "random_retrieval": 0.3, "reasoningbank": 0.3}
RATES |= {"true_labels": 0.3, "strong_extractor": 0.3, "told_lesson": 0.9, "told_bank": 0.3}
WORLDS = {
    "attention": {"empty_block": 0.1, "placebo": 0.1, "random_retrieval": 0.1, "reasoningbank": 0.1},
    "any text": {"placebo": 0.1, "random_retrieval": 0.1, "reasoningbank": 0.1, "true_labels": 0.1},
    "wrong lessons": {"random_retrieval": 0.1},
    "labels": {"true_labels": 0.9, "strong_extractor": 0.3, "told_bank": 0.9},
    "distillation": {"strong_extractor": 0.9, "told_bank": 0.9},
    "retrieval": {},
    "use": {"told_lesson": 0.3},
    None: {
        "reasoningbank": 0.9,
        "true_labels": 0.9,
        "strong_extractor": 0.9,
        "told_bank": 0.9,
        "random_retrieval": 0.5,
    },
}


def row_of(values, baseline, broke=None, base_broke=None, **more):
    """The comparison of two arms as a table's row."""
    none = np.zeros(values.shape, bool)
    worst = paired_worst(values, baseline, *(none if each is None else each for each in (broke, base_broke)))
    found = paired(values, baseline)
    return found | {"p_worst": worst["p"], "difference_worst": worst["difference"], "alike": 0.0} | more


def compare_of(rates, seed, n_tasks=100, n_seeds=8):
    rng = np.random.default_rng(seed)
    luck = rng.random((n_tasks, n_seeds))  # the same for every arm
    made = {arm: (luck < rate).astype(float) for arm, rate in rates.items()}
    return lambda arm, than, _late: row_of(made[arm], made[than])


@pytest.mark.parametrize("link", WORLDS)
def test_the_first_link_that_breaks_is_named(link):
    steps = steps_for(lessons=True, strong_extractor=True)
    for seed in range(5):
        found = climb(steps, compare_of(RATES | WORLDS[link], seed), 0.1)
        broken = first_break(found)
        assert (broken and broken.link) == link
        assert all(each.answer == HOLDS for each in found[: found.index(broken) if broken else 0])


def test_what_was_not_run_or_is_too_noisy_is_not_known():
    found = climb(STEPS, lambda *_: None, 0.1)
    assert {each.answer for each in found} == {UNKNOWN} and {each.why for each in found} == {"not run"}
    rng = np.random.default_rng(0)
    noise = (rng.random((10, 3)) < 0.5).astype(float), (rng.random((10, 3)) < 0.5).astype(float)
    found = climb(STEPS[:1], lambda *_: row_of(*noise), 0.1)
    assert found[0].answer == UNKNOWN and "points" in found[0].why
    assert first_break(found) is None


def test_a_link_is_not_called_broken_by_what_broke_or_by_seeds_that_are_one():
    rng = np.random.default_rng(0)
    base = (rng.random((60, 6)) < 0.5).astype(float)
    worse = np.where(rng.random(base.shape) < 0.3, 0.0, base)
    assert climb(STEPS[:1], lambda *_: row_of(worse, base), 0.1)[0].answer == BREAKS
    broke = (worse == 0) & (base == 1)
    for row in (row_of(worse, base, broke), row_of(worse, base, alike=0.9)):
        assert climb(STEPS[:1], lambda *_, row=row: dict(row), 0.1)[0].answer == UNKNOWN


def test_without_lessons_to_tell_and_without_a_stronger_model_their_steps_are_left_out():
    arms = {step.arm for step in steps_for(lessons=False, strong_extractor=False)}
    assert arms == {"empty_block", "placebo", "random_retrieval", "true_labels"}


def test_chance_seldom_breaks_a_link():
    """With nothing broken and each arm's luck its own, a link is named in at most one of twenty studies."""
    rates, named = RATES | WORLDS[None], 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        made = {arm: (rng.random((60, 5)) < rate).astype(float) for arm, rate in rates.items()}
        found = climb(STEPS, lambda arm, than, _late, made=made: row_of(made[arm], made[than]), 0.1)
        named += any(each.answer == BREAKS for each in found)
    assert named <= 6


# The controls


def test_a_placebo_has_the_lessons_form_and_length_and_none_of_its_words(tmp_path):
    from core.memory.policies.placebo import neutral

    texts = [neutral(n, seed) for n in (1, 20, 90, 400) for seed in range(200)]
    assert all(len(text) <= max(n, 8) for text, n in zip(texts, (m for m in (1, 20, 90, 400) for _ in range(200))))
    long = [text for text in texts if len(text) > 60]
    assert len(set(long)) == len(long)
    assert neutral(0, 1) == "" and neutral(50, 1) == neutral(50, 1)
    for arm in ("placebo", "empty_block"):
        done = forkserver.run(
            [sys.executable, "main.py", *TOY, f"arm={arm}", "limit=10", f"run_dir={tmp_path / arm}"],
            cwd=REPO,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        rows = [json.loads(line) for line in (tmp_path / arm / "episodes.jsonl").read_text().splitlines()]
        assert not any(row["reward"] for row in rows)  # no lesson's word was seen
        prompts = [row["trajectories"][0]["opening"][0]["content"] for row in rows[4:]]
        assert all("<memory_items>" in prompt for prompt in prompts)
        assert all(("[1] The " in prompt) == (arm == "placebo") for prompt in prompts)
        assert not any("word of the" in prompt for prompt in prompts)
        # Reports and show have what was shown, not what the bank holds under this id.
        shown = [item["content"] for row in rows[4:] for hit in row["retrieved"] for item in hit["items"]]
        assert shown and all(text in prompt for text, prompt in zip(shown, prompts, strict=True))
        told = forkserver.run(
            [sys.executable, "-m", "scripts.show", tmp_path / arm, rows[5]["task_id"]],
            cwd=REPO,
            capture_output=True,
            text=True,
            env=os.environ | {"COLUMNS": "200"},
        ).stdout
        before = told.partition("attempt 0")[0]
        assert "its text replaced" in before and shown[1] in before and "word of the" not in before


def test_a_study_that_is_stored_gives_its_answer_again(helped, tmp_path, monkeypatch, capsys):
    from benchmarks import study

    page = tmp_path / "docs" / "study.md"
    page.parent.mkdir()
    page.write_text("<!-- verdict: helped -->\n", encoding="utf-8")
    for name, value in (("STORE", tmp_path / "docs" / "study"), ("PAGE", page), ("REPO", tmp_path)):
        monkeypatch.setattr(study, name, value)
    assert study.main(["--pack", str(helped[0]), "--name", "helped"]) == 0
    assert study.main(["--write", "--into", str(tmp_path / "runs")]) == 0
    assert study.main([]) == 0  # no run breaks an invariant, though paths were taken out of it, and nothing differs
    assert "1 verdicts, 0 tables and 0 numbers: all as" in capsys.readouterr().out
    text = page.read_text(encoding="utf-8")
    assert "    Memory helps here: reasoningbank solves 80.0 points more" in text and "to try next" not in text
    stored = "".join(file.read_text() for file in (tmp_path / "runs").rglob("*.yaml"))
    assert str(helped[0]) not in stored
    page.write_text(text.replace("80.0 points", "81.0 points"), encoding="utf-8")
    assert study.main([]) == 1
