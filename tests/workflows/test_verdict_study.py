"""experiment=verdict: from a question to an answer in one command, and the link that breaks."""

from __future__ import annotations

import json
import random
import re
import shlex
import shutil
import signal
import subprocess
import time
from dataclasses import replace
from types import SimpleNamespace

import forkserver
import numpy as np
import pandas as pd
import pytest
from conftest import REPO, TOY, command, read_json, read_rows, wait_for
from report_kit import called

from analysis.answer import (
    Question,
    Runs,
    answer_of,
    had_earlier,
    same_cost,
    sentence,
    spent,
    stored,
    things_to_try,
    unlike,
)
from analysis.answer_page import page
from analysis.audit import together
from analysis.cells import make_cells
from analysis.ladder import BREAKS, HOLDS, STEPS, UNKNOWN, climb, first_break, steps_for
from analysis.load import load_runs
from analysis.report.page import verdicts
from analysis.runs import find_runs, read_run
from analysis.sequential import Design, Interim
from analysis.stats import paired, paired_worst
from benchmarks import study
from core.errors import InfraError, UserError
from core.memory.policies.placebo import neutral
from core.types import Usage, types_before
from envs import toy_script
from hydra_plugins.reasoningbank_verdict._study import GrowingStudy

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
    assert "Memory helps here, with the usual bank: reasoningbank solves 80.0 points more than no_memory" in said
    assert "; 3 seeds, the worst +80.0), and 80.0 points more than placebo (" in said  # of which no lesson names a word
    assert all(each["why"] == "not run" for each in found["ladder"])
    assert found["costs"]["tokens"]["per_extra_success"] > 0


def test_where_attempts_state_no_answer_no_majority_of_them_is_set_against_memory(helped):
    """A box is opened by what is said to it: of two attempts none could be "the answer that most gave"."""
    folder, said = helped
    found = read_json(folder / "verdict.json")
    assert found["same_cost"] is None and not list(folder.glob("*no_memory_same_cost*"))
    why = "(arm=no_memory_same_cost): attempts here state no answer on which most could agree"
    assert f"attempts without memory for what memory costs {why}" in found["not_tested"]
    assert "against" not in said.partition("Memory helps here")[2].replace("against placebo", "")
    assert "  two controls, if the arms differ: " in said


def answers(messages, role, sample):
    """A model whose answer to question N is 70 + N with the lesson "add 70", else N or, of every fourth attempt, 99."""
    text = " ".join(message["content"] for message in messages)
    number = int(re.findall(r"question (\d+)", text)[-1])
    if role == "agent":
        said = 70 + number if "add 70" in text else 99 if sample % 4 == 3 else number
        return f"So \\boxed{{{said}}}."
    lesson = f"# Memory Item 1\n## Title T{number}\n## Description D.\n## Content Of {number}: add 70."
    return "Status: success" if role == "judge" else lesson


def test_a_gain_is_set_against_attempts_for_the_same_tokens(here, tmp_path, monkeypatch):
    """Memory answers five of six questions, all but the first; most attempts without it agree on a wrong answer.

    How many attempts there are follows from the tokens of the first seed's tasks.
    """
    rows = [{"id": f"q/{n}", "question": f"What is question {n}?", "answer": str(70 + n)} for n in range(6)]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("env=questions", f"env.path={tmp_path / 'q.jsonl'}", "llm=scripted", "embedder=hashing")
    monkeypatch.setattr("envs.toy_script.play", answers)
    folder, question = tmp_path / "study", Question(design=Design(first=2, most=2, skewed=False))

    def play(arm, *more):
        for seed in (0, 1):
            own = (*words, "stream.order=shuffled", f"arm={arm}", f"seed={seed}", *more)
            here(*own, run_dir=folder / f"arm={arm},seed={seed}")

    play("no_memory"), play("reasoningbank")
    k = GrowingStudy._attempts_at_same_cost(SimpleNamespace(folder=folder, question=question))
    runs = {(run.arm, run.config["seed"]): run for run in map(read_run, find_runs([folder]))}
    calls = {arm: runs[arm, 0].summary["calls"] for arm in ("reasoningbank", "no_memory")}
    tokens = {
        arm: sum(used[role][kind] for role in ("agent", "judge", "extractor") if role in used for kind in KINDS)
        for arm, used in calls.items()
    }
    assert k == round(tokens["reasoningbank"] / tokens["no_memory"]) > 2
    play("no_memory_same_cost", f"k={k}")
    runs, look = Runs(folder, question), Interim(n_seeds=2, verdict="better", outcome="clear")
    found = same_cost(question, runs, [look])
    assert (found["k"], found["agreed"], found["difference"]) == (k, 1.0, pytest.approx(5 / 6))
    assert found["tokens"] == {
        "arm": pytest.approx(tokens["reasoningbank"] / tokens["no_memory"], rel=0.05),
        "same_cost": pytest.approx(k, rel=0.05),
    }
    said = page(
        folder, {"sentence": "", "question": {"design": {"effect": 0.1}}, "looks": [], "same_cost": found} | REST
    )
    told = f"  against {k} attempts without memory and the answer that most of them gave (two or more in 100 % of the"
    assert any(line.startswith(told) and ": +83.3 points (" in line for line in said)
    assert set(runs.of("no_memory_same_cost")["n_agreed"]) == {k - k // 4}  # every fourth answers 99


REST = {"costs": {}, "ladder": [], "try": [], "not_tested": []}
KINDS = ("prompt_tokens", "completion_tokens")


def test_a_block_that_helps_whatever_it_says_is_not_called_memory(tmp_path):
    """19 of 20 boxes open with a block, whose lessons say nothing, and none without one: the placebo opens as many."""
    words = ("env.p_guess=1", "llm.script.path=benchmarks.broken_worlds.play_encouraged", "hydra.sweeper.most=3")
    said = verdict(tmp_path / "study", *words, "hydra.sweeper.same_cost=0")
    found = read_json(tmp_path / "study" / "verdict.json")
    assert found["outcome"] == "block, better"
    assert (found["looks"][-1]["difference"], found["content"][-1]["difference"]) == (pytest.approx(0.95), 0.0)
    assert found["content"][-1]["outcome"] == "most"
    assert "A block before the task helps here, with the usual bank; whether its content does was not shown" in said
    assert "Memory helps" not in said


@pytest.mark.parametrize("sign", [1, -1])
def test_memory_helps_or_harms_only_where_its_content_does(sign):
    """Three seeds at 60 points are clear (t = 130, p = 1 - t / sqrt(t^2 + 2) = .00006), 2 against the control not."""
    question, verdicts = Question(design=Design(skewed=False)), {1: "better", -1: "worse"}
    clear, little = (
        question.design.look(sign * np.array([means]), np.zeros((1, 3)))
        for means in ((0.592, 0.6, 0.608), (0.01, 0.02, 0.03))
    )
    assert clear.verdict == verdicts[sign] and little.verdict == "same"
    for content, said in (
        ([], "; placebo, which has the form of lessons without their content, was not run"),
        ([little], f"and 2.0 points {'more' if sign > 0 else 'less'} than placebo"),
        ([question.design.look(np.array([(-sign, -sign, -sign)]), np.zeros((1, 3)))], "than placebo"),
    ):
        text = sentence(question, clear, 3, content)
        assert text.startswith("A block before the task h") and "its content does was not shown" in text
        assert said in text and f"{3} seeds, the worst {sign * 59.2:+.1f})" in text
    assert sentence(question, clear, 3, [clear]).startswith(f"Memory {'helps' if sign > 0 else 'harms'} here, with the")
    plain = sentence(replace(question, control=""), clear, 3, [])  # two arms with a memory, or two without
    assert plain.startswith(f"reasoningbank is {verdicts[sign]} than no_memory here: reasoningbank solves 60.0 points")
    assert "Memory" not in plain and "block" not in plain and "placebo" not in plain


@pytest.mark.parametrize(
    ("arm", "control", "why"),
    [
        ("reasoningbank", "placebo", ""),
        ("ace", "ace retrieval=placebo", "shows what ace shows"),  # its playbook is shown by no policy of retrieval
        ("history", "history retrieval=placebo", "shows [0-9]+ tokens of lessons a task where history shows [0-9]+"),
        (
            "dc_synthesis",
            "dc_synthesis retrieval=placebo",
            "shows 0 tokens of lessons a task where dc_synthesis shows [0-9]+",
        ),
    ],
)
def test_a_control_that_shows_the_lessons_or_much_less_is_no_control(here, tmp_path, arm, control, why):
    """A gain over a control that says the same would be none, and one over hardly any text is not the content's."""
    question, named = Question(arm=arm, control=control), control.split()
    for name, words in (("own", [f"arm={arm}"]), ("control", [f"arm={named[0]}", *named[1:]])):
        here(*TOY, *words, "limit=12", run_dir=tmp_path / "study" / name)
    found = unlike(question, Runs(tmp_path / "study", question))
    assert re.fullmatch(why, found)
    about = {"low": 0.2, "high": 0.8, "p": 0.01, "worst_seed": 0.4, "outcome": "clear"}
    clear = Interim(n_seeds=3, difference=0.5, verdict="better", **about)
    said = sentence(question, clear, 3, [] if why else [clear], found)
    claim = "A block before the task helps here, with the usual bank; whether its content does was not shown: "
    assert said.startswith(claim if why else "Memory helps here")
    assert not why or said.endswith(f"; {control} {found}, so it is no control of the lessons' content.")


def test_what_a_task_cost_counts_the_tries_that_broke(here, tmp_path, monkeypatch):
    """Four tasks of known tokens and a try of 100 that broke: a task costs a quarter of all."""
    original, broken = toy_script.play, []

    def play(messages, role, sample):
        if role == "agent" and not broken:
            broken.append(InfraError("oops", "server"))
            broken[0].usage = Usage(calls=1, prompt_tokens=90, completion_tokens=10, cost_usd=0.0)
            raise broken[0]
        return original(messages, role, sample)

    monkeypatch.setattr("envs.toy_script.play", play)
    here(*TOY, "arm=no_memory", "limit=4", run_dir=tmp_path / "run")
    frame = load_runs([tmp_path / "run"])
    assert broken and spent(frame)["tokens"] == (frame["tokens"].sum() + 100) / 4


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
        attempts = [attempt for line in run.open() for attempt in json.loads(line)["trajectories"]]
        assert n_agent == sum(attempt["usage"]["calls"] for attempt in attempts)


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


@pytest.mark.parametrize(("word", "differs"), [("hydra.sweeper.most=20", "most"), ("limit=10", "configuration")])
def test_another_plan_or_question_is_not_mixed_into_a_folder(helped, word, differs):
    folder, _ = helped
    before = (folder / "verdict.json").read_bytes(), sorted(folder.glob("*/manifest.json"))
    said = verdict(folder, word, status=1)
    assert re.search(rf"holds a study with another plan \([^)]*{differs}", said) and "Traceback" not in said
    assert ((folder / "verdict.json").read_bytes(), sorted(folder.glob("*/manifest.json"))) == before


def test_runs_of_another_configuration_or_seed_in_the_folder_are_not_averaged(helped, tmp_path, here):
    folder = shutil.copytree(helped[0], tmp_path / "study")
    words = [*TOY, "env.boxes_per_family=5", "stream.order=shuffled", "arm=reasoningbank"]
    before = read_json(folder / "verdict.json")
    here(*words, "seed=77", run_dir=folder / "more")  # beyond the study's seeds
    assert answer_of(folder, Question.read(folder)) == before
    here(*words, "seed=3", "retrieval.top_k=2", run_dir=folder / "other")
    with pytest.raises(UserError, match="runs of reasoningbank with several configurations"):
        answer_of(folder, Question.read(folder))


def test_the_report_says_the_answer_that_the_runs_give(helped):
    folder = helped[0]
    [found] = verdicts([read_run(path) for path in find_runs([folder])])
    assert answer_of(folder, Question.read(folder)) == stored(folder)
    assert found["sentence"] == stored(folder)["sentence"] and "not tested:" in found["rest"]


def test_an_answer_that_was_edited_and_seeds_that_are_gone_are_said(helped, tmp_path):
    folder = tmp_path / "study"
    shutil.copytree(helped[0], folder)
    file = folder / "verdict.json"
    file.write_text(file.read_text().replace("80.0 points more than no_memory", "99.0 points more than no_memory"))
    said = stored(folder)["sentence"]
    assert said.startswith("verdict.json holds another answer than the runs give now, which is: Memory helps here")
    assert "80.0 points more than no_memory" in said and "99.0" not in said
    runs = [read_run(path) for path in find_runs([folder])]
    assert together(runs)["edited_verdicts"] == [f"{folder}: {said}"]
    for run in folder.glob("*seed=2*"):
        shutil.rmtree(run)
    assert "the first look needs 3 seeds, and 2 are there" in stored(folder)["sentence"]
    cells = make_cells(load_runs([folder]), "no_memory")
    assert cells.table.set_index("arm").loc["reasoningbank", "seeds_missing"] == (2,)


def test_a_bank_from_before_may_hold_lessons_of_any_type(helped):
    runs = Runs(helped[0], Question.read(helped[0]))
    assert runs.recur()[1] > 0
    runs.frame["given_bank"] = "of another run"
    assert runs.recur() == (0, 0)


def test_nothing_is_proposed_that_the_study_would_refuse():
    """Of a single reply nothing is quoted; where no attempt states an answer, none is voted for."""
    proposed = {
        (1, 1): ["hydra.sweeper.arm=labels_self_consistency", "retrieval.top_k=3"],
        (3, 0): ["+distiller.style=quote", "retrieval.top_k=3"],
    }
    for (steps, n_agreed), words in proposed.items():
        episodes = pd.DataFrame({"steps": [steps, 1], "n_agreed": [n_agreed, 0]})
        runs = SimpleNamespace(of=lambda arm, episodes=episodes: episodes)
        assert things_to_try(Question(), runs, "undecided", []) == words


def test_seeds_that_are_largely_one_are_not_called_no_difference():
    about = {"low": 0.78, "high": 1.0, "p": 1e-8, "worst_seed": 0.9, "verdict": "untested"}
    said = sentence(Question(), Interim(n_seeds=4, difference=0.9, outcome="most", **about), 4, [])
    assert said.startswith("Not tested: reasoningbank solves 90.0 points more than no_memory, but the 4 seeds largely")
    said = sentence(Question(), Interim(n_seeds=1, difference=0.9, verdict="untested", outcome="go on"), 4, [])
    assert "needs 3 seeds that differ, and of the 4 that are there 3 repeat another one" in said


def test_a_study_of_one_given_bank_speaks_of_that_bank_alone():
    """Four seeds of the same bank say what chance does to one bank, and nothing of the usual one."""
    about = {"low": 0.1, "high": 0.4, "p": 0.001, "worst_seed": 0.2, "outcome": "clear"}
    clear = Interim(n_seeds=4, difference=0.25, verdict="better", **about)
    for n_banks, said in (
        (0, ", with the usual bank:"),
        (1, ", of this bank alone:"),
        (2, ", of these 2 banks alone:"),
    ):
        assert sentence(Question(), clear, 4, [clear], "", n_banks).startswith(f"Memory helps here{said} ")
        assert f"here{said[:-1]}; whether its content does" in sentence(Question(), clear, 4, [], "", n_banks)


def test_content_that_does_the_contrary_of_the_block_is_said():
    """95 % of the tasks with any block, 70 with these lessons, 45 without a block: better, and worse than placebo."""
    about = {"n_seeds": 4, "low": 0.1, "high": 0.4, "p": 0.001, "worst_seed": 0.2, "outcome": "clear"}
    block, content = (
        Interim(**about, difference=difference, verdict=found)
        for difference, found in ((0.25, "better"), (-0.25, "worse"))
    )
    said = sentence(Question(), block, 4, [content])
    assert said.startswith("A block before the task helps here, with the usual bank, and the content of the lessons ha")
    assert "25.0 points less than placebo" in said and "was not shown" not in said


@pytest.mark.parametrize("word", ["arm=no_memory", "k=1,2", "+toy.limit=4"])
def test_it_chooses_arms_and_seeds_itself(tmp_path, word):
    said = verdict(tmp_path / "study", word, status=1)
    assert ("a verdict is one question" in said or "give limit=N" in said) and "Traceback" not in said


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("judge=heuristic",), "judge=heuristic: arm=true_labels of this study sets that itself"),
        (("retrieval=hybrid",), "retrieval=hybrid: arm=placebo of this study sets that itself"),
        (("retrieval.domain=same", "memory.domain=type"), "retrieval.domain=same: arm=told_lesson of this study sets"),
        (("hydra.sweeper.baseline=reasoningbank",), "are one configuration here: nothing is compared"),
        (("hydra.sweeper.arm=two_passes",), "plays each task 2 times, arm=no_memory 1: give a baseline that"),
    ],
)
def test_words_with_which_an_arm_would_be_another_are_refused(tmp_path, words, why):
    said = verdict(tmp_path / "study", *words, "dry_run=true", status=1)
    assert why in said and "Traceback" not in said


def test_a_dry_run_starts_nothing(tmp_path):
    said = verdict(tmp_path / "study", "dry_run=true")
    assert "no_memory_same_cost" in said and "placebo" in said  # their cost, too
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
    for n_begun in (1, 9):  # in the pilot, on the ladder
        started = command(*SMALL, f"run_dir={tmp_path / 'killed'}", *words)
        killed = forkserver.Popen(started, cwd=REPO, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
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
    None: dict.fromkeys(("reasoningbank", "true_labels", "strong_extractor", "told_bank"), 0.9)
    | {"random_retrieval": 0.5},
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
        found = climb(steps, compare_of(RATES | WORLDS[link], seed), 0.1, (80, 100))
        broken = first_break(found)
        assert (broken and broken.link) == link
        assert all(each.answer == HOLDS for each in found[: found.index(broken) if broken else 0])


def test_where_nothing_recurs_the_best_lessons_come_too_late():
    """Every told lesson is perfect, and no task has an earlier one of its type: not the distiller is to blame.

    A gain of 10 points on 60 tasks needs 6 of them.
    """
    steps = steps_for(lessons=True, strong_extractor=False)
    late = RATES | {"told_bank": 0.9, "reasoningbank": 0.3, "true_labels": 0.3}
    for recur, link in (((5, 60), "recurrence"), ((6, 60), "distillation"), ((0, 0), "distillation")):
        found = climb(steps, compare_of(late, 0), 0.1, recur)
        assert first_break(found).link == link
        [counted] = [each for each in found if each.link == "recurrence"]
        assert counted.why.startswith(
            f"{recur[0]} of 60 episodes had an earlier task" if recur[1] else "the tasks have no t"
        )
        assert counted.answer == {5: BREAKS, 6: HOLDS, 0: UNKNOWN}[recur[0]]


def test_a_task_recurs_where_an_earlier_batch_had_another_of_its_type():
    tasks = [("a", "x"), ("b", "y"), ("c", "x"), ("a", "x"), ("b", "y")]  # the last two in a second pass
    assert types_before(tasks) == [(), ("x",), ("x", "y"), ("x", "y"), ("x",)]
    assert types_before(tasks, 3) == [(), (), (), ("x", "y"), ("x",)]
    frame = pd.DataFrame(tasks, columns=["task_id", "task_type"]).assign(run_dir="r", index=range(5), batch=1)
    assert had_earlier(frame).tolist() == [False, False, True, True, False]
    assert not had_earlier(frame.assign(task_type="")).any()


def test_a_told_bank_has_the_lessons_of_the_types_seen(here):
    """Four families of ten boxes: the first box of each has nothing to find, as where lessons are learned."""
    run_dir, rate = here(*TOY, "arm=told_bank")
    rows = read_rows(run_dir)
    assert rate == 36 / 40
    assert [row["index"] for row in rows if not row["reward"]] == [0, 1, 2, 3]
    assert [len(row["retrieved"]) for row in rows[:4]] == [0, 1, 1, 1]  # of another family


@pytest.mark.parametrize(
    ("differences", "why"),
    [
        ((-0.3, 0.1, 0.2, -0.2), "the interval holds both 0 and -10 points"),
        ((-0.1, -0.12, -0.2, -0.09), "the interval leaves out 0, but p is 0.12 after Holm's correction"),
    ],
)
def test_what_the_interval_holds_is_said_as_it_is(differences, why):
    """p of the second is .0145 alone (t = -.1275 / .02496 = -5.1, 3 degrees of freedom), 8 times that in 8 steps."""
    row = row_of(np.array([differences]), np.zeros((1, 4)))
    other = row_of(np.array([(0.01, -0.01, 0.02, -0.02)]), np.zeros((1, 4)))
    found = climb(STEPS, lambda arm, *_: dict(row if arm == "empty_block" else other), 0.1, (60, 60))
    assert found[0].answer == UNKNOWN and found[0].why.startswith(why)


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
    assert arms == {"empty_block", "placebo", "random_retrieval", "true_labels", ""}


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


def test_a_placebo_has_the_lessons_form_and_length_and_none_of_its_words(here, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    texts = [neutral(n, seed) for n in (1, 20, 90, 400) for seed in range(200)]
    assert all(len(text) <= max(n, 8) for text, n in zip(texts, (m for m in (1, 20, 90, 400) for _ in range(200))))
    long = [text for text in texts if len(text) > 60]
    assert len(set(long)) == len(long)
    assert neutral(0, 1) == "" and neutral(50, 1) == neutral(50, 1)
    for arm in ("placebo", "empty_block"):
        run, rate = here(*TOY, f"arm={arm}", "limit=10", run_dir=tmp_path / arm)
        rows = read_rows(run)
        assert rate == 0  # no lesson's word was seen
        prompts = [row["trajectories"][0]["opening"][0]["content"] for row in rows[4:]]
        assert all("<memory_items>" in prompt for prompt in prompts)
        assert all(("[1] The " in prompt) == (arm == "placebo") for prompt in prompts)
        assert not any("word of the" in prompt for prompt in prompts)
        # Reports and show have what was shown, not what the bank holds under this id.
        shown = [item["content"] for row in rows[4:] for hit in row["retrieved"] for item in hit["items"]]
        assert shown and all(text in prompt for text, prompt in zip(shown, prompts, strict=True))
        before = called(capsys, "show", run, rows[5]["task_id"]).stdout.partition("attempt 0")[0]
        assert "its text replaced" in before and shown[1] in before and "word of the" not in before


def test_a_study_that_is_stored_gives_its_answer_again(helped, tmp_path, monkeypatch, capsys):
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
    assert "    Memory helps here, with the usual bank: reasoningbank solves 80.0 points more" in text
    assert "to try next" not in text
    stored = "".join(file.read_text() for file in (tmp_path / "runs").rglob("*.yaml"))
    assert str(helped[0]) not in stored
    page.write_text(text.replace("80.0 points", "81.0 points"), encoding="utf-8")
    assert study.main([]) == 1


def test_a_ladder_that_knows_nothing_clears_no_link_and_a_chance_names_what_it_supposes(tmp_path):
    unknown = {"link": "any text", "answer": UNKNOWN, "why": "the interval holds both 0 and -10 points"}
    rung = unknown | {"arm": "placebo", "than": "empty_block", "difference": -0.02, "low": -0.2, "high": 0.16}
    look = {"n_seeds": 3, "difference": 0.02, "low": -0.3, "high": 0.34, "worst_seed": -0.1, "p": 0.9}
    look |= {"outcome": "go on", "conditional_power": 0.4}
    found = {"sentence": "Not decided yet.", "question": {"design": {"effect": 0.1}, "control": ""}, "costs": {}}
    found |= {
        "looks": [look, look | {"difference": -0.15}],
        "ladder": [rung],
        "breaks": None,
        "try": [],
        "not_tested": [],
    }
    said = page(tmp_path, found)
    assert "which link breaks: none was shown to" in said
    assert said[2].endswith("go on   more seeds would show 10.0 points in 40 %")
    assert said[3].endswith("more seeds would show 15.0 points in 40 %")  # what was seen, where that is more
