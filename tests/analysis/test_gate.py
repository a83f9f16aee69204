"""experiment=ab, and the gate that asks whether memory pays."""

from __future__ import annotations

import shutil

import forkserver
import pytest
from conftest import TOY, command, read_json, read_rows, write_rows
from report_kit import called

from analysis.cells import make_cells
from analysis.gate import gate, lifts
from analysis.tables import build_tables, load_episodes
from core.errors import UserError

ARMS = ("no_memory", "reasoningbank", "matts_parallel", "matts_sequential")
SEEDS = (0, 1)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The experiment as a user runs it, where no memory solves 4 and 0 of ten boxes, and a bank more."""
    folder = tmp_path_factory.mktemp("ab") / "ab"
    run("experiment=ab", *TOY, "env=toy_chance", "limit=10", "seed=0,1", f"run_dir={folder}")
    return folder


def run(*words):
    done = forkserver.run(command(*words), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def ab(made, tmp_path):
    return shutil.copytree(made, tmp_path / "ab")


def run_of(folder, arm, seed):
    return folder / f"arm={arm},env=toy_chance,llm=scripted,seed={seed}"


def charge(folder, **usd):
    """What every task of an arm cost, all to its agent."""
    for arm, cost in usd.items():
        for seed in SEEDS:
            run = run_of(folder, arm, seed)
            rows = read_rows(run)
            for row in rows:
                row["usage"]["agent"]["cost_usd"] = cost
            write_rows(run, rows)


def solved(folder, arm):
    return sum(row["status"] == "success" for seed in SEEDS for row in read_rows(run_of(folder, arm, seed)))


def test_the_experiment_has_the_four_arms_with_six_attempts_and_three_checks(made):
    attempts = {arm: len(read_rows(run_of(made, arm, 0))[0]["trajectories"]) for arm in ARMS}
    assert attempts == {"no_memory": 1, "reasoningbank": 1, "matts_parallel": 6, "matts_sequential": 4}
    _, texts = build_tables(load_episodes([str(made)]), "ab")
    assert [row[0] for row in texts[0].rows] == list(ARMS)
    assert not any(note.startswith("missing") for note in texts[0].notes)


def test_a_missing_cell_is_made_by_the_command_that_is_printed(made, ab):
    shutil.rmtree(run_of(ab, "no_memory", 1))
    _, texts = build_tables(load_episodes([str(ab)]), "ab")
    [line] = [note.removeprefix("missing: ") for note in texts[0].notes if note.startswith("missing: ")]
    words = line.replace(str(made), str(ab)).split()[2:]  # without "python main.py", and not where the runs were made
    assert "k=6 r=3 left out: no_memory" in run(*words)
    assert read_json(run_of(ab, "no_memory", 1) / "manifest.json")["config"]["workflow"]["k"] is None


def test_it_holds_where_the_cost_of_a_success_falls_enough(ab, capsys):
    none, bank = solved(ab, "no_memory"), solved(ab, "reasoningbank")
    assert 0 < none < bank
    enough = 0.85 * bank / none  # a task may cost that much, where one without memory costs 1
    for cost, status, word in ((enough, 0, " holds"), (enough * 1.001, 1, "does not hold")):
        charge(ab, no_memory=1.0, reasoningbank=cost, matts_parallel=9.0, matts_sequential=9.0)
        done = called(capsys, "compare", ab, "--gate", "cost=0.15", "--arm", "reasoningbank")
        assert (done.returncode, word in done.stdout) == (status, True), done.stdout + done.stderr
        assert f"{20 * cost / bank:.5f}" in done.stdout
    assert f"against no_memory: {20 / none:.5f} USD / success" in done.stdout
    charge(ab, reasoningbank=enough)
    every = called(capsys, "compare", ab, "--gate", "cost=0.15")
    assert every.returncode == 1  # the others became dearer
    assert every.stdout.count("does not hold") == 2


def test_what_broke_and_the_banks_own_work_cost_too(ab):
    charge(ab, **dict.fromkeys(ARMS, 1.0))
    cells = make_cells(load_episodes([str(ab)]), "no_memory")
    [before] = gate(cells, 0.15, ["reasoningbank"])
    cells.frame.loc[cells.frame["arm"] == "reasoningbank", "cost_consolidation"] = 5.0  # of each of its two runs
    [after] = gate(cells, 0.15, ["reasoningbank"])
    assert after.cost == pytest.approx(before.cost + 10 / solved(ab, "reasoningbank"))
    place = cells.frame.index[(cells.frame["arm"] == "reasoningbank") & (cells.frame["success"] == 0)][0]
    cells.frame.loc[place, ["status", "success"]] = "infra_error", float("nan")
    assert gate(cells, 0.15, ["reasoningbank"])[0].cost == after.cost


def test_a_lower_success_rate_never_holds(ab, capsys):
    charge(ab, no_memory=1.0, reasoningbank=0.01, matts_parallel=0.01, matts_sequential=0.01)
    cells = make_cells(load_episodes([str(ab)]), "reasoningbank")
    [worse] = gate(cells, 0.15, ["no_memory"])
    assert not worse.holds
    words = ("--gate", "cost=0.15", "--baseline", "matts_sequential", "--arm", "reasoningbank")
    cheap = called(capsys, "compare", ab, *words)
    assert cheap.returncode == 1  # 20 points less


def test_it_is_no_answer_where_it_cannot_be_told(ab, capsys):
    free = called(capsys, "compare", ab, "--gate", "cost=0.15")
    assert (free.returncode, free.stderr.count("\n")) == (2, 1)
    assert "no_memory costs nothing" in free.stderr
    charge(ab, no_memory=1.0, reasoningbank=None)
    unknown = called(capsys, "compare", ab, "--gate", "cost=0.15")
    assert (unknown.returncode, unknown.stderr.count("\n")) == (2, 1)
    assert "the cost of reasoningbank is unknown" in unknown.stderr
    for wrong in ("cost=15", "tokens=0.15", "0.15"):
        refused = called(capsys, "compare", ab, "--gate", wrong)
        assert refused.returncode == 2 and "give cost=FRACTION" in refused.stderr
    nobody = called(capsys, "compare", ab, "--gate", "cost=0.15", "--arm", "synapse")
    assert nobody.returncode == 2 and "there is no run of synapse" in nobody.stderr
    shutil.rmtree(run_of(ab, "no_memory", 0))  # the baseline of seed 1 solved nothing
    nothing = called(capsys, "compare", ab, "--gate", "cost=0.15")
    assert nothing.returncode == 2 and "no_memory has no success" in nothing.stderr


def test_an_arm_that_did_not_finish_is_not_passed_over(ab):
    charge(ab, **dict.fromkeys(ARMS, 1.0))
    for seed in SEEDS:
        run = run_of(ab, "matts_parallel", seed)
        write_rows(run, read_rows(run)[:5])
    with pytest.raises(UserError, match="no finished run of matts_parallel"):
        gate(make_cells(load_episodes([str(ab)]), "no_memory"), 0.0)


def test_scalings_lift_is_over_the_method_with_one_attempt(ab, capsys):
    charge(ab, **dict.fromkeys(ARMS, 1.0))
    found = {row["label"]: row for row in lifts(load_episodes([str(ab)]))}
    assert list(found) == ["matts_parallel", "matts_sequential"]
    bank = solved(ab, "reasoningbank")
    for arm, row in found.items():
        assert row["difference"] == pytest.approx((solved(ab, arm) - bank) / 20)
        assert row["difference_low"] <= row["difference"] <= row["difference_high"]
    done = called(capsys, "compare", ab, "--gate", "cost=0")
    assert "lift of matts_sequential over reasoningbank: +20.0 [" in done.stdout
    assert "points over 20 pairs" in done.stdout


def test_what_broke_lets_no_arm_pass(ab, capsys):
    """Both arms solve tasks 0 and 1 of ten; the arm breaks on all others, and costs less. Had these failed it would
    have solved as many as now; had the baseline been solved where it broke, less."""
    charge(ab, no_memory=1.0, reasoningbank=0.1)

    def play(arm, failed):
        for seed in SEEDS:
            rows = read_rows(run_of(ab, arm, seed))
            for place, row in enumerate(rows):
                won = place < 2
                end = {"ended_by": "end" if won or failed == "failure" else "infra_error", "error": None}
                row["status"] = "success" if won else failed
                row["trajectories"][row["chosen"]] |= end | {"success": won, "reward": float(won)}
            write_rows(run_of(ab, arm, seed), rows)

    words = ("compare", ab, "--gate", "cost=0.15", "--arm", "reasoningbank")
    play("no_memory", "failure")
    play("reasoningbank", "infra_error")
    assert called(capsys, *words).returncode == 0  # 2 of 10 against 2 of 10, whatever the eight would have been
    play("no_memory", "infra_error")
    play("reasoningbank", "failure")
    done = called(capsys, *words)
    assert done.returncode == 2
    assert "had the tasks that broke (0 of its own, 16 of the baseline's) gone the other way" in done.stderr
