"""Worlds in which numbers alone mislead: table, sentence and report say what is behind them."""

from __future__ import annotations

import csv
import json
import re
import shutil
import zipfile

import pandas as pd
import pytest
from conftest import TOY, read_json, read_rows, write_rows
from report_kit import break_off, make_run, rewritten, run_once

from analysis.answer import Question, answer_of
from analysis.audit import audit
from analysis.cells import make_cells, rows_of
from analysis.funnel import funnel_of
from analysis.load import load_runs
from analysis.matrix import build_matrix
from analysis.notes import qualified
from analysis.reach import findable
from analysis.report import words
from analysis.report.data import lessons_of
from analysis.runs import read_run
from analysis.sequential import Design
from analysis.studies import studies
from analysis.tables import build_tables, load_episodes
from analysis.verdict import comparison_outcome
from core.run.metrics import limit_of
from scripts import export, report

N = 10


def play(messages, role, sample):
    """Knows every sum. Without a lesson it states none of the first six; in three of these replies the sum stands."""
    number = int(re.findall(r"What is (\d+) plus", "\n".join(each["content"] for each in messages))[-1])
    if role == "judge":
        return 'Thoughts: So it seems.\nStatus: "success"'
    if role != "agent":
        return "```\n# Memory Item 1\n## Title Answers\n## Description Form.\n## Content Put it in a box.\n```"
    if "<memory_items>" in messages[0]["content"] or number >= 46:
        return f"\\boxed{{{2 * number}}}"
    return f"They make {2 * number}, as I see at 7." if number < 43 else "I have seen this one before."


@pytest.fixture(scope="module")
def sums(tmp_path_factory):
    """The words for ten sums, from 40 + 40 on, each another question."""
    file = tmp_path_factory.mktemp("sums") / "sums.jsonl"
    words = "apples pens boats lamps hats rings doors cups bells keys".split()
    rows = [
        {"id": word, "question": f"{word.title()}! What is {40 + n} plus as many {word}?", "answer": f"{80 + 2 * n}"}
        for n, word in enumerate(words)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    script = f"llm.script.path={__name__}.play"
    return ("env=math500", f"env.path={file}", "env.dataset=own", "llm=scripted", script, "embedder=hashing")


@pytest.fixture
def boxes(tmp_path_factory, sums, tmp_path):
    """A run without memory, and one with it, which keeps to the form as soon as a lesson stands before the task."""
    for arm in ("no_memory", "reasoningbank"):
        shutil.copytree(run_once(tmp_path_factory, *sums, f"arm={arm}"), tmp_path / "runs" / arm)
    return tmp_path / "runs"


def compared(folder, name="all"):
    cells, [text, *_] = build_tables(load_episodes([str(folder)]), name)
    row = next(row for row in rows_of(cells.table) if row["arm"] == "reasoningbank")
    shown = {line[0]: dict(zip(text.head, line, strict=True)) for line in text.rows}
    return row, shown, cells.notes


def test_a_gain_by_form_alone_is_told_from_one_by_reasoning(boxes, tmp_path):
    row, shown, notes = compared(boxes)
    assert row["difference"] == pytest.approx(0.9 - 0.4)
    # What both state: tasks 6 to 9. No memory solves none of the six others, or all; memory not the first, or all.
    assert (row["answered_pairs"], row["answered_difference"]) == (4, 0.0)
    assert row["answered_least"] == pytest.approx(0.9 - 1.0) and row["answered_most"] == pytest.approx(1.0 - 0.4)
    assert row["answered_lenient"] == pytest.approx(1.0 - 0.7)  # of the first three sums the reply holds the answer
    assert shown["no_memory"]["no answer stated"] == "6 (60.0 %)"
    assert shown["reasoningbank"]["no answer stated"] == "1 (10.0 %)"
    assert shown["no_memory"]["success, read leniently %"] == "70.0" and "ended by limit" not in shown["no_memory"]
    assert shown["reasoningbank"]["difference, both answered [95 %]"].startswith("+0.0")
    [note] = [note for note in notes if "format and limits" in note]
    assert note.startswith("reasoningbank: 1 (10.0 %) of its episodes state no answer or ended at a limit, 6 (60.0 %)")
    assert "Over the 4 pairs that both answered it is +0.0 points" in note
    assert "between -10.0 and +60.0; read leniently it is +30.0." in note
    cell = build_matrix(load_episodes([str(boxes)]))[1][0].rows[0][1]
    assert "no answer stated in 6 (60.0 %)" in cell
    assert audit(read_run(boxes / "no_memory"))["look"]["unanswered"] == ["6 of 10 episodes state no answer"]
    assert report.main([str(boxes), "-o", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "+0.0 points over the 4 pairs that both answered" in page


def test_replies_that_were_cut_off_in_one_arm_are_counted_there(boxes):
    def cut(place, row):
        if place % 2:
            row["trajectories"][0]["steps"][-1]["finish_reason"] = "length"
        if place == 4:
            row["trajectories"][0]["ended_by"] = "context"

    rows = read_rows(boxes / "reasoningbank")
    for place, each in enumerate(rows):
        cut(place, each)
    write_rows(boxes / "reasoningbank", rows)
    row, shown, _ = compared(boxes)
    assert shown["reasoningbank"]["ended by limit"] == "6 (60.0 %): 1 context, 5 replies cut off"
    assert (row["n_unanswered"], row["answered_pairs"]) == (7, 2)  # the first states nothing; both answer 6 and 8
    assert audit(read_run(boxes / "reasoningbank"))["look"]["unanswered"] == [
        "1 of 10 episodes state no answer; ended by limit: 1 context, 5 replies cut off"
    ]


@pytest.mark.parametrize(
    ("attempt", "limit"),
    [
        ({"ended_by": "end", "steps": [{"finish_reason": "stop"}]}, ""),
        ({"ended_by": "end", "steps": [{"finish_reason": "length"}, {"finish_reason": "stop"}]}, ""),
        ({"ended_by": "step_limit", "steps": [{"finish_reason": "length"}]}, "length"),
        ({"ended_by": "budget", "steps": []}, "budget"),
        ({"ended_by": "content_filter", "steps": [{"finish_reason": "stop"}]}, "content_filter"),
    ],
)
def test_at_which_limit_an_attempt_ended(attempt, limit):
    assert limit_of(attempt) == limit


def test_a_judge_that_is_wrong_stands_in_the_first_table(boxes):
    row, shown, _ = compared(boxes)
    assert row["judge_agreement"] == 0.9  # it calls every attempt a success, and the first is none
    assert shown["reasoningbank"]["labels"] == "llm, 90.0 % right" and shown["no_memory"]["labels"] == "none"
    _, [text, *_] = build_matrix(load_episodes([str(boxes)]))
    assert "\nlabels llm, 90.0 % right" in text.rows[1][1]


def test_tokens_stand_beside_the_difference(boxes):
    for arm, used in (("no_memory", 100), ("reasoningbank", 550)):
        rows = read_rows(boxes / arm)
        for row in rows:
            row["usage"] = {"agent": row["usage"]["agent"] | {"prompt_tokens": used, "completion_tokens": 0}}
        write_rows(boxes / arm, rows)
    row, shown, _ = compared(boxes)
    assert row["times_tokens"] == 5.5 and shown["reasoningbank"]["tokens x baseline"] == "5.5"
    assert "5.5 x tokens" in build_matrix(load_episodes([str(boxes)]))[1][0].rows[1][1]


WORLDS = {
    "labels llm": (),
    "labels oracle": ("setting=true_labels",),
    "labels oracle; extractor bigger; memory.allow_self=True": (
        *("setting=true_labels", "memory.allow_self=true", "llm@extractor_llm=scripted"),
        "+extractor_llm.name=bigger",
    ),
    "labels llm; judge and extractor bigger": (
        *("llm@extractor_llm=scripted", "+extractor_llm.name=bigger"),
        *("llm@judge_llm=scripted", "+judge_llm.name=bigger"),
    ),
}


@pytest.mark.parametrize("said", WORLDS)
def test_every_sentence_and_title_says_whose_labels_which_models_and_which_settings(tmp_path_factory, tmp_path, said):
    for seed in (0, 1):
        words = (*TOY, f"seed={seed}", "limit=2")
        none = run_once(tmp_path_factory, *words, "arm=no_memory")
        shutil.copytree(none, tmp_path / "runs" / f"none-{seed}")
        make_run(tmp_path / "runs" / f"bank-{seed}", *words, "arm=reasoningbank", *WORLDS[said])
    frame = load_episodes([str(tmp_path / "runs")])
    for build in (build_matrix, lambda frame: build_tables(frame, "all")):
        cells, [text] = build(frame)
        assert text.title.endswith(f"; with {said}")
    found = answer_of(tmp_path / "runs", Question(design=Design(first=2, most=2)))
    assert f": {cells.table['label'].iloc[1]} solves " in found["sentence"]
    assert re.search(rf"; with {re.escape(said)}; \d\.\d x the baseline's tokens\.$", found["sentence"])


def test_what_only_some_arms_hold_is_said_with_their_names():
    arms = (("none", "none", {}), ("a", "llm", {}), ("b", "oracle", {"memory.inject": ("user",)}))
    rows = [{"label": label, "label_source": source, "helpers": {}, "noted": noted} for label, source, noted in arms]
    said = "Table; with a: labels llm; b: labels oracle; b: memory.inject=user"
    assert qualified("Table", rows, counts=False) == said
    assert qualified("They differ.", rows[:2], counts=False) == "They differ; with labels llm."
    assert qualified("They differ.", rows[:1], counts=False) == "They differ."


def test_columns_beside_the_episodes_change_no_table(here, tmp_path):
    run, _ = here(*TOY, "limit=4", run_dir=tmp_path / "run")
    before = load_runs([run])
    assert before["settings"].dtype == object  # one text for all episodes of a run
    (run / "columns.json").write_text(json.dumps({"format": 1, "columns": {"success": [1.0] * 4}}))
    pd.testing.assert_frame_equal(load_runs([run]), before)
    data = bytearray((run / "episodes.jsonl").read_bytes())
    data[len(data) // 2] ^= 1
    (run / "episodes.jsonl").write_bytes(data)
    with pytest.raises(Exception, match="damaged|not as the run left it"):
        load_runs([run])


def test_a_key_that_stands_twice_is_in_the_name(here, tmp_path):
    for key in ("strip_lessons", "details.strip_lessons"):
        run, _ = here(*TOY, "arm=reasoningbank", f"{key}=false", "limit=2", run_dir=tmp_path / key)
        assert read_json(run / "manifest.json")["overridden"] == [f"{key}=false"]
    [label] = make_cells(load_runs([tmp_path / "strip_lessons"])).table["label"]
    assert label == "reasoningbank strip_lessons=false"


def test_twins_in_the_stream_are_named_below_the_table(here, tmp_path):
    run, _ = here(*TOY, "arm=reasoningbank", "limit=12", run_dir=tmp_path / "runs" / "a")
    [note] = [note for note in make_cells(load_runs([run])).notes if "nearly the same" in note]
    assert note.startswith("toy: 8 of 12 tasks are nearly the same as another one (toy/")  # two of each family's three
    shutil.rmtree(run)
    run, _ = here(*TOY, "arm=no_memory", "limit=12", run_dir=run)
    assert not any("nearly the same" in note for note in make_cells(load_runs([run])).notes)


def ungraded(row):
    for attempt in row["trajectories"]:
        attempt["info"]["evaluated"] = False


def unshown(row):
    row["retrieved"] = [hit | {"n_shown": 0} for hit in row["retrieved"]]


def exported(run, to):
    assert export.main([str(run), "--to", "episodes", "-o", str(to)]) == 0
    with to.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_what_nobody_evaluated_is_nowhere_called_wrong(toy_runs, tmp_path):
    run = rewritten(toy_runs / "bank-0", tmp_path / "runs" / "ungraded", ungraded)
    assert {row["correct"] for row in exported(run, tmp_path / "all.csv")} == {""}
    assert not any(lesson["wrong"] for lesson in lessons_of(read_run(run), []))
    assert export.main([str(run), "--to", "inspect", "-o", str(tmp_path)]) == 0
    [log] = tmp_path.glob("*.eval")
    with zipfile.ZipFile(log) as file:
        samples = [json.loads(file.read(name)) for name in file.namelist() if name.startswith("samples/")]
    assert len(samples) == 40 and {*samples[0]["scores"]} == {"judge"}
    [study] = studies(make_cells(load_episodes([str(run)]), "no_memory"))
    said = "No success rate on toy (reasoningbank: the environment did not evaluate)"
    assert words.headline(study).startswith(said)


def test_an_arm_of_which_everything_broke_is_not_called_unfinished_and_is_counted(toy_runs, tmp_path):
    run = rewritten(toy_runs / "bank-0", tmp_path / "runs" / "broken", break_off)
    cells = make_cells(load_episodes([str(run), str(toy_runs / "none-0")]), "no_memory")
    [study] = studies(cells)
    assert words.headline(study).startswith("no_memory solved 0.0 % of the toy tasks (40 tasks are broken and in no")
    assert [words.no_rate(cell) for cell in study.cells if not cell["n"]] == ["every task broke"]
    assert any(line.startswith("reasoningbank: 40 of 40 episodes broke") for line in words.warnings(study))


def test_lessons_that_found_no_room_are_exported_as_not_shown(toy_runs, tmp_path):
    before = exported(toy_runs / "bank-0", tmp_path / "before.csv")
    assert sum(int(row["lessons_shown"]) for row in before) > 30 and len(before[0]) == 15
    run = rewritten(toy_runs / "bank-0", tmp_path / "unshown", unshown)
    assert {row["lessons_shown"] for row in exported(run, tmp_path / "after.csv")} == {"0"}


def toy_frame(toy_runs):
    return load_episodes([str(toy_runs / name) for name in ("none-0", "none-1", "bank-0", "bank-1")])


def test_the_funnel_has_no_verdict_where_the_table_has_none(toy_runs):
    """Two seeds whose attempts are largely the same share a bank; of seeds that are missing nobody knows."""
    frame = toy_frame(toy_runs)

    def outcomes(frame):
        cells = make_cells(frame, "no_memory")
        row = next(row for row in rows_of(cells.table) if row["arm"] == "reasoningbank")
        relevant = [each for each in funnel_of(cells) if each["step"] == "relevant"]
        return comparison_outcome(row), {*map(comparison_outcome, relevant)}

    assert outcomes(frame) == ("better", {"better"})
    repeats = (frame["arm"] == "reasoningbank") & (frame["index"] < 36)
    assert outcomes(frame.assign(said=frame["said"].mask(repeats, frame["task_id"]))) == ("untested", {"untested"})
    assert outcomes(frame.assign(seeds_asked="[0, 1, 2]")) == ("unfinished", {"untested"})


def test_an_arm_whose_seeds_are_one_is_not_tested_by_the_luck_of_its_baseline(toy_runs):
    """Both seeds of the arm have the same bank, word for word; only the baseline differs between them."""
    frame = toy_frame(toy_runs)
    mine = frame["arm"] == "reasoningbank"
    same = frame.assign(said=frame["said"].mask(mine, frame["task_id"]), trace=frame["trace"].mask(mine, "one"))
    row = next(row for row in rows_of(make_cells(same, "no_memory").table) if row["arm"] == "reasoningbank")
    assert (row["n_paired_seeds"], row["alike"], comparison_outcome(row)) == (2, 1.0, "untested")
    row = {"p_holm": 0.4, "difference": 0.1, "n_tasks": 100, "n_seeds": 10, "n_paired_seeds": 3.0, "sd_seeds": 0.0}
    assert "100 tasks x 3 seeds find" in findable([row])[0]  # what could be found: of the seeds that have a partner


def test_without_a_usual_baseline_headline_and_table_choose_none(toy_runs, tmp_path):
    file = tmp_path / "page.html"
    assert report.main([str(toy_runs / "bank-0"), str(toy_runs / "par-0"), "-o", str(file)]) == 0
    page = file.read_text(encoding="utf-8")
    assert "Nothing is compared" in page and "no finished run of the baseline no_memory" in page
    assert "against reasoningbank" not in page


def test_what_could_be_found_is_said_for_seeds_that_differ_as_much_as_these():
    """Guessed are banks of sd 5 points: 23 points. With an sd of 20 the error is 20 / sqrt(3) = 11.5 points, and a t of
    2 degrees of freedom exceeds 4.303 with a chance of 80 % where its mean is 65 / 11.5 = 5.65."""
    row = {"p_holm": 0.4, "difference": 0.1, "n_tasks": 140, "n_paired_seeds": 3.0}
    assert "140 tasks x 3 seeds find a difference of 23 points" in findable([row | {"sd_seeds": 0.02}])[0]
    wide, narrow = row | {"sd_seeds": 0.2}, row | {"sd_seeds": 0.02}
    assert "140 tasks x 3 seeds find a difference of 65 points" in findable([wide])[0]
    assert findable([narrow, wide]) == findable([wide, narrow]) == findable([wide, wide])
    shown = row | {"p_holm": 0.01, "n_paired_seeds": 9.0, "sd_seeds": 0.01}
    assert findable([shown, wide]) == findable([shown | {"n_paired_seeds": 3.0}, wide])  # it speaks of no other row


def test_rates_that_are_not_of_the_pairs_are_said_to_be_none_beside_the_headline(toy_runs):
    """Both arms solve the first half of the tasks; the bank's runs have come no further: 100 against 50 %, and +0.0."""
    frame = toy_frame(toy_runs)
    half = frame["index"] < frame["n_tasks"] // 2
    frame = frame.assign(success=half.astype(float))
    mine = frame["arm"] == "reasoningbank"
    [study] = studies(make_cells(frame[half | ~mine].assign(complete=~mine), "no_memory", partial=True))
    assert words.headline(study).startswith("reasoningbank solved 100.0 % of the toy tasks, no_memory 50.0 %")
    assert words.differences(study)[0]["points"] == "+0.0 points"
    n = len(frame) // 2
    lost = (
        f"reasoningbank: {n // 2} of {n} pairs with its baseline are lost, because an episode of the two broke or is "
    )
    assert lost + "missing: the difference is without them, the rates are not." in words.warnings(study)
    alone = frame[mine | (frame["seed"] == 0)].assign(seeds_asked="[0]")
    [study] = studies(make_cells(alone, "no_memory"))
    assert any("has seeds 0, 1, its baseline 0: the difference is over" in line for line in words.warnings(study))
