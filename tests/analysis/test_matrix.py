"""The one table: arms x benchmarks, the same numbers as the cells', in a terminal of any width and in every format."""

from __future__ import annotations

import csv
import io
import re
import shutil
import sys
from itertools import product

import forkserver
import pytest
from conftest import REPO, TOY, read_rows, write_rows
from report_kit import break_off, sweep_once
from rich.cells import cell_len
from rich.console import Console

from analysis.cells import place_of_arm
from analysis.matrix import build_matrix, print_matrix
from analysis.tables import load_episodes
from analysis.text_table import BETTER, WORSE, TextTable, show, to_html, to_latex, to_markdown
from scripts.tables import main

ARMS, SEEDS = ("reasoningbank", "awm", "no_memory"), (0, 1, 2)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    return sweep_once(tmp_path_factory, ARMS, SEEDS, "limit=12", envs=("toy", "toy_chance"))


@pytest.fixture
def copy(sweep, tmp_path):
    return shutil.copytree(sweep, tmp_path / "sweep")


def run_of(folder, env, arm, seed):
    return folder / f"arm={arm},env={env},llm=scripted,seed={seed}"


def matrix(folder, **given):
    """(cells, {arm: {column: cell's lines}}, notes)."""
    cells, [text, *_] = build_matrix(load_episodes([str(folder)]), **given)
    heads = [head.split("\n")[0] for head in text.head]
    rows = {row[0]: {head: cell.split("\n") for head, cell in zip(heads[1:], row[1:])} for row in text.rows}
    return cells, rows, text.notes


def test_a_row_an_arm_in_the_papers_order_and_a_column_a_benchmark(sweep):
    cells, [text] = build_matrix(load_episodes([str(sweep)]))
    assert [row[0] for row in text.rows] == ["no_memory", "awm", "reasoningbank"]
    assert text.head == ["arm", "toy\n12 tasks x 3 seeds", "toy_chance\n12 tasks x 3 seeds"]
    assert text.title.endswith(", scripted; with labels llm")
    toy = cells.table[cells.table["env"] == "toy"].set_index("arm").loc["reasoningbank"]
    rate, below, tokens, lessons = text.rows[2][1].split("\n")
    assert lessons == f"{toy['n_lessons']} lessons"
    base = cells.table[cells.table["env"] == "toy"].set_index("arm").loc["no_memory"]
    assert tokens == f"{toy['tokens'] / base['tokens']:.1f} x tokens"
    assert rate == f"{100 * toy['success']:.1f} [{100 * toy['low']:.1f}, {100 * toy['high']:.1f}]"
    assert toy["p_holm"] < 0.05
    assert below == f"{100 * toy['difference']:+.1f} {BETTER} · n 36"
    assert text.rows[0][1].endswith("\nbaseline · n 36")
    chance = cells.table[cells.table["env"] == "toy_chance"].set_index("arm").loc["reasoningbank"]
    assert chance["p_holm"] >= 0.05 and BETTER not in text.rows[2][2]
    notes = " ".join(text.notes)
    assert f"{BETTER} better, {WORSE} worse" in notes and "Holm's correction for the " in notes
    tested = int(cells.table["p_holm"].notna().sum())
    assert f"for the {tested} comparisons of this table" in notes


def test_worse_is_marked_as_well_and_another_baseline_may_be_given(sweep):
    _, rows, notes = matrix(sweep, baseline="reasoningbank")
    assert rows["reasoningbank"]["toy"][1] == "baseline · n 36"
    assert rows["no_memory"]["toy"][1].split(" · ")[0].endswith(f" {WORSE}")
    assert "the difference to reasoningbank in points" in notes[0]


def test_what_broke_and_what_is_not_finished_stands_in_its_cell(copy):
    rows = read_rows(broken := run_of(copy, "toy", "awm", 0))
    break_off(rows[5])
    write_rows(broken, rows)
    unfinished = run_of(copy, "toy", "reasoningbank", 2)
    write_rows(unfinished, read_rows(unfinished)[:3])
    shutil.rmtree(run_of(copy, "toy_chance", "awm", 0))
    _, rows, notes = matrix(copy)
    assert [rows["awm"]["toy"][place] for place in (1, 3)] == ["+0.0 · n 35", "1 broken"]
    assert rows["reasoningbank"]["toy"][1].endswith("· n 24") and rows["reasoningbank"]["toy"][3] == "1 unfinished"
    assert rows["awm"]["toy_chance"][1].endswith("· n 24")
    assert any(note.startswith(f"{unfinished} stopped after 3 of 12 tasks: left out.") for note in notes)
    assert any(note.startswith("awm on toy: 1 of 36 episodes broke; ") for note in notes)
    assert any(note.startswith("awm on toy_chance has seeds 1, 2, its baseline 0, 1, 2") for note in notes)
    _, rows, _ = matrix(copy, partial=True)
    assert rows["reasoningbank"]["toy"][0].endswith("] *") and rows["reasoningbank"]["toy"][1].endswith("· n 27")
    assert "unfinished ·" in rows["reasoningbank"]["toy"][1] and BETTER not in rows["reasoningbank"]["toy"][1]
    for seed in (0, 1):
        run = run_of(copy, "toy", "reasoningbank", seed)
        write_rows(run, read_rows(run)[:2])
    assert matrix(copy)[1]["reasoningbank"]["toy"] == ["partial"]


def test_a_judge_and_a_distiller_that_could_not_be_read_stand_in_their_cell(copy):
    for seed in SEEDS:
        rows = read_rows(run := run_of(copy, "toy", "reasoningbank", seed))
        for row in rows:
            row["verdict"]["parsed"], row["lessons"], row["n_dropped"] = False, [], 2
        write_rows(run, rows)
    rows = matrix(copy)[1]["reasoningbank"]
    assert rows["toy"][-2:] == ["no lesson learned: 72 dropped", "verdicts not readable in 36 (100.0 %)"]
    assert "readable" not in " ".join(rows["toy_chance"])


def test_one_seed_is_shown_and_not_tested(copy):
    for path in (path for seed in (1, 2) for path in copy.glob(f"*seed={seed}")):
        shutil.rmtree(path)
    _, rows, notes = matrix(copy)
    assert re.fullmatch(r"\+[\d.]+ untested · n 12", rows["reasoningbank"]["toy"][1])
    assert any(note.startswith("Untested: one seed, or seeds that repeat each other") for note in notes)
    assert not any(BETTER in note for note in notes)


def test_labels_other_than_the_judges_are_named_in_the_cell(copy, here):
    here(*TOY, "arm=reasoningbank", "setting=true_labels", "limit=12", run_dir=copy / "told")
    _, rows, notes = matrix(copy)
    usual, told = "reasoningbank judge=llm setting=test_time", "reasoningbank judge=oracle setting=true_labels"
    assert rows[told]["toy"][3] == "labels oracle"
    assert rows[told]["toy_chance"] == ["-"]
    assert rows[usual]["toy_chance"][1].endswith("n 36")  # one name in every column, though nothing else is like it
    assert "labels" not in " ".join(rows["awm"]["toy"])
    assert any("where a cell names no others" in note for note in notes)


def test_two_baselines_are_said_with_the_whole_command_which_then_compares(copy, here, capsys):
    for env in ("toy", "toy_chance"):
        words = (f"env={env}", *TOY[1:], "arm=no_memory", "roles.agent.temperature=0.1", "limit=12")
        here(*words, run_dir=copy / f"cold-{env}")
    capsys.readouterr()
    assert main([str(copy)]) == 0
    said = capsys.readouterr().out
    for env in ("toy", "toy_chance"):
        assert f"{env}, scripted: 2 cells are the baseline no_memory, so nothing is compared. Choose one:" in said
    warm, cold = (f"no_memory roles.agent.temperature={value}" for value in (0.7, 0.1))
    for label in (warm, cold):
        assert f"compare with it: reasoningbank tables {copy} --baseline '{label}'\n" in said
    assert main([str(copy), "--baseline", warm]) == 0
    said = capsys.readouterr().out
    assert "nothing is compared" not in said
    [row] = [line for line in said.splitlines() if line.startswith("| reasoningbank |")]
    assert row.count("<br>+") == 2  # in both benchmarks


def test_without_the_baseline_every_finished_arm_may_be_one(copy):
    for path in copy.glob("arm=no_memory,*"):
        shutil.rmtree(path)
    _, _, notes = matrix(copy, command="reasoningbank tables here")
    assert "toy, scripted: no finished run of the baseline no_memory, so nothing is compared. Choose one:" in notes
    assert "compare with it: reasoningbank tables here --baseline awm" in notes


def printed(width, table):
    console = Console(width=width, file=io.StringIO(), highlight=False)
    show(console, table)
    return console.file.getvalue()


def test_in_a_terminal_nothing_is_cut_whatever_its_width(subtests):
    for width, n_columns in product((80, 160), (1, 5, 12)):
        with subtests.test(width=width, n_columns=n_columns):
            heads = ["arm", *(f"benchmark_{chr(97 + n)}\n1319 tasks x 10 seeds" for n in range(n_columns))]
            arms = ["no_memory", "reasoningbank workflow.learn_from=failure retrieval.top_k=4", "own"]
            cells = [
                [f"{n}{m}.5 [{n}{m}.1, {n}{m}.9]\n+{n}{m}.7 {BETTER} · n 1319" for n in range(n_columns)]
                for m in range(3)
            ]
            note = "missing: python main.py experiment=main_table " + "llm.model=openai/some-model " * 6
            table = TextTable(
                title="t" * 20, head=heads, rows=[[a, *row] for a, row in zip(arms, cells)], notes=["word " * 60, note]
            )
            said = printed(width, table)
            lines = said.splitlines()
            assert all(cell_len(line) <= width for line in lines if "missing: " not in line)
            assert f"- {note}" in said  # whole, to be copied
            for head in heads[1:]:
                assert said.count(head.split("\n")[0]) == 1
            for row in cells:
                for cell in row:
                    rate, below = cell.split("\n")
                    assert said.count(rate) == said.count(below) == 1
            blocks = sum(line.startswith("no_memory") for line in lines)
            assert blocks == -(-n_columns // ((width - 26) // 24)) or blocks <= n_columns


def test_sentences_are_wrapped_and_numbers_are_not():
    words = "a sentence that is much too long to stand in one line of a terminal, with 12.5 in it"
    table = TextTable(
        title="t", head=["who", "rate", "why", "calls"], rows=[["x", "1.0 [0.5, 1.5]", words, "1,234,567"]]
    )
    said = printed(60, table)
    assert "1.0 [0.5, 1.5]" in said and "1,234,567" in said
    assert words not in said and set(words.split()) <= set(said.split())


def test_marks_are_told_apart_without_colour_and_bright_colours_are_not_used():
    console = Console(width=80, file=io.StringIO(), force_terminal=True, color_system="standard")
    show(
        console, TextTable(title="t", head=["a", "b"], rows=[["x", f"1.0\n+1.0 {BETTER}"], ["y", f"2.0\n-1.0 {WORSE}"]])
    )
    said = console.file.getvalue()
    assert BETTER in said and WORSE in said
    assert "\x1b[1;32m" in said and "\x1b[1;31m" in said
    assert not re.search(r"\x1b\[(?:\d;)*(?:9\d|37|33)m", said)  # white, yellow and bright ones vanish on white


def test_lines_of_a_cell_in_the_other_formats():
    table = TextTable(title="t", head=["arm", "toy\n8 tasks"], rows=[["a", f"1.0 [0.5, 1.5]\n+1.0 {BETTER} · n 8"]])
    assert f"| a | 1.0 [0.5, 1.5]<br>+1.0 {BETTER} · n 8 |" in to_markdown(table)
    assert f"<td>1.0 [0.5, 1.5]<br>+1.0 {BETTER} · n 8</td>" in to_html(table)
    tex = to_latex(table)
    assert r"a & \begin{tabular}[t]{@{}r@{}}1.0 [0.5, 1.5] \\ +1.0 $\uparrow$ $\cdot$ n 8\end{tabular} \\" in tex
    assert BETTER not in tex


def test_csv_has_a_line_a_cell_unrounded(sweep, capsys):
    assert main([str(sweep), "--format", "csv"]) == 0
    out, errors = capsys.readouterr()
    assert "p allows neither for arms that this table leaves out" in errors
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [(row["env"], row["label"]) for row in rows] == [
        (env, arm) for env in ("toy", "toy_chance") for arm in ("no_memory", "awm", "reasoningbank")
    ]
    row = rows[2]
    assert float(row["success"]) == pytest.approx(2 / 3) and float(row["p_holm"]) < 0.05
    assert (row["n"], row["n_infra_error"], row["n_seeds"]) == ("36", "0", "3")


def test_a_pipe_gets_markdown_and_a_terminal_columns(sweep, tmp_path):
    words = [sys.executable, "-m", "scripts.tables", str(sweep)]
    how = {"capture_output": True, "text": True, "timeout": 120, "check": True, "cwd": REPO}
    piped = forkserver.run(words, **how).stdout
    assert piped.startswith("### Success, %") and "| no_memory | " in piped
    shown = forkserver.run(["script", "-qec", f"stty cols 80; {' '.join(words)}", "/dev/null"], **how).stdout
    assert "| no_memory" not in shown and "─────" in shown and "12 tasks x 3 seeds" in shown
    out = tmp_path / "table.txt"
    assert main([str(sweep), "--format", "terminal", "-o", str(out)]) == 0
    assert "─────" in out.read_text() and "\x1b" not in out.read_text()


def test_at_the_end_of_a_sweep_it_is_printed_and_never_an_error(sweep, tmp_path):
    console = Console(width=100, file=io.StringIO())
    print_matrix(sweep, console)
    assert "reasoningbank" in console.file.getvalue() and f"{BETTER} · n 36" in console.file.getvalue()
    print_matrix(tmp_path, console)
    assert console.file.getvalue().rstrip().endswith("there is no manifest.json in it or below it.")


def test_published_rows_that_cannot_be_compared_only_on_demand(sweep, capsys):
    assert main([str(sweep)]) == 0
    assert "Published" not in capsys.readouterr().out
    assert main([str(sweep), "--published"]) == 0
    said = capsys.readouterr().out
    assert "### Published" in said and re.search(r"\| no: (its model is|another benchmark)", said)
    assert "yes: number of tasks and model" not in said


def test_the_order_is_the_papers_then_ours_then_ones_own():
    arms = "mine_k10 mine_k2 random_retrieval matts_sequential reasoningbank awm synapse no_memory".split()
    arms.append("matts_parallel_k5")
    rows = [{"arm": arm, "label": arm} for arm in arms]
    rows += [{"arm": "reasoningbank", "label": f"reasoningbank top_k={k}"} for k in (10, 2)]
    found = [row["label"] for row in sorted(rows, key=place_of_arm)]
    papers = ["no_memory", "synapse", "awm", "reasoningbank", "reasoningbank top_k=2", "reasoningbank top_k=10"]
    assert found[:6] == papers
    assert found[6:] == ["matts_sequential", "matts_parallel_k5", "random_retrieval", "mine_k2", "mine_k10"]


def test_a_task_that_is_played_twice_is_one_task(here, tmp_path):
    here(*TOY, "arm=no_memory", "limit=3", "stream.passes=2", run_dir=tmp_path / "two")
    cells, [text, *_] = build_matrix(load_episodes([str(tmp_path)]))
    assert text.head[1] == "toy\n3 tasks x 2 passes x 1 seed" and cells.table["n"].tolist() == [6]
    write_rows(tmp_path / "two", read_rows(tmp_path / "two")[:4])
    cells, _ = build_matrix(load_episodes([str(tmp_path)]), partial=True)
    assert any(note.endswith("stopped after 4 of 6 tasks: counted as far as it goes.") for note in cells.notes)
