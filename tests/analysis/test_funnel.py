"""From lesson to result: was it shown, of the right kind, followed, and did it help: noted, counted, shown, audited."""

from __future__ import annotations

import json
import shutil
from itertools import product

import numpy as np
import pandas as pd
import pytest
import test_customs
from conftest import TOY, read_json, read_rows, write_rows
from report_kit import run_once

from analysis.audit import audit
from analysis.cells import make_cells
from analysis.funnel import build_funnel, funnel_of
from analysis.funnel_steps import STEPS, at_steps, steps_within
from analysis.load import load_runs
from analysis.runs import read_run
from analysis.stats import paired
from analysis.tables import build_tables, load_episodes
from core.run.columns import kinds_of, lesson_step
from core.run.metrics import followed
from core.types import NOT_TAKEN, Lesson, MemoryRecord, Step, Task, Trajectory
from envs.customs import BRANDS, BUTTONS, CustomsEnv
from scripts.tables import main as tables

CUSTOMS = test_customs.CUSTOMS
RAVEL = Task(id="customs/Ravel/1", query="Start the Ravel grinder.", type="Ravel")


def presses(*buttons: str) -> list[str]:
    return [f"press {button}" for button in buttons]


@pytest.mark.parametrize("rule", ["plain", "condition", "steps"])
@pytest.mark.parametrize("page", ["brand_first", "brand_last"])
def test_of_the_perfect_lesson_the_walkthrough_follows_it_and_nothing_else(rule, page):
    env = CustomsEnv(instructions="", max_steps=4, families=12, jobs_per_family=3, rule=rule, page=page)
    lessons = {first.type: lesson.text for first, lesson in env.lessons()}
    for task in env.tasks():
        seen, gold = env.reset(task), env.walkthrough()
        assert env.follows(task, seen, lessons[task.type], gold) is True
        wrong = [button for button in BUTTONS if button not in gold[0].split()]
        assert {env.follows(task, seen, lessons[task.type], presses(button)) for button in wrong} == {False}
        assert env.follows(task, seen, lessons[task.type], []) is False
        assert env.follows(task, seen, lessons[task.type], gold[:-1]) is (None if gold[:-1] else False)
        others = {env.follows(task, seen, lessons[brand], gold) for brand in BRANDS if brand != task.type}
        assert others == {None}  # they say nothing of this brand


NAMED = [
    ("Start Ravel machines with the red button.", ("red",)),
    ("Ravel machines\nHow they start.\nAlways press the Red button. The red one starts them.", ("red",)),
    ("Never press the blue button of a Ravel machine. Press red.", ("red",)),
    ("A Ravel machine starts with red instead of blue.", None),
    ("A Ravel machine has red, green, blue and yellow buttons.", None),
    ("Press red or green to start a Ravel machine.", None),
    ("Ravel: first red, then green.", ("red", "green")),
    ("Press the red button.", None),
    ("Ravel needs red. Kimble needs blue.", ("red",)),
    ("Ravel and Kimble machines need red.", None),
    ("Ravel needs red when its lamp is on.", None),  # the page has no lamp
    ("Check the power supply of the Ravel machine.", None),
    ("Unravel the red thread.", None),
]


def test_what_a_lesson_names_is_read_only_where_there_is_no_doubt(subtests):
    for lesson, said in NAMED:
        with subtests.test(lesson=lesson):
            for buttons in (("red",), ("green",), ("red", "green")):
                did = CustomsEnv.follows(RAVEL, "Its buttons: red, green.", lesson, presses(*buttons))
                half = said is not None and len(buttons) < len(said) and buttons == said[: len(buttons)]
                assert did is (None if said is None or half else buttons[: len(said)] == said)


@pytest.mark.parametrize(
    ("lesson", "on", "off"),
    [
        ("Ravel: press red when the lamp is on, and blue when the lamp is off.", "red", "blue"),
        ("Ravel: if the lamp is on, press red; if the lamp is off, press blue.", "red", "blue"),
        ("Ravel: press red when the lamp is on.", "red", None),
        ("Ravel: the lamp is on or the lamp is off, press red or blue.", None, None),
        ("Ravel: always red.", "red", "red"),
    ],
)
def test_a_rule_with_a_lamp_is_read_by_the_lamp_of_the_page(lesson, on, off):
    for state, wanted in (("on", on), ("off", off)):
        page = f"Start the Ravel grinder. Its lamp is {state}. Its buttons: red, blue."
        found = [CustomsEnv.follows(RAVEL, page, lesson, presses(button)) for button in ("red", "blue")]
        assert found == ([None, None] if wanted is None else [wanted == "red", wanted == "blue"])


def attempt(*steps: tuple[str, str, bool], opening: str = "Start.", ended_by: str = "end") -> Trajectory:
    made = tuple(Step(text=a, thought="", action=a, observation=o, valid=valid) for a, o, valid in steps)
    said = ({"role": "system", "content": ""}, {"role": "user", "content": opening})
    about = {"id": "t", "sample": 0, "answer": None, "reward": 0.0, "success": False, "gold": ""}
    return Trajectory(**about, opening=said, steps=made, ended_by=ended_by)


def test_only_what_was_done_and_seen_counts():
    """Not an action that the env did not know, none of a note on an attempt that is over, no lesson in the prompt."""
    asked = []

    def follows(task, observation, lesson, actions):
        asked.append((observation, list(actions)))
        return {"a": True, "b": False}.get(lesson.split("\n")[0])

    first = attempt(
        ("do", "seen", True), ("odd", "Nothing happens.", False), opening="<memory_items>x</memory_items>Go."
    )
    note = attempt(("more", NOT_TAKEN, True))
    a, b, none = (Lesson(title=title, description="", content="") for title in "abc")
    assert followed(follows, RAVEL, [first, note], [a]) is True
    assert asked == [("Go.", ["do"])]
    assert followed(follows, RAVEL, [first], [b, a]) is True  # one of them
    assert followed(follows, RAVEL, [first], [b, none]) is False
    assert followed(follows, RAVEL, [first], [none]) is None
    assert followed(follows, RAVEL, [first], []) is None
    assert followed(follows, RAVEL, [attempt(ended_by="infra_error")], [a]) is None


def test_an_episode_notes_it_and_one_of_an_env_that_cannot_tell_is_as_before(here, tmp_path):
    told, _ = here(*CUSTOMS, "arm=told_lesson", run_dir=tmp_path / "told")
    assert [hit["followed"] for row in read_rows(told) for hit in row["retrieved"]] == [True] * 18
    other, _ = here("env=scenarios", "env.jobs=[login]", "env.variants=2", "agent=random", "llm=scripted", *TOY[2:],
                    "arm=told_lesson", run_dir=tmp_path / "other")  # fmt: skip
    keys = {tuple(hit) for row in read_rows(other) for hit in row["retrieved"]}
    assert keys == {("id", "score", "n_items", "n_shown")}


def test_a_lesson_that_found_no_room_was_not_shown(here, tmp_path):
    run, _ = here(*CUSTOMS, "arm=told_lesson", "agent.max_memory_chars=10", run_dir=tmp_path / "run")
    assert all(hit["n_shown"] == 0 and "followed" not in hit for row in read_rows(run) for hit in row["retrieved"])
    assert set(load_runs([run])["lesson_step"]) == {"none"}


def test_a_round_that_goes_on_is_judged_by_all_that_was_done(here, tmp_path):
    """With refine=continue the second round of a job that is over is a note: what was done stands in the first."""
    words = ("arm=matts_sequential", "setting=told", "memory.domain=type", "retrieval.domain=same", "r=1")
    run, _ = here(*CUSTOMS, *words, "refine=continue", run_dir=tmp_path / "run")
    rows = read_rows(run)
    assert {row["trajectories"][1]["steps"][0]["observation"] for row in rows} == {NOT_TAKEN}
    assert [hit["followed"] for row in rows for hit in row["retrieved"]] == [True] * 18
    assert audit(read_run(run))["broken"] == {}


def record(id: str, task_id: str, **more) -> MemoryRecord:
    words = {"original_query": "", "items": (), "source_trajectory_id": "", "outcome": "success", "label_source": "llm"}
    return MemoryRecord(id=id, task_id=task_id, score=1.0, **words, **more)


def row(type: str, *hits: dict, task_id: str = "t") -> dict:
    hits = [{"n_items": 1, "n_shown": 1} | hit for hit in hits]
    return {"task_id": task_id, "task_type": type, "retrieved": hits, "records": []}


AT = [
    ("a", [], "none"),
    ("a", [{"id": "of_a", "n_shown": 0}], "none"),
    ("a", [{"id": "of_a"}], "followed_unknown"),
    ("a", [{"id": "of_a", "followed": True}], "followed"),
    ("a", [{"id": "of_a", "followed": False}], "not_followed"),
    ("a", [{"id": "of_a", "followed": False}, {"id": "of_a2", "followed": True}], "followed"),
    ("a", [{"id": "of_a", "followed": False}, {"id": "of_a2"}], "followed_unknown"),
    ("a", [{"id": "of_b"}], "irrelevant"),
    ("a", [{"id": "of_b"}, {"id": "of_a", "followed": True}], "followed"),
    ("a", [{"id": "of_b"}, {"id": "gone"}], "kind_unknown"),
    ("a", [{"id": "of_another_run"}], "kind_unknown"),
    ("a", [{"id": "gone", "followed": False}], "not_followed"),  # the env could tell: it speaks of this task
    ("a", [{"id": "filed_a"}], "followed_unknown"),
    ("a", [{"id": "filed_b"}], "irrelevant"),
    ("a", [{"id": "filed_elsewhere"}], "kind_unknown"),
    ("a", [{"id": "merged_ab"}], "followed_unknown"),
    ("a", [{"id": "of_a", "step": 2}], "none"),  # shown on its way, maybe because it went badly
    ("a", [{"id": "of_a", "step": 2}, {"id": "of_b"}], "irrelevant"),
    ("", [{"id": "of_a"}], "kind_unknown"),  # a benchmark whose tasks have no types
]


def test_the_step_that_an_episode_is_at(subtests):
    merged = record("merged_ab", "2", parents=("x", "y"), provenance={"tasks": ["1", "2"]})
    known = [record("of_a", "1"), record("of_a2", "1"), record("of_b", "2"), record("of_another_run", "9"), merged]
    filed = {"filed_a": "a", "filed_b": "b", "filed_elsewhere": "mathematics"}
    known += [record(name, "told/x", domain=domain) for name, domain in filed.items()]
    for type, hits, step in AT:
        with subtests.test(type=type, hits=hits):
            rows = [row("a", task_id="1"), row("b", task_id="2"), row(type, *hits)]
            assert lesson_step(rows[-1], kinds_of(rows, lambda: known)) == step


def test_no_bank_is_read_for_a_run_that_holds_its_own_records():
    hit = row("a", {"id": "r1"}, task_id="2")
    made = row("a", task_id="1") | {"records": [{**vars(record("r1", "1")), "items": []}]}
    assert lesson_step(hit, kinds_of([made, hit], lambda: pytest.fail("the bank was read"))) == "followed_unknown"


@pytest.fixture(scope="module")
def control(tmp_path_factory):
    """no_memory and told_random of the positive control on three seeds, by a worker that follows what it is told."""
    folder = tmp_path_factory.mktemp("control")
    for arm, seed in product(("no_memory", "told_random", "reasoningbank"), range(3)):
        run = run_once(tmp_path_factory, *CUSTOMS, f"arm={arm}", f"seed={seed}")
        shutil.copytree(run, folder / f"arm={arm},seed={seed}")
    return folder


def test_the_steps_are_counted_and_compared_with_the_same_tasks_without_memory(control):
    frame = load_episodes([str(control)])
    rows = {(row["label"], row["step"]): row for row in funnel_of(make_cells(frame, "no_memory"))}
    mine, other = (frame[frame["arm"] == arm] for arm in ("told_random", "no_memory"))
    assert {label for label, _ in rows} == {"told_random", "reasoningbank"}  # no_memory was shown nothing
    for step, inside in at_steps(mine).items():
        if not len(inside):
            assert ("told_random", step) not in rows or rows["told_random", step]["n"] == 0
            continue
        found = rows["told_random", step]
        assert (found["n"], found["n_success"]) == (len(inside), inside["success"].sum())
        keys = ["task_id", "seed"]
        pairs = inside.merge(other, on=keys, suffixes=("", "_base"))
        by_seed = pairs.groupby("seed")[["success", "success_base"]].mean().mean()
        assert found["n_pairs"] == len(pairs) == len(inside)
        assert found["without"] == pytest.approx(by_seed["success_base"])
        assert found["difference"] == pytest.approx(by_seed["success"] - by_seed["success_base"])
        assert (found["p"] is None) == (step not in ("relevant", "irrelevant"))
    right = rows["told_random", "relevant"]
    assert right["n"] + rows["told_random", "irrelevant"]["n"] == rows["told_random", "shown"]["n"] == 54
    assert right["success"] == 1.0 and rows["told_random", "followed"]["n"] == right["n"] < 54
    whole = {row["arm"]: row for row in make_cells(frame, "no_memory").table.to_dict("records")}
    assert rows["told_random", "all"]["difference"] == pytest.approx(whole["told_random"]["difference"])


def test_the_tables_show_it(control, capsys):
    assert tables([str(control), "--table", "funnel"]) == 0
    said = capsys.readouterr().out
    assert "From lesson to result: customs, scripted, 18 tasks" in said
    assert "| · · · followed |" in said and "there is no p" in said
    assert tables([str(control), "--table", "funnel", "--format", "csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "step" in lines[0].split(",") and any(",relevant," in line for line in lines)
    _, texts = build_tables(load_episodes([str(control)]), "positive_control")
    table = pd.DataFrame(texts[0].rows, columns=texts[0].head).set_index("method")
    steps = ["retrieved", "relevant", "followed", "solved"]
    assert table.loc["no_memory", steps].tolist() == ["-"] * 4
    n = funnel_of(make_cells(load_episodes([str(control)]), "no_memory"))
    right = next(row["n"] for row in n if (row["label"], row["step"]) == ("told_random", "relevant"))
    of_right = f"{right} of {right}"
    assert table.loc["told_random", steps].tolist() == ["54 of 54", f"{right} of 54", of_right, of_right]


def test_runs_that_showed_no_lesson_have_no_funnel_and_say_so(control, capsys):
    only = [str(path) for path in control.glob("arm=no_memory*")]
    assert tables([*only, "--table", "funnel"]) == 2
    assert "no task of these runs that counts was shown a lesson" in capsys.readouterr().err


def test_unfinished_runs_are_not_tested(control, tmp_path):
    copy = shutil.copytree(control, tmp_path / "copy")
    for run in copy.glob("arm=told_random*"):
        write_rows(run, read_rows(run)[:9])
    rows = build_funnel(load_episodes([str(copy)]), partial=True)[0].table
    mine = rows[rows["label"] == "told_random"]
    assert mine["n"].max() == 27 and mine["p"].isna().all() and mine["difference"].notna().any()


@pytest.mark.parametrize(("keep", "n_seeds"), [(0.5, 5), (0.2, 5), (0.5, 3)])
def test_on_a_part_of_the_tasks_the_test_keeps_its_error_rate(keep, n_seeds):
    """Made-up studies without any effect, whose banks differ; lessons are found more often for harder tasks."""
    rng = np.random.default_rng([n_seeds, round(10 * keep)])
    studies = called = 0
    for _ in range(300):
        hard = rng.beta(1.5, 1.5, size=(24, 1))
        bank = rng.normal(0, 0.05, size=(1, n_seeds))
        mine, other = (rng.random((24, n_seeds)) < np.clip(rate, 0, 1) for rate in (hard + bank, hard + 0 * bank))
        inside = rng.random((24, n_seeds)) < keep + 0.3 * (hard - 0.5)
        p = paired(np.where(inside, mine, np.nan), other.astype(float))["p"]
        studies, called = studies + (p is not None), called + (p is not None and p < 0.05)
    assert studies > 250 and called / studies < 0.07


@pytest.fixture
def changed(control, tmp_path):
    """What the audit says of a run of told_random whose rows and manifest were changed."""

    def with_change(change):
        run = shutil.copytree(next(iter(sorted(control.glob("arm=told_random*")))), tmp_path / "run")
        rows, manifest = read_rows(run), read_json(run / "manifest.json")
        change(rows, manifest)
        write_rows(run, rows)
        (run / "manifest.json").write_text(json.dumps(manifest))
        return audit(read_run(run))

    return with_change


def test_the_audit_asks_the_rule_again(changed):
    def lie(rows, manifest):
        hits = [hit for row in rows for hit in row["retrieved"] if "followed" in hit]
        hits[0]["followed"] = not hits[0]["followed"]

    report = changed(lie)
    assert list(report["broken"]) == ["followed_lessons"] and len(report["broken"]["followed_lessons"]) == 1


def of_an_older_version(rows, manifest):
    for hit in (hit for row in rows for hit in row["retrieved"]):
        hit.pop("followed", None)


def of_an_env_from_outside(rows, manifest):
    manifest["config"]["env"]["_target_"] = "elsewhere.Env"


@pytest.mark.parametrize(
    ("change", "why"), [(of_an_older_version, "have no such note"), (of_an_env_from_outside, "is from outside")]
)
def test_where_the_rule_cannot_be_asked_a_run_is_not_called_clean_nor_broken(changed, change, why):
    report = changed(change)
    assert "followed_lessons" not in report["broken"] and why in report["unchecked"]["followed_lessons"]


def test_every_step_is_a_part_of_one_that_is_there():
    assert all(before in ("", *STEPS) for _, before in STEPS.values())
    lasts = [step for step in STEPS if steps_within(step) == [step]]
    assert set(steps_within("all")) == set(STEPS) and set(lasts) == {*STEPS} - {"all", "shown", "relevant"}
