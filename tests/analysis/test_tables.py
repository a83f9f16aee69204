"""From real toy runs to tables: what is counted, what is left out and said, and a sweep that was killed."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from itertools import product
from types import SimpleNamespace

import forkserver
import numpy as np
import pandas as pd
import pytest
import yaml
from conftest import TOY, command, read_json, read_rows, write_rows
from hydra.core.hydra_config import HydraConfig
from kill_kit import kill_at
from report_kit import break_off, change_manifest
from rich.console import Console

from analysis.cells import make_cells
from analysis.load import load_runs
from analysis.matrix import build_matrix, print_matrix
from analysis.runs import find_runs, read_run
from analysis.tables import COLUMN, EXPERIMENTS, build_tables, load_episodes, tables, wanted
from analysis.text_table import TextTable
from benchmarks import bench_tables
from core.errors import UserError
from core.proportions import wilson
from core.run import launch
from scripts.compare import main as compare
from scripts.tables import is_table, main

SWEEP = (*TOY, "experiment=main_table", "arm=no_memory,reasoningbank,matts_sequential", "seed=0,1", "limit=12")


def made(*words):
    done = forkserver.run(command(*words), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables") / "sweep"
    made(*SWEEP, f"run_dir={folder}")
    return folder


@pytest.fixture
def copy(sweep, tmp_path):
    return shutil.copytree(sweep, tmp_path / "sweep")


def of(arm, seed):
    """The name of a cell's folder."""
    return f"arm={arm},env=toy,llm=scripted,seed={seed}"


def lines(texts, title="Main"):
    return {row[0]: row for text in texts if text.title.startswith(title) for row in text.rows}


def test_a_sweep_makes_the_table_of_its_cells(sweep):
    cells, texts = build_tables(load_episodes([str(sweep)]), "main")
    found = lines(texts)
    assert list(found) == ["no_memory", "reasoningbank", "matts_sequential"]
    # Of 12 boxes in 4 families the first of each stays shut; a second round opens them all.
    assert [row[1:6] for row in found.values()] == [
        ["2", "24", "none", "none", "0.0 [0.0, 28.8]"],
        ["2", "24", "none", "llm", found["reasoningbank"][5]],
        ["2", "24", "none", "llm", "100.0 [71.2, 100.0]"],
    ]
    assert found["reasoningbank"][5].startswith("66.7 [")
    table = cells.table.set_index("arm")
    assert table.loc["reasoningbank", ["won", "lost", "n_pairs"]].tolist() == [16, 0, 24]
    assert table.loc["reasoningbank", "lessons_per_100"] == 100
    assert table.loc["reasoningbank", "hit_rate"] == pytest.approx(11 / 12)
    assert table.loc["reasoningbank", "judge_kappa"] == 1.0
    [note] = cells.notes
    assert note.startswith("toy: 8 of 12 tasks are nearly the same as another one")


def test_a_sweep_killed_and_started_again_gives_the_same_table(copy, tmp_path, capsys):
    folder = tmp_path / "killed"
    words = (*SWEEP, "arm=no_memory,reasoningbank", "llm.delay_s=0.02", f"run_dir={folder}")
    wanted_dir = folder / of("reasoningbank", 0)
    kill_at(4, command(*words), wanted_dir)
    assert 0 < len(read_run(wanted_dir).rows) < 12

    assert main([str(folder), "--table", "main"]) == 1
    said = capsys.readouterr().out
    assert f"{wanted_dir} stopped after" in said
    assert "0 of 2 (+1 partial)" in said
    gaps = [shlex.split(line.removeprefix("- missing: ")) for line in said.splitlines() if "missing: " in line]
    assert [gap[-2:] for gap in gaps] == [["arm=reasoningbank", f"seed={seed}"] for seed in (0, 1)]
    # The printed command finishes the cell where it stopped.
    made(*gaps[0][2:])
    assert read_run(wanted_dir).complete
    finished = (wanted_dir / "episodes.jsonl").stat().st_mtime_ns
    made(*words)
    assert (wanted_dir / "episodes.jsonl").stat().st_mtime_ns == finished  # what was done is not done again
    for run in copy.glob("arm=matts_sequential,*"):
        shutil.rmtree(run)
    rows = []
    for runs, status in ((folder, 0), (copy, 1)):
        assert main([str(runs), "--table", "main"]) == status
        rows.append([line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")])
    assert len(rows[0]) == 4 and rows[0] == rows[1]


def test_a_partial_run_is_named_and_counted_only_on_demand(copy):
    run = copy / of("reasoningbank", 0)
    write_rows(run, read_rows(run)[:4])
    cells, texts = build_tables(load_episodes([str(copy)]), "main")
    assert cells.table.set_index("arm").loc["reasoningbank", "n"] == 12
    assert [note for note in cells.notes if "nearly the same" not in note] == [
        f"{run} stopped after 4 of 12 tasks: left out.",
        "reasoningbank has seeds 1, its baseline 0, 1: the difference is over the shared ones (1), the rates are not.",
    ]
    cells, texts = build_tables(load_episodes([str(copy)]), "main", partial=True)
    assert cells.table.set_index("arm").loc["reasoningbank", "n"] == 16
    assert lines(texts)["reasoningbank"][5].endswith("*")
    write_rows(copy / of("reasoningbank", 1), [])
    _, texts = build_tables(load_episodes([str(copy)]), "main")
    assert lines(texts)["reasoningbank"][1:6] == ["0 (+2 partial)", "0", "none", "none", "partial"]


def test_seeds_of_the_sweep_that_are_not_shown_are_said(copy):
    assert not any("seeds of its sweep" in note for note in build_tables(load_episodes([str(copy)]), "main")[0].notes)
    shutil.rmtree(copy / of("reasoningbank", 1))
    cells, texts = build_tables(load_episodes([str(copy)]), "main")
    assert lines(texts)["reasoningbank"][1] == "1 of 2" and lines(texts)["no_memory"][1] == "2"
    said = (
        "reasoningbank: 1 of the 2 seeds of its sweep are here, without 1: who chooses among seeds chooses the result."
    )
    assert said in cells.notes
    # A later sweep in the same folder had more seeds, of this arm and one other.
    written = copy / "multirun.yaml"
    sweep = yaml.safe_load(written.read_text())
    words = [word for word in sweep["hydra"]["overrides"]["task"] if not word.startswith(("arm=", "seed="))]
    sweep["hydra"]["overrides"]["task"] = [*words, "arm=reasoningbank,awm", "seed=range(0,20)"]
    written.write_text(yaml.safe_dump(sweep))
    cells, texts = build_tables(load_episodes([str(copy)]), "main")
    assert lines(texts)["reasoningbank"][1] == "1 of 20" and lines(texts)["no_memory"][1] == "2"
    assert any("without 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ...: who" in note for note in cells.notes)
    row = next(row for row in build_matrix(load_episodes([str(copy)]))[1][0].rows if row[0] == "reasoningbank")
    assert "\n1 of 20 seeds" in row[1]


def test_errors_are_counted_apart_with_what_the_rate_would_be_had_they_failed_or_not(copy):
    rows = read_rows(run := copy / of("reasoningbank", 0))
    for place in (4, 5, 9):  # successes
        break_off(rows[place])
    write_rows(run, rows)
    cells, texts = build_tables(load_episodes([str(copy)]), "main")
    row = cells.table.set_index("arm").loc["reasoningbank"]
    assert (row["n"], row["n_infra_error"], row["n_pairs"]) == (21, 3, 21)
    assert row["success"] == pytest.approx((5 / 9 + 8 / 12) / 2)
    assert lines(texts)["reasoningbank"][2:4] == ["21", "3"]
    assert row["if_errors_failed"][0] < row["low"] and row["if_errors_failed"][1] < row["if_errors_solved"][1]
    notes = "\n".join(cells.notes)
    assert "reasoningbank: 3 of 24 episodes broke; the 95 % interval would be [" in notes
    assert "broken tasks differ between the arms, which can make one look better: " in notes
    assert "reasoningbank: 3 of 24 pairs with its baseline are lost" in notes


def test_the_same_run_under_six_seeds_is_one_seed(copy):
    for arm in ("no_memory", "reasoningbank"):
        shutil.rmtree(copy / of(arm, 1))
        for seed in range(1, 6):
            twin = shutil.copytree(copy / of(arm, 0), copy / f"{arm}-{seed}")
            change_manifest(twin, lambda made, seed=seed: made["config"].update(seed=seed))
    cells, _ = build_tables(load_episodes([str(copy)]), "main")
    row = cells.table.set_index("arm").loc["reasoningbank"]
    assert (row["n_seeds"], row["n"], row["n_distinct_seeds"], row["n_pairs"]) == (6, 72, 1, 12)
    assert np.isnan(row["p"]) and np.isnan(row["p_holm"])
    assert [row["low"], row["high"]] == wilson(8, 12)
    assert any("its 6 seeds hold only 1 different sets of attempts" in note for note in cells.notes)


def test_a_seed_without_an_episode_that_counts_is_no_seed(copy):
    write_rows(copy / of("reasoningbank", 1), [])
    table = build_tables(load_episodes([str(copy)]), "main", partial=True)[0].table.set_index("arm")
    row = table.loc["reasoningbank"]
    assert (row["n_seeds"], row["n"], row["n_pairs"], row["n_paired_seeds"]) == (1, 12, 12, 1)
    assert [row["low"], row["high"]] == wilson(8, 12)
    assert row["tokens_per_success"] > 0


def test_runs_of_other_prompts_are_another_cell(copy):
    run = copy / of("reasoningbank", 1)
    change_manifest(run, lambda made: made["fingerprint"]["prompts"].update(judge="another"))
    cells, _ = build_tables(load_episodes([str(copy)]), "main")
    rows = cells.table[cells.table["arm"] == "reasoningbank"]
    assert sorted(rows["seeds"]) == [(0,), (1,)]
    assert rows["label"].str.startswith("reasoningbank #").all()


def test_a_comparison_says_what_else_is_not_the_same(copy):
    run = copy / of("reasoningbank", 0)
    change_manifest(run, lambda made: made["config"]["roles"]["agent"].update(temperature=0.1))
    change_manifest(run, lambda made: made["fingerprint"]["dataset"].update(sha256="other"))
    change_manifest(run, lambda made: made["git"].update(sha="0123456789"))
    shutil.rmtree(copy / of("reasoningbank", 1))
    notes = build_tables(load_episodes([str(copy)]), "main")[0].notes
    assert "reasoningbank differs from its baseline beside the arm: roles.agent.temperature 0.1, baseline 0.7." in notes
    assert "toy: the data of these tasks is not the same in matts_sequential, no_memory, reasoningbank." in notes
    assert any(re.search(r"made by 2 versions of the code: 01234567[^,]*, ", note) for note in notes)


def test_two_passes_are_not_twice_as_many_tasks(here, tmp_path, capsys):
    for arm in ("no_memory", "reasoningbank"):
        here(*TOY, f"arm={arm}", "limit=12", "stream.passes=2", run_dir=tmp_path / arm)
    row = make_cells(load_runs([tmp_path]), "no_memory").table.set_index("arm").loc["reasoningbank"]
    assert (row["n"], row["n_pairs"], row["won"], row["lost"]) == (24, 24, 20, 0)  # the second time all but none
    assert row["p_tasks"] == 2 / 2**12 and np.isnan(row["p"])  # one seed
    assert row["success"] == pytest.approx(20 / 24)
    assert compare([str(tmp_path / arm) for arm in ("no_memory", "reasoningbank")]) == 0
    assert "exact permutation task by task, p = 0.0005" in capsys.readouterr().out


def test_an_id_that_asks_another_question_is_no_pair(here, tmp_path, capsys):
    """Two files of questions with the ids a, b: only b asks the same in both."""
    for name, first in (("one", "1 + 1"), ("two", "2 + 2")):
        rows = [{"id": "a", "question": first, "answer": "2"}, {"id": "b", "question": "3 + 3", "answer": "6"}]
        (file := tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        words = ("env=math500", f"env.path={file}", "env.dataset=own", "llm=free", "embedder=hashing")
        here(*words, run_dir=tmp_path / name)
    assert compare([str(tmp_path / "one"), str(tmp_path / "two")]) == 0
    said = capsys.readouterr().out
    assert "1 ids ask another question in A than in B, and are not compared: " in said and "over 1 pairs" in said
    assert "The environments differ, so an id may stand for another task: env.path" in said


def test_a_table_finds_its_runs_among_others(copy, here, capsys):
    for k in (1, 2):
        here(*TOY, "arm=matts_parallel", "limit=4", f"k={k}", run_dir=copy / f"k{k}")
    assert main([str(copy), "--table", "matts_scaling"]) == 0
    said = capsys.readouterr().out
    assert "matts_parallel k=1 " in said and "matts_parallel k=2 " in said
    assert main([str(copy), "--table", "main", "--table", "learning"]) == 0
    said = capsys.readouterr().out
    assert "### Main table" in said and "### Does it learn?" in said
    assert main([str(copy), "--table", "main", "--table", "learning", "--format", "csv"]) == 2


def test_an_arm_that_is_no_cell_of_a_table_is_shown_in_the_main_one_and_named_below_the_others(copy, here, capsys):
    here(*TOY, "arm=random_retrieval", "limit=12", run_dir=copy / "stranger")
    line = "left out, no cell of learn_from: runs of matts_sequential (2), random_retrieval (1). "
    line += "--table all shows every run."
    assert main([str(copy), "--table", "main"]) == 0
    said = capsys.readouterr().out
    assert "| random_retrieval |" in said and "left out" not in said
    assert main([str(copy), "--table", "learn_from"]) == 0
    said = capsys.readouterr().out
    assert f"- {line}\n" in said and "| random_retrieval |" not in said
    assert main([str(copy), "--format", "csv", "--table", "learn_from"]) == 0
    said = capsys.readouterr()
    assert line in said.err and "random_retrieval" not in said.out
    assert main([str(copy), "--table", "all"]) == 0
    said = capsys.readouterr().out
    assert "| random_retrieval |" in said and "left out" not in said
    change_manifest(copy / "stranger", lambda made: made["command"].insert(1, "experiment=retrieval"))
    assert main([str(copy), "--table", "main"]) == 0
    assert "left out, no cell of main_table: runs of random_retrieval (1)." in capsys.readouterr().out


def test_an_arm_that_is_overridden_is_another_cell_and_says_so(copy, here, capsys):
    """It runs as ReasoningBank, whatever it was called, and is no run of the baseline."""
    for seed in (0, 1):
        words = ("arm=no_memory", "workflow=reasoningbank", f"seed={seed}")
        here(*TOY, *words, "retrieval.top_k=2", "limit=12", run_dir=copy / f"mislabelled{seed}")
        here(*TOY, *words, "limit=12", run_dir=copy / f"a_copy_of_reasoningbank{seed}")
        assert "no_memory workflow=reasoningbank on toy" in capsys.readouterr().out
        print_matrix(copy, Console(width=200))
        said = capsys.readouterr().out
        assert "no_memory retrieval.top_k=2" in said and "workflow=reasoningbank" in said
    here(*TOY, "workflow=matts_parallel", "limit=12", "k=2", run_dir=copy / "without_an_arm")
    here(*TOY, "arm=reasoningbank", "workflow.learn_from=failure", "limit=12", run_dir=copy / "narrowed")
    cells, texts = build_tables(load_episodes([str(copy)]), "main")
    table = cells.table.set_index("label")
    assert set(table.index) == {
        "no_memory",
        "no_memory retrieval.top_k=2 workflow=reasoningbank",
        "reasoningbank",
        "reasoningbank workflow.learn_from=failure",
        "matts_parallel k=2",
        "matts_sequential",
    }
    assert any("a_copy_of_reasoningbank0 is left out: another run" in note for note in cells.notes)
    assert table.loc["no_memory", "success"] == 0.0
    won = table["won"]
    assert won["no_memory retrieval.top_k=2 workflow=reasoningbank"] == won["reasoningbank"] == 16
    # It does not fill the cell of the arm whose name it bears.
    for seed in (0, 1):
        shutil.rmtree(copy / of("no_memory", seed))
    cells, texts = build_tables(load_episodes([str(copy)]), "main")
    assert any("no finished run of the baseline no_memory" in note for note in cells.notes)
    assert any(note.startswith("missing: ") and "arm=no_memory" in note for text in texts for note in text.notes)


def test_a_sweep_may_be_written_in_hydras_ways():
    cells = list(wanted("main_table", "experiment=main_table 'seed=range(0,2)' arm=no_memory,awm env=toy"))
    assert [(cell["arm"], cell["seed"]) for cell in cells] == [*product(("no_memory", "awm"), "01")]


def test_a_job_of_a_cluster_knows_the_command_of_its_sweep(sweep, monkeypatch):
    config = SimpleNamespace(sweep=SimpleNamespace(dir=str(sweep)))
    monkeypatch.setattr(launch.HydraConfig, "get", staticmethod(lambda: config))
    monkeypatch.setattr("sys.argv", ["/x/main.py", "seed=1"])
    assert launch.command_line() == ["/x/main.py", "seed=1"]
    monkeypatch.setattr("sys.argv", ["/x/submitit/core/_submit.py", "folder"])
    words = launch.command_line()
    assert words[0] == "main.py" and set(SWEEP) <= set(words)


def test_unlike_tasks_are_not_mixed_and_one_cell_twice_counts_once(copy, here):
    here(*TOY, "arm=reasoningbank", "limit=8", run_dir=copy / "shorter")
    shutil.copytree(copy / of("reasoningbank", 0), copy / "a_copy")
    cells, texts = build_tables(load_episodes([str(copy)]), "main")
    assert sorted(text.title for text in texts[:2]) == [
        "Main table: toy, scripted, 12 tasks; with labels llm",
        "Main table: toy, scripted, 8 tasks; with labels llm",
    ]
    assert f"{copy / 'a_copy'} is left out: another run of reasoningbank, seed 0." in cells.notes
    assert cells.table.groupby("arm")["n"].sum()["reasoningbank"] == 24 + 8


def test_workflow_and_arm_are_one_cell(copy, here):
    here(*TOY, "workflow=vanilla", "limit=12", "seed=5", run_dir=copy / "by_hand")
    cells, _ = build_tables(load_episodes([str(copy)]), "main")
    assert cells.table.set_index("label").loc["no_memory", "seeds"] == (0, 1, 5)


def test_torn_lines_and_empty_runs_are_read_without_a_write(copy):
    run = copy / of("no_memory", 0)
    with (run / "episodes.jsonl").open("a") as file:
        file.write('{"index": 12, "torn')
    before = (run / "episodes.jsonl").read_bytes()
    assert len(read_run(run).rows) == 12
    assert (run / "episodes.jsonl").read_bytes() == before
    write_rows(run, [])
    frame = load_runs([run])
    assert frame["status"].tolist() == ["none"]
    with pytest.raises(UserError, match="none of the runs has finished an episode"):
        make_cells(frame)
    (run / "episodes.jsonl").write_text("{}}\n")
    with pytest.raises(UserError, match="line 1 is damaged"):
        read_run(run)
    with pytest.raises(UserError, match="holds no run"):
        load_runs([run / ".hydra"])


def test_learning_is_told_apart_from_easy_tasks_and_types_from_each_other(sweep):
    cells, _ = build_tables(load_episodes([str(sweep)]), "learning")
    row = cells.table.set_index("arm").loc["reasoningbank"]
    assert row["late_early"] == row["gain"] == pytest.approx(1 - 2 / 6)  # of the first 6 boxes two, of the last all
    assert cells.table.set_index("arm").loc["matts_sequential", "gain"] == 0
    _, texts = build_tables(load_episodes([str(sweep)]), "types")
    assert texts[0].head[6:] == ["amber", "birch", "cedar", "dune"]
    assert lines(texts, "Success")["reasoningbank"][6:] == ["66.7"] * 4


def test_every_format_holds_the_numbers(sweep, tmp_path):
    held = {"md": "| no_memory |", "latex": r"no\_memory &", "html": "<td>no_memory</td>", "csv": "no_memory,"}
    for style, said in held.items():
        assert main([str(sweep), "--format", style, "-o", str(tmp_path / style)]) == 0
        assert said in (tmp_path / style).read_text(), style
    assert pd.read_csv(tmp_path / "csv")["success"].tolist() == pytest.approx([0, 2 / 3, 1])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mein", "--table mein: give matrix, "),
        ("mine.nowhere.table", "--table mine.nowhere.table cannot be imported: ModuleNotFoundError: "),
        ("analysis.columns.nothing", "--table analysis.columns.nothing cannot be imported: "),
        ("analysis.columns", "--table analysis.columns is no function"),
    ],
)
def test_a_table_that_there_is_not_is_one_sentence(name, said, capsys):
    assert main(["no/runs/are/read", "--table", name]) == 2
    errors = capsys.readouterr().err
    assert errors.startswith(f"error: {said}") and len(errors.splitlines()) == 1


def test_a_table_without_runs_says_what_makes_it(sweep, capsys):
    assert main([str(sweep), "--table", "pass_at_k"]) == 2
    assert "python main.py experiment=pass_at_k" in capsys.readouterr().err


def test_seeds_of_a_cell_share_its_id_and_nothing_else_does(sweep):
    runs = [read_run(path) for path in find_runs([sweep])]
    assert len({run.cell for run in runs}) == 3
    assert len({(run.cell, run.config["seed"]) for run in runs}) == 6


def test_several_attempts_by_hand(sweep):
    frame = load_runs([sweep / of("reasoningbank", 0)])
    won, lost, broken = "success", "failure", "infra_error"
    attempts = [[won, lost, lost], [won, won, broken], [lost, lost, lost]]
    verdicts = [[won, won, lost], [won, lost, None], [None, None, None]]
    frame = frame.head(3).assign(attempts=attempts, verdicts=verdicts, complete=True)
    row = make_cells(frame).table.iloc[0]
    assert row["avg_at_k"] == pytest.approx((1 / 3 + 1 + 0) / 3)
    assert row["pass_at"] == pytest.approx([(1 / 3 + 1 + 0) / 3, (2 / 3 + 1 + 0) / 3, (1 + 0) / 2])
    assert [row[f"judge_{name}"] for name in ("tp", "fp", "fn", "tn")] == [2, 1, 1, 1]


def experiments():
    """Those of known cells with a table of their columns: a verdict chooses its cells, transfer goes by given banks."""
    others = ("known_answer", "recorded", "verdict", "transfer")
    return sorted(path.stem for path in EXPERIMENTS.glob("*.yaml") if path.stem not in others)


def test_a_tables_baseline_is_a_cell_of_its_experiment(subtests):
    for name, table in tables().items():
        if not table.experiment:
            continue
        with subtests.test(name):
            cells = [{COLUMN.get(key, key): value for key, value in c.items()} for c in wanted(table.experiment, "")]
            words = [{*cell.values(), *(f"{key}={value}" for key, value in cell.items())} for cell in cells]
            assert any(set(table.baseline.split()) <= known for known in words)


@pytest.mark.parametrize("experiment", experiments())
def test_every_cell_of_an_experiment_composes(compose, experiment):
    """Its file overrides no group (below): its cells compose if their options are there and one of them composes."""
    assert any(table.experiment == experiment for table in tables().values())
    cells = [cell for cell in wanted(experiment, "") if cell.get("seed") == "0"]
    for group, option in {item for cell in cells for item in cell.items()}:
        assert not (EXPERIMENTS.parent / group).is_dir() or (EXPERIMENTS.parent / group / f"{option}.yaml").is_file()
    cfg = compose(f"experiment={experiment}", *(f"{key}={value}" for key, value in cells[-1].items()))
    assert cfg.workflow._target_ and HydraConfig.get().sweep.dir == f"outputs/{experiment}"


def test_a_table_has_the_columns_that_are_named(sweep, capsys):
    assert main([str(sweep), "--columns", "steps, types", "--baseline", "no_memory"]) == 0
    head = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("| method"))
    assert head.endswith("| success % [95 %] | steps | amber | birch | cedar | dune |")
    assert main([str(sweep), "--columns", "stps"]) == 2
    assert "there is no column stps: did you mean steps" in capsys.readouterr().err
    assert "tables" not in read_run(find_runs([sweep])[0]).config  # no run depends on them


def test_what_a_function_for_a_table_may_return(sweep):
    cells, text = make_cells(load_runs([sweep])), TextTable(title="t", head=["a"], rows=[["1"]])
    wrong = (None, cells, (cells, text), (cells, []), (None, [text]), (cells, [text], 1))
    assert is_table((cells, [text])) and not any(map(is_table, wrong))


def test_an_experiment_holds_deltas_only():
    for name in experiments():
        keys = set(yaml.safe_load((EXPERIMENTS / f"{name}.yaml").read_text()))
        assert keys <= {"hydra", "tables", "k", "r", "stream"}, name


def test_the_benchmark_makes_runs_that_tables_reads(monkeypatch, capsys):
    words = ["--runs", "4", "--episodes", "4", "--steps", "2"]
    monkeypatch.setattr("sys.argv", ["bench_tables", *words])
    monkeypatch.setattr(bench_tables, "subprocess", forkserver)
    monkeypatch.setattr(bench_tables, "ARMS", ("no_memory", "reasoningbank"))
    assert bench_tables.main() == 0
    said = capsys.readouterr().out
    assert "4 runs x 4 episodes" in said  # it fails where tables.py prints no table
    assert "tables, over parsing" in said and "report, memory" in said


def test_the_summary_agrees_with_the_table(sweep):
    table = make_cells(load_runs([sweep])).table
    for row in table.to_dict("records"):
        summaries = [
            read_json(path / "summary.json") for path in find_runs([sweep]) if read_run(path).cell == row["cell"]
        ]
        assert row["n"] == sum(summary["n"] for summary in summaries)
        assert row["success"] == pytest.approx(sum(s["success_rate"] for s in summaries) / len(summaries), abs=1e-4)
        assert row["steps"] == pytest.approx(sum(s["mean_steps"] for s in summaries) / len(summaries), abs=1e-4)
        assert row["tokens"] * 12 * 2 == pytest.approx(sum(s["tokens"]["total"] for s in summaries))


def test_a_majority_of_attempts_without_an_answer_is_called_none(here):
    """Four boxes, each tried three times: a box is opened by what is said to it, so no attempt states an answer."""
    run, _ = here(*TOY, "arm=no_memory_same_cost", "k=3", "limit=4")
    cells, _ = build_tables(load_episodes([str(run)]), "all")
    said = "no two attempts gave the same answer in 4 of 4 episodes: there the first one counts, by no vote."
    assert f"no_memory_same_cost k=3: {said}" in cells.notes
