"""Worlds in which numbers alone mislead: table, sentence and report say what is behind them."""

from __future__ import annotations

import json
import re
import shutil

import pandas as pd
import pytest
from conftest import TOY, read_json, read_rows, write_rows

from analysis.answer import Question, answer_of
from analysis.audit import audit
from analysis.cells import make_cells, rows_of
from analysis.load import load_runs
from analysis.matrix import build_matrix
from analysis.notes import qualified
from analysis.runs import read_run
from analysis.sequential import Design
from analysis.tables import build_tables, load_episodes
from core.run.metrics import limit_of
from scripts import report

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


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return tmp_path_factory.mktemp("made")


@pytest.fixture
def play_once(here, made):
    """A function that makes a run in a folder of the module, if it is not there yet."""
    return lambda name, *words: made / name if (made / name).is_dir() else here(*words, run_dir=made / name)[0]


@pytest.fixture
def boxes(play_once, sums, tmp_path):
    """A run without memory, and one with it, which keeps to the form as soon as a lesson stands before the task."""
    for arm in ("no_memory", "reasoningbank"):
        shutil.copytree(play_once(arm, *sums, f"arm={arm}"), tmp_path / "runs" / arm)
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
def test_every_sentence_and_title_says_whose_labels_which_models_and_which_settings(here, play_once, tmp_path, said):
    for seed in (0, 1):
        words = (*TOY, f"seed={seed}", "limit=2")
        shutil.copytree(play_once(f"none-{seed}", *words, "arm=no_memory"), tmp_path / "runs" / f"none-{seed}")
        here(*words, "arm=reasoningbank", *WORLDS[said], run_dir=tmp_path / "runs" / f"bank-{seed}")
    frame = load_episodes([str(tmp_path / "runs")])
    for build in (build_matrix, lambda frame: build_tables(frame, "all")):
        cells, [text] = build(frame)
        assert text.title.endswith(f"; with {said}")
    found = answer_of(tmp_path / "runs", Question(design=Design(first=2, most=2)))
    assert f": {cells.table['label'].iloc[1]} solves " in found["sentence"]
    assert re.search(rf"; with {re.escape(said)}; \d\.\d x the baseline's tokens\.$", found["sentence"])


def test_what_only_some_arms_hold_is_said_with_their_names():
    rows = [
        {"label": label, "label_source": source, "helpers": {}, "noted": noted}
        for label, source, noted in (
            ("none", "none", {}),
            ("a", "llm", {}),
            ("b", "oracle", {"memory.inject": ("user",)}),
        )
    ]
    assert (
        qualified("Table", rows, counts=False) == "Table; with a: labels llm; b: labels oracle; b: memory.inject=user"
    )
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
