"""python -m scripts.audit: a clean run passes; every fault that is planted in one is found, and only it."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest
from conftest import REPO, TOY, read_json, read_rows, write_rows
from report_kit import called, run_once

from analysis.audit import audit, audit_folder
from analysis.evidence import answer_in
from analysis.leaks import gold_in_prompts
from analysis.lesson_quality import grade
from analysis.load import load_runs
from analysis.report.data import read_packed
from analysis.runs import read_run
from core.checksum import whole_yaml
from core.errors import UserError
from core.run.metrics import summarise
from core.run.records import current

GOLD = "zebrafish"


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    return run_once(tmp_path_factory, *TOY, "limit=12")


@pytest.fixture
def plant(clean, tmp_path):
    """A copy of the run with its rows, its manifest and its summary changed by a function: what the audit then says."""

    def with_fault(change):
        run = tmp_path / "run"
        shutil.copytree(clean, run)
        rows, files = read_rows(run), {name: read_json(run / name) for name in ("manifest.json", "summary.json")}
        change(rows, files["manifest.json"], files["summary.json"])
        write_rows(run, rows)
        for name, value in files.items():
            (run / name).write_text(json.dumps(value))
        return audit(read_run(run))

    return with_fault


# Longer runs of these are audited in test_leaks_found.py, test_rivals.py and test_validate.py.
ELSEWHERE = """no_memory reasoningbank awm_both random_retrieval two_passes matts_parallel matts_sequential
    dc_cumulative dc_synthesis ace expel memp grpo amem validated""".split()
ARMS = sorted({path.stem for path in (REPO / "config" / "arm").glob("*.yaml")} - {*ELSEWHERE})
NEEDED = {  # what an arm asks for, or would download
    "strong_extractor": ("llm@extractor_llm=scripted",),
    **dict.fromkeys(("outline", "outline_sequential"), ("memory.consolidate.contradict=null",)),
}


@pytest.mark.parametrize("arm", ARMS)
def test_every_arm_passes(here, clean, tmp_path, arm):
    words = (f"memory.path={clean / 'bank.sqlite'}",) if arm == "given_bank" else NEEDED.get(arm, ())
    run, _ = here(*TOY, f"arm={arm}", *words, "limit=3", run_dir=tmp_path / arm)
    report = audit(read_run(run))
    assert report["broken"] == {}
    if arm in ("placebo", "empty_block"):
        assert "shown_items" in report["ok"] and any(row["retrieved"] for row in read_rows(run))


def test_a_lesson_that_is_neither_the_banks_nor_the_episodes_is_found(here):
    run, _ = here(*TOY, "arm=placebo", "limit=6")
    rows = read_rows(run)
    place = next(place for place, row in enumerate(rows) if row["retrieved"])
    rows[place]["retrieved"][0]["items"][0]["content"] = "Other words."
    write_rows(run, rows)
    [line] = audit(read_run(run))["broken"]["shown_items"]
    assert line.startswith(f"episode {place} ") and "was shown what it had not retrieved" in line


def test_a_clean_run_passes_and_one_with_a_fault_exits_with_1(clean, plant, tmp_path, program, capsys):
    assert program("-m", "scripts.audit", clean).returncode == 0

    def own_record(rows, manifest, summary):
        rows[5]["retrieved"] = [{"id": rows[5]["records"][0]["id"], "score": 1.0, "n_items": 1, "n_shown": 1}]

    plant(own_record)
    done = called(capsys, "audit", tmp_path / "run")
    assert done.returncode == 1
    assert "self_retrieval: 2" in done.stdout  # its own, and of a later time
    assert called(capsys, "audit", tmp_path / "nothing").returncode == 2


def gold_in_the_prompt(rows, manifest, summary):
    rows[3]["trajectories"][0]["opening"][0]["content"] += f" The answer is {rows[3]['trajectories'][0]['gold']}."


def gold_in_a_lesson(rows, manifest, summary):
    rows[3]["trajectories"][0]["gold"] = GOLD
    rows[3]["lessons"][0]["content"] = f"Say {GOLD}."


def gold_in_the_verdict(rows, manifest, summary):
    rows[3]["trajectories"][0]["gold"] = GOLD
    for verdict in (rows[3]["verdict"], *rows[3]["verdicts"]):
        verdict["reason"] = f"The expected answer was {GOLD}."


def oracle_verdict(rows, manifest, summary):
    summary["label_source"] = "oracle"
    for row in rows:
        row["verdict"]["source"] = "oracle"


def record_of_the_future(rows, manifest, summary):
    rows[1]["retrieved"] = [{"id": rows[6]["records"][0]["id"], "score": 1.0, "n_items": 1, "n_shown": 1}]
    shown, _, _ = rows[1]["trajectories"][0]["opening"][0]["content"].partition("<memory_items>")
    rows[1]["trajectories"][0]["opening"][0]["content"] = shown  # else it was shown another one than it had retrieved


def failure_as_success(rows, manifest, summary):
    rows[0]["status"] = "success"
    summary["n_success"] += 1
    summary["success_rate"] = round(summary["n_success"] / summary["n"], 4)


def broken_that_teaches(rows, manifest, summary):
    rows[4]["trajectories"][0] |= {"ended_by": "infra_error", "error": "llm: gone"}
    rows[4]["status"] = "infra_error"
    summary |= {"n": 11, "n_infra_error": 1, "n_success": 7, "success_rate": 0.6364}


def other_tasks(rows, manifest, summary):
    manifest["task_ids"] = [*manifest["task_ids"][:-1], "toy/other/1"]
    rows[-1]["task_id"] = rows[-1]["records"][0]["task_id"] = "toy/other/1"


def verdict_of_another(rows, manifest, summary):
    rows[3]["verdict"]["label"] = "failure" if rows[3]["verdict"]["label"] == "success" else "success"


def at(*path, to):
    """The fault of another value at a place in the rows, the manifest and the summary: at(0, 2, "reward", to=0.75)."""

    def change(*files):
        inner = files
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = to

    return change


ROWS, MANIFEST, SUMMARY = 0, 1, 2
BROKEN = {  # {a fault: (the invariant that it breaks, it)}
    "reward of another": ("contradictions", at(ROWS, 0, "reward", to=0.75)),
    "verdict of another": ("contradictions", verdict_of_another),
    "usage without calls": ("contradictions", at(ROWS, 2, "usage", "agent", "prompt_tokens", to=99_999)),
    "cost without calls": ("contradictions", at(ROWS, 2, "usage", "judge", "cost_usd", to=9.0)),
    "gold in the prompt": ("gold_in_prompts", gold_in_the_prompt),
    "oracle verdict": ("oracle_labels", oracle_verdict),
    "oracle record": ("oracle_labels", at(ROWS, 2, "records", 0, "label_source", to="oracle")),
    "record of the future": ("self_retrieval", record_of_the_future),
    "broken as failure": ("denominators", at(ROWS, 4, "trajectories", 0, "ended_by", to="infra_error")),
    "failure as success": ("denominators", failure_as_success),
    "broken that teaches": ("denominators", broken_that_teaches),
    "counted in the summary": ("denominators", at(SUMMARY, "n_success", to=9)),
    "record twice": ("lost_or_doubled", lambda rows, *_: rows[7].update(records=rows[6]["records"])),
    "changed manifest": ("drift", at(MANIFEST, "config", "retrieval", "top_k", to=3)),
    "other tasks": ("drift", other_tasks),
}


FORGED = {"content_ids", "changed_lessons", "contradictions"}  # besides, it is no longer what was written


NO_ROW = {  # what no run writes
    "$.reward": lambda row: row.update(reward=9.0),
    "$.verdicts[0].confidence": lambda row: row["verdicts"][0].update(confidence="forged"),
    "value 'won' - at `$.status": lambda row: row.update(status="won"),
    "missing required field `task_type`": lambda row: row.pop("task_type"),
    "unknown field `labels` - at `$.verdict`": lambda row: row["verdict"].update(labels=row["verdict"].pop("label")),
    "$.usage[...].prompt_tokens": lambda row: row["usage"]["agent"].update(prompt_tokens=-5),
    "value 'won' - at `$.trajectories[0].ended_by": lambda row: row["trajectories"][0].update(ended_by="won"),
    "a verdict on each attempt": lambda row: row.update(chosen=4),
}


@pytest.mark.parametrize("said", NO_ROW)
def test_a_row_that_no_run_writes_is_refused_though_no_checksum_says_so(clean, tmp_path, said):
    run = shutil.copytree(clean, tmp_path / "run")
    rows = read_rows(run)
    NO_ROW[said](rows[2])
    write_rows(run, rows)
    for read in (lambda: audit_folder(run), lambda: load_runs([run]), lambda: read_packed(run)):
        with pytest.raises(UserError, match=rf"episodes.jsonl line 3 is damaged: .*{re.escape(said)}"):
            read()


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_invariant_is_found(plant, fault):
    invariant, change = BROKEN[fault]
    assert set(plant(change)["broken"]) - (FORGED - {invariant}) == {invariant}


@pytest.mark.parametrize("fault", [gold_in_a_lesson, gold_in_the_verdict], ids=lambda fault: fault.__name__)
def test_an_answer_that_only_the_learner_knows_is_broken_unless_its_prompts_are_there_without_it(
    plant, tmp_path, fault
):
    report = plant(fault)
    assert report["broken"] == {} and len(report["look"]["answers_worked_out"]) == 1
    (tmp_path / "run" / "prompts.jsonl").unlink()
    report = audit(read_run(tmp_path / "run"))
    assert list(report["broken"]) == ["gold_in_learning"]
    assert "answers_worked_out" in report["unchecked"]


DOORS = ("crimson", "emerald", "cobalt")


@pytest.mark.parametrize(
    ("line", "n_rows", "n_found"),
    [
        ("The doors are crimson, emerald and cobalt.", 12, 0),  # to every task alike
        ("The doors are crimson and emerald.", 12, 8),  # cobalt is the answer of four: no list of the options
        ("The doors are crimson, emerald and cobalt.", 3, 3),  # of so few tasks it may be an answer key
        ("The door is {}.", 12, 12),
        ("Doors: crimson, emerald, cobalt. Hint: {}", 12, 12),
    ],
)
def test_only_a_list_of_options_tells_no_answer(clean, line, n_rows, n_found):
    run = read_run(clean)
    rows = json.loads(json.dumps(run.rows[:n_rows]))
    for number, row in enumerate(rows):
        for attempt in row["trajectories"]:
            attempt["gold"] = DOORS[number % 3]
            attempt["opening"][0]["content"] += "\n" + line.format(attempt["gold"])
    assert len(list(gold_in_prompts(replace(run, rows=rows)))) == n_found


def test_a_failure_that_counted_and_was_tried_again_is_found(here):
    run_dir, _ = here(*TOY, "limit=12", "arm=no_memory")
    rows = read_rows(run_dir)
    again = json.loads(json.dumps(rows[3])) | {"index": 12, "retries": 3, "status": "success", "reward": 1.0}
    again["trajectories"][0] |= {"success": True, "reward": 1.0}
    again["trajectories"][0]["info"]["won"] = True
    rows.append(again)
    summary = read_json(run_dir / "summary.json") | summarise(current(rows), 12)
    assert (summary["n"], summary["n_success"]) == (12, 1)
    write_rows(run_dir, rows)
    (run_dir / "summary.json").write_text(json.dumps(summary))
    found = audit(read_run(run_dir))["broken"]
    assert found["denominators"] == [f"episode 3 ({again['task_id']}): counted, and was tried again"]


def test_the_environment_of_an_earlier_run_is_found_though_its_module_has_moved(plant):
    def moved(rows, manifest, summary):
        manifest["config"]["env"]["_target_"] = "envs.toy_env.ToyEnv"
        rows[0]["trajectories"][0]["info"]["won"] ^= True

    assert list(plant(moved)["broken"]) == ["regraded"]


def test_a_run_whose_success_is_not_known_is_not_broken(plant):
    def unevaluated(rows, manifest, summary):
        for row in rows:
            row["trajectories"][row["chosen"]]["info"]["evaluated"] = False
        summary |= summarise(rows, len(rows))
        assert (summary["n"], summary["success_rate"]) == (12, None)

    assert plant(unevaluated)["broken"] == {}


def test_a_bank_that_lost_a_record_is_found(clean, tmp_path):
    shutil.copytree(clean, tmp_path / "run")
    with closing(sqlite3.connect(tmp_path / "run" / "bank.sqlite")) as bank, bank:
        bank.execute("DELETE FROM records WHERE rowid = 3")
    lines = audit(read_run(tmp_path / "run"))["broken"]["lost_or_doubled"]
    assert len(lines) == 1
    assert "not in the bank" in lines[0]


def test_a_changed_hydra_config_is_found(clean, tmp_path):
    shutil.copytree(clean, tmp_path / "run")
    file = tmp_path / "run" / ".hydra" / "config.yaml"
    changed = file.read_text().partition("# crc32")[0].replace("top_k: 1", "top_k: 2")
    file.write_text(whole_yaml(changed))  # a change that nothing at all gives away
    assert "retrieval.top_k" in audit(read_run(tmp_path / "run"))["broken"]["drift"][0]


def test_a_task_of_an_earlier_bank_that_meets_itself_is_found(here, clean, tmp_path):
    words = ("limit=4", "setting=frozen", f"memory.path={clean / 'bank.sqlite'}")
    run_dir, _ = here(*TOY, *words, run_dir=tmp_path / "run")
    assert audit(read_run(run_dir))["broken"] == {}
    rows = read_rows(run_dir)
    rows[0]["retrieved"] = [{"id": read_rows(clean)[0]["records"][0]["id"], "score": 1.0, "n_items": 1, "n_shown": 1}]
    write_rows(run_dir, rows)
    assert list(audit(read_run(run_dir))["broken"]) == ["self_retrieval"]


@pytest.mark.parametrize(
    ("script", "lost"),
    [
        ("audit", "verdicts"),
        ("audit", "trajectories"),
        ("audit", "status"),
        ("export --to inspect -o logs", "run"),
        ("export --to inspect -o logs", "trajectories"),
        ("export --to parquet -o table", "everything"),
        ("tables", "fingerprint"),
        ("report -o page.html", "query"),
    ],
)
def test_a_record_that_lacks_a_field_is_an_error_of_one_sentence(plant, tmp_path, monkeypatch, capsys, script, lost):
    def without(rows, manifest, summary):
        if lost == "everything":
            rows[3] = []
        else:
            del (manifest if lost in manifest else rows[3])[lost]

    with contextlib.suppress(UserError):
        plant(without)
    name, *words = script.split()
    monkeypatch.chdir(tmp_path)
    done = called(capsys, name, tmp_path / "run", *words)
    assert done.returncode == (1 if name == "report" else 2)
    said = done.stderr.splitlines()
    assert len(said) == 1 and said[0].startswith(f"error: {tmp_path / 'run'}")
    assert " is no whole run: " in said[0] or " line 4 is damaged: " in said[0]


def test_train_may_know_the_answer(here):
    run_dir, _ = here(*TOY, "setting=train", "limit=6")
    assert audit(read_run(run_dir))["broken"] == {}


def test_what_is_worth_a_look(clean, plant):
    look = audit(read_run(clean))["look"]
    assert len(look["near_duplicate_tasks"]) == 8  # boxes 2 and 3 of the 4 families
    assert len(look["lessons_with_answers"]) == 12
    assert len(look["duplicate_lessons"]) == 4

    def more(rows, manifest, summary):
        rows[1]["retrieved"] = [{"id": "unheard-of", "score": 1.0, "n_items": 1, "n_shown": 1}]
        rows[2]["verdicts"][0]["parsed"] = False
        rows[3]["learning_errors"] = ["extractor: timeout"]
        manifest["fingerprint"]["prompts"]["judge"] = "another"
        manifest["starts"].append({**manifest["starts"][0], "git": {"sha": "0" * 40, "dirty": ["core/x.py"]}})

    look = plant(more)["look"]
    assert [len(look[name]) for name in ("unknown_records", "unread_replies")] == [1, 2]
    for told in ("prompt judge is another one today", "went on at 00000000", "core/x.py"):
        assert any(told in line for line in look["other_code"])


def test_the_grade_by_hand(plant, tmp_path):
    def lessons(rows, manifest, summary):
        for row in rows:
            row["lessons"], row["n_dropped"] = [], 0
        whole = {"title": "Look", "description": "First look.", "content": "Look around. Then act."}
        rows[0]["lessons"] = [whole, whole | {"description": " "}, whole | {"content": "A. " * 6}]
        rows[1]["lessons"] = [whole | {"content": "Take the 250 pounds and"}]
        rows[1]["query"] = "Who paid 250 pounds?"
        rows[0]["n_dropped"] = 1

    plant(lessons)
    found = grade(read_run(tmp_path / "run"))
    assert found == {
        "lessons": 4,
        "episodes_that_taught": 2,
        "parse_rate": 0.8,
        "whole_fields": 0.75,
        "finished": 0.75,
        "one_to_five": 0.75,
        "literals": 0.25,
        "distinct": 1.0,
        "words_median": 5,
        "words_most": 6,
        "cut_off": 0,
    }


GIVEN_AWAY = [
    ("it is 1024 here", "1024", "how many?", True),
    ("it is 10245 here", "1024", "how many?", False),
    ("it is 1024 here", "1024", "was it 1024?", False),
    ("take 5 apples", "5", "how many?", False),  # a short answer occurs by chance
    ("so \\boxed{5}", "5", "how many?", True),
    ("the answer is: 5.", "5", "how many?", True),
    ("go to desk 1; take mug", "put a mug. One way: go to desk 1; take mug", "put a mug", False),
    ("One way: go to desk 1; take mug", "put a mug. One way: go to desk 1; take mug", "put a mug", True),
    ("put a mug", "put a mug", "put a mug", False),
    ("press green button first", "press green", "- press the green button\n- press the red button", False),
    ("press green button first", "press green", "- press the red button", True),
    ("it is the 5", "the 5", "5 apples", True),  # what is left without its article occurs by chance
    ("", "", "x", False),
]


def test_when_a_text_gives_an_answer_away(subtests):
    for text, gold, told, found in GIVEN_AWAY:
        with subtests.test(text=text, gold=gold):
            assert (answer_in(text, gold, told) is not None) == found
