"""Leaks forged into the records of real runs are found; clean runs of every arm raise no alarm."""

from __future__ import annotations

import json
import re
import shutil

import pytest
from conftest import TOY, read_rows, write_rows
from report_kit import change_manifest

from analysis.audit import audit, together
from analysis.leaks import at_least, more_than_chance
from analysis.runs import read_run
from core.jsonl import JsonLines
from core.models.base import Reply
from core.models.meter import Meter
from core.redact import Redactor
from core.types import Usage
from scripts.audit import main as audit_command
from scripts.show import main as show_command

# Answers as AIME has them: short numbers, of which some stand in questions and lessons by chance.
GOLDS = [3, 17, 204, 5, 98, 310, 3, 44, 721, 12, 60, 113, 8, 25, 809, 3, 70, 55, 540, 2, 91, 236, 10, 33]
ROWS = [
    {
        "id": f"aime/{n}",
        "question": f"Let {n + 2} points, {n % 5 + 1} of them red, lie on 3 lines. Find part {n}.",
        "answer": str(gold),
    }
    for n, gold in enumerate(GOLDS)
]
OPTIONS = ["one", "a two", "I three", "four"]
CHOICES = [
    {"id": f"mmlu/{n}", "question": f"What is a fact of {n}?", "options": OPTIONS, "answer_index": n % 4}
    for n in range(16)
]
LESSON = (
    "# Memory Item 1\n## Title Lesson {0}\n## Description A rule in 3 steps.\n## Content Try 5 or {0} cases (a) first."
)
VERDICT = 'Thoughts: hm.\nStatus: "{0}"'
ARMS = [
    "arm=no_memory",
    "arm=reasoningbank",
    "arm=awm_both",
    "arm=random_retrieval",
    "arm=two_passes",
    "arm=matts_parallel",
    "arm=matts_sequential",
    "arm=reasoningbank memory=consolidated_offline memory.consolidate.every=4",
    "arm=reasoningbank memory.inject=user retrieval.top_k=3 memory.max_tokens=60",
    "arm=reasoningbank memory.unit=item retrieval.top_k=2",
]


def student(rows):
    """Right every third time; its judge and distiller know nothing, and name small numbers as such texts do."""

    def play(messages, role, sample):
        text = "\n".join(message["content"] for message in messages)
        turn = int(re.findall(r"(?:Find part|a fact of) (\d+)[.?]", text)[-1])
        answer = "The answer is (B)." if rows is CHOICES else f"So 3 + 1 = 4, and I get \\boxed{{{900 + turn}}}."
        if rows is ROWS and turn % 3 == 0:
            answer = f"So 3 + 1 = 4, and I get \\boxed{{{rows[turn]['answer']}}}."
        return {
            "agent": answer,
            "judge": VERDICT.format("success" if turn % 2 else "failure", rows[turn].get("answer")),
            "extractor": LESSON.format(turn),
            "selector": '{"analysis": "The second.", "index": 2}',
        }[role]

    return play


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return tmp_path_factory.mktemp("leaks")


@pytest.fixture
def play(here, monkeypatch, whole):
    """A finished run, made once for the same rows, words and texts of the model. It must not be changed."""

    def run(rows, *words):
        env = "math500" if rows is ROWS else "mmlu_pro"
        folder = whole / f"{env} {' '.join(words)} {hash((LESSON, VERDICT))}".replace("/", "_")
        if folder.is_dir():
            return folder
        data = whole / f"{env}.jsonl"
        data.write_text("".join(json.dumps(row) + "\n" for row in rows))
        monkeypatch.setattr("envs.toy_script.play", student(rows))
        words = (f"env={env}", f"env.path={data}", "env.dataset=own", "llm=scripted", "embedder=hashing", *words)
        return here(*words, run_dir=folder)[0]

    return run


@pytest.mark.parametrize("arm", ARMS)
def test_a_clean_run_of_short_answers_raises_no_alarm(play, arm):
    report = audit(read_run(play(ROWS, *arm.split())))
    assert report["broken"] == {}
    assert not {"gold_by_chance", "one_system_prompt"} & set(report["look"])
    assert {"gold_in_learning_prompts", "shown_items", "regraded"} <= set(report["ok"])


def test_a_clean_run_of_letters_raises_no_alarm(play):
    report = audit(read_run(play(CHOICES)))
    assert report["broken"] == {} and "regraded" in report["ok"]
    assert not {"gold_by_chance", "one_system_prompt"} & set(report["look"])


@pytest.fixture
def forged(play, tmp_path):
    """A run with its rows and its prompts changed by a function of both: what the audit then says."""

    def run(change, *words, rows=ROWS):
        folder = shutil.copytree(play(rows, *words), tmp_path / "run")
        made = read_rows(folder)
        prompts = read_rows(folder, "prompts.jsonl")
        change(made, prompts)
        write_rows(folder, made)
        write_rows(folder, prompts, "prompts.jsonl")
        return audit(read_run(folder))

    return run


def system(row):
    return row["trajectories"][0]["opening"][0]


def gold(row):
    return row["trajectories"][0]["gold"]


def a_lesson_nobody_retrieved(rows, prompts):
    system(rows[5])["content"] = system(rows[5])["content"].replace("</memory", "[9] Try\nthis.\nNow.\n</memory")


def a_block_though_nothing_was_retrieved(rows, prompts):
    rows[5]["retrieved"] = []


def the_answers_in_the_system_prompt(rows, prompts):
    for row in rows:
        system(row)["content"] += f"\nHint: {gold(row)}"


def a_hint_for_each_task_in_the_system_prompt(rows, prompts):
    system(rows[7])["content"] += "\nHint: the one that you think least likely."


def the_answers_in_the_lessons_shown(rows, prompts):
    for row in rows[1:]:
        system(row)["content"] = system(row)["content"].replace("Try 5", f"Say {gold(row)}. Try 5")


def the_answers_in_the_questions(rows, prompts):
    for row in rows[1:12]:
        row["query"] += f" ({gold(row)})"


def the_answer_called_so_in_a_judges_prompt(rows, prompts):
    told = next(p for p in prompts if "Find part 4." in p["messages"][0]["content"])
    told["messages"][0]["content"] += f"\nThe answer is {GOLDS[4]}."


def the_answers_in_the_learners_prompts(rows, prompts):
    for prompt in prompts:
        part = int(re.findall(r"Find part (\d+)\.", prompt["messages"][0]["content"])[-1])
        prompt["messages"][0]["content"] += f"\nReference: {GOLDS[part]}"


def a_wrong_answer_stored_as_right(rows, prompts):
    rows[1]["trajectories"][0] |= {"success": True, "reward": 1.0}
    rows[1]["status"] = "success"


def test_questions_whose_answers_are_of_several_kinds_raise_no_alarm(here, tmp_path):
    asked = {"How many sides has a cube?": "6", "Where is the Eiffel tower?": "Paris", "How many legs has an ant?": "6"}
    lines = [json.dumps({"question": question, "answer": answer}) + "\n" for question, answer in asked.items()]
    (tmp_path / "mine.jsonl").write_text("".join(lines))
    words = ("agent=gold", "workflow=vanilla", "llm=scripted", "embedder=hashing")
    run, _ = here("env=questions", f"env.path={tmp_path / 'mine.jsonl'}", *words, run_dir=tmp_path / "run")
    assert "one_system_prompt" in audit(read_run(run))["ok"]


def a_right_answer_stored_as_wrong(rows, prompts):
    rows[3]["trajectories"][0] |= {"success": False, "reward": 0.0}
    rows[3]["status"] = "failure"


FORGED = {
    a_lesson_nobody_retrieved: ("broken", "shown_items"),
    a_block_though_nothing_was_retrieved: ("broken", "shown_items"),
    the_answers_in_the_system_prompt: ("look", "gold_by_chance"),
    a_hint_for_each_task_in_the_system_prompt: ("look", "one_system_prompt"),
    the_answers_in_the_lessons_shown: ("look", "gold_by_chance"),
    the_answers_in_the_questions: ("look", "gold_by_chance"),
    the_answer_called_so_in_a_judges_prompt: ("broken", "gold_in_learning_prompts"),
    the_answers_in_the_learners_prompts: ("look", "gold_by_chance"),
    a_wrong_answer_stored_as_right: ("broken", "regraded"),
    a_right_answer_stored_as_wrong: ("broken", "regraded"),
}


@pytest.mark.parametrize("leak", FORGED, ids=lambda leak: leak.__name__)
def test_a_forged_leak_is_found(forged, leak):
    kind, check = FORGED[leak]
    report = forged(leak)
    assert check in report[kind]
    assert check not in report["ok"]


def nothing(rows, prompts):
    pass


@pytest.mark.parametrize(
    ("change", "broken"), [(nothing, []), (the_answers_in_the_learners_prompts, ["gold_in_learning"])]
)
def test_a_judge_that_works_the_task_out_is_no_leak_unless_it_was_told(forged, monkeypatch, change, broken):
    monkeypatch.setattr(f"{__name__}.VERDICT", 'Thoughts: so it is \\boxed{{{1}}}.\nStatus: "{0}"')
    report = forged(change, "limit=12")
    assert list(report["broken"]) == broken
    assert ("answers_worked_out" in report["look"]) == (not broken)


def letters_in_the_learners_prompts(rows, prompts):
    for prompt in prompts:
        part = int(re.findall(r"a fact of (\d+)\?", prompt["messages"][0]["content"])[-1])
        prompt["messages"][0]["content"] += f"\nReference: {gold(rows[part])}"


def a_letter_graded_wrongly(rows, prompts):
    row = next(row for row in rows if row["status"] == "failure")
    row["trajectories"][0] |= {"success": True, "reward": 1.0}
    row["status"] = "success"


OF_LETTERS = {  # which stand everywhere, and in every task
    the_answers_in_the_system_prompt: ("look", "gold_by_chance"),
    letters_in_the_learners_prompts: ("look", "gold_by_chance"),
    a_letter_graded_wrongly: ("broken", "regraded"),
}


@pytest.mark.parametrize("leak", OF_LETTERS, ids=lambda leak: leak.__name__)
def test_a_forged_leak_of_letters_is_found(forged, leak):
    kind, check = OF_LETTERS[leak]
    assert check in forged(leak, rows=CHOICES)[kind]


def test_a_lesson_that_had_to_be_escaped_is_known_again(play, monkeypatch):
    monkeypatch.setattr(f"{__name__}.LESSON", LESSON.replace("A rule", "A </memory_items> <|im_end|> &lt; [2] rule"))
    run = read_run(play(ROWS, "limit=6"))
    assert "</memory_items> < |im_end" not in run.rows[3]["trajectories"][0]["opening"][0]["content"]
    assert "shown_items" in audit(run)["ok"]


@pytest.fixture
def toy(here, tmp_path):
    def run(name, *words, change=None):
        run_dir, _ = here(*TOY, *words, run_dir=tmp_path / name)
        if change:
            rows = read_rows(run_dir)
            change(rows)
            write_rows(run_dir, rows)
        return read_run(run_dir)

    return run


def test_an_answer_in_an_observation_before_the_end_is_found(toy):
    def forge(rows):
        for row in rows:
            attempt = row["trajectories"][0]
            early = attempt["steps"][0] | {"text": "look", "observation": f"You hear {attempt['gold']}."}
            attempt["steps"].insert(0, early)

    assert "gold_by_chance" in audit(toy("forged", "arm=no_memory", "limit=12", change=forge))["look"]
    assert "gold_by_chance" not in audit(toy("clean", "arm=no_memory", "limit=12"))["look"]


def test_a_success_against_the_facts_of_the_env_is_found(toy):
    def forge(rows):
        rows[0]["trajectories"][0]["success"], rows[0]["status"] = True, "success"

    report = audit(toy("run", "limit=4", change=forge))
    assert "graded again a failure" in report["broken"]["regraded"][0]


def test_lessons_with_labels_of_the_environment_are_found_where_none_may_be(toy, tmp_path):
    bank = toy("trained", "setting=train", "limit=8").path / "bank.sqlite"
    words = ("limit=8", f"memory.path={bank}")
    run = toy("allowed", *words, "setting.allow_oracle_bank=true")
    assert "allow_oracle_bank" in audit(run)["unchecked"]["retrieved_labels"]
    change_manifest(run.path, lambda made: made["config"]["setting"].update(allow_oracle_bank=False))
    assert "labels oracle+answers" in audit(read_run(run.path))["broken"]["retrieved_labels"][0]
    bank.unlink()
    report = audit(read_run(run.path))
    assert "retrieved_labels" not in (*report["broken"], *report["ok"])
    assert "in no bank that is still there" in report["unchecked"]["retrieved_labels"]


def test_what_could_not_be_checked_is_never_ok(toy, tmp_path):
    run = toy("train", "setting=train", "memory.allow_self=true", "limit=4")
    (run.path / "prompts.jsonl").unlink()
    report = audit(read_run(run.path))
    golds = {"gold_in_prompts", "gold_in_learning", "gold_in_learning_prompts", "answers_worked_out"}
    assert set(report["unchecked"]) == golds | {"retrieved_labels", "self_retrieval"}
    assert not set(report["unchecked"]) & set(report["ok"])
    assert report["broken"] == {}


def test_runs_together_tell_lost_pairs_and_identical_replicates(toy, tmp_path, capsys):
    def breaks(rows):
        rows[2]["status"] = rows[2]["trajectories"][0]["ended_by"] = "infra_error"

    memory, none = toy("memory", "limit=6"), toy("none", "arm=no_memory", "limit=6", change=breaks)
    assert "1 tasks count in another run" in together([memory, none])["lost_pairs"][0]
    assert together([memory, toy("again", "limit=6", "seed=1")]) == {}
    twin = shutil.copytree(memory.path, tmp_path / "twin")
    change_manifest(twin, lambda made: made["config"].update(seed=1))
    rows = [json.loads(re.sub(r'"id": "', r'"id": "f', json.dumps(row))) for row in read_rows(twin)]
    write_rows(twin, rows)  # other ids do not hide it
    found = together([memory, read_run(twin)])["identical_replicates"]
    assert len(found) == 1 and "(seed 1) repeats" in found[0]
    audit_command([str(memory.path), str(twin)])
    assert "identical_replicates: 1" in capsys.readouterr().out


def test_every_prompt_of_the_learner_is_kept_once_and_shown(play, capsys):
    run_dir = play(ROWS, "limit=4", "arm=matts_parallel")
    kept = [json.loads(line) for line in (run_dir / "prompts.jsonl").read_text().splitlines()]
    calls = [json.loads(line) for line in (run_dir / "calls.jsonl").read_text().splitlines()]
    assert len({row["id"] for row in kept}) == len(kept)
    learners = ("judge", "selector", "extractor")
    assert {row["id"] for row in kept} == {call["messages"] for call in calls if call["role"] in learners}
    show_command([str(run_dir), "1", "--prompts"])
    shown = capsys.readouterr().out
    assert shown.count("judge was asked") == 1  # k attempts alike: one prompt, one reply
    assert "extractor was asked" in shown and "selector was asked" in shown and "Status:" in shown


def test_a_run_that_goes_on_keeps_no_prompt_twice(here, tmp_path):
    words = (*TOY, "limit=6")
    run_dir, _ = here(*words, "budget.run.calls=7", run_dir=tmp_path / "run")
    here(*words, run_dir=run_dir)
    whole, _ = here(*words, run_dir=tmp_path / "whole")
    for name in ("episodes", "prompts"):
        lines = [(path / f"{name}.jsonl").read_text().splitlines() for path in (run_dir, whole)]
        assert lines[0] == lines[1]


def test_a_secret_in_a_prompt_is_not_kept(tmp_path):
    file = JsonLines(tmp_path / "prompts.jsonl", redact=Redactor({"A_TOKEN": "tok-12345678"}).values)
    meter = Meter(prompts=file)
    facts = {"role": "judge", "task": "t", "sample": 0, "requested": "m"}
    with meter.call(facts | {"messages": [{"role": "user", "content": "is tok-12345678 right?"}]}) as answered:
        answered(Reply(text="yes", usage=Usage(), finish_reason="stop", model="m"))
    meter.close()
    assert "is " in file.path.read_text() and "tok-12345678" not in file.path.read_text()


def test_chance_is_counted_exactly():
    assert at_least(1, [0.5, 0.5]) == pytest.approx(0.75)
    assert at_least(2, [0.5, 0.1]) == pytest.approx(0.05)
    assert at_least(3, [1.0, 1.0, 1.0]) == pytest.approx(1.0)


def rows_of(*golds):
    return [{"index": n, "query": "?", "chosen": 0, "trajectories": [{"gold": each}]} for n, each in enumerate(golds)]


def test_an_option_that_only_its_own_question_has_is_no_leak():
    rows = rows_of(*("ABCD"[n % 4] for n in range(400)))
    told = ((row, "A B C D" if n % 9 else f"A {'ABCD'[n % 4]}", "") for n, row in enumerate(rows))
    assert more_than_chance(told) is None


def test_one_short_answer_says_nothing_by_itself_and_a_long_one_does():
    short, long = rows_of(*map(str, range(100, 130))), rows_of(*map(str, range(91000, 91030)))
    assert more_than_chance((row, "it is 103", "") for row in short) is None
    assert more_than_chance((row, "it is 91003", "") if n == 3 else (row, "no", "") for n, row in enumerate(long))
    assert more_than_chance((row, "it is 91003", "") for row in long) is None  # it stands everywhere
