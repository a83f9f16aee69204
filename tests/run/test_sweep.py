"""k and r in a sweep over arms: for the arms that have them, and refused where nothing would come of them."""

from __future__ import annotations

import forkserver
import pytest
from conftest import TOY, command, read_json, read_rows

from analysis.runs import read_run
from analysis.tables import build_tables, load_episodes

ARMS = "no_memory,reasoningbank,matts_parallel,matts_sequential"
SWEEP = ("-m", *TOY, f"arm={ARMS}", "limit=2")


def start(*words, cwd):
    return forkserver.run(command(*words), cwd=cwd, capture_output=True, text=True, timeout=240, check=False)


@pytest.fixture(scope="module")
def sweeps(tmp_path_factory):
    """(folder, what it printed) of the sweep without sizes and with them."""
    folder = tmp_path_factory.mktemp("sizes")
    found = {}
    for name, sizes in (("plain", ()), ("sized", ("k=4", "r=2"))):
        done = start(*SWEEP, *sizes, f"run_dir={folder / name}", cwd=folder)
        assert done.returncode == 0, done.stderr
        found[name] = done.stdout
    return folder, found


def run_of(folder, arm):
    [path] = folder.glob(f"arm={arm},*")
    return path


def test_each_arm_takes_the_sizes_that_it_has_and_says_what_it_leaves(sweeps):
    folder, printed = sweeps
    attempts = {
        arm: {len(row["trajectories"]) for row in read_rows(run_of(folder / "sized", arm))} for arm in ARMS.split(",")
    }
    assert attempts == {"no_memory": {1}, "reasoningbank": {1}, "matts_parallel": {4}, "matts_sequential": {3}}
    said = [line for line in printed["sized"].splitlines() if " left out: " in line]
    assert [line.split(" has no ")[0] for line in said] == [
        "k=4 r=2 left out: no_memory",
        "k=4 r=2 left out: reasoningbank",
        "r=2 left out: matts_parallel",
        "k=4 left out: matts_sequential",
    ]
    assert " left out: " not in printed["plain"]


def test_sizes_change_the_cells_of_the_arms_that_have_them_and_no_other(sweeps):
    folder, _ = sweeps
    for arm in ARMS.split(","):
        plain, sized = (run_of(folder / name, arm) for name in ("plain", "sized"))
        one, other = read_run(plain), read_run(sized)
        assert (one.cell == other.cell) == (arm in ("no_memory", "reasoningbank"))
        if one.cell != other.cell:
            continue
        assert (plain / "episodes.jsonl").read_bytes() == (sized / "episodes.jsonl").read_bytes()
        assert one.manifest["fingerprint"] == other.manifest["fingerprint"]
        assert other.overridden == []
        assert read_json(sized / "summary.json")["arm"] == arm
        cells, texts = build_tables(load_episodes([str(plain), str(sized)]), "all")
        assert cells.table["label"].tolist() == [arm]
        assert texts[0].rows[0][0] == arm


def test_the_same_sizes_go_on_and_others_are_refused_for_the_arm_that_has_them(sweeps, tmp_path):
    folder, _ = sweeps
    done = start(*SWEEP, "k=4", "r=2", f"run_dir={folder / 'sized'}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    arms = "arm=no_memory,matts_parallel"
    refused = start(*SWEEP, arms, "k=5", "r=2", f"run_dir={folder / 'sized'}", cwd=tmp_path)
    assert "workflow.k: 4 -> 5" in refused.stderr  # of matts_parallel alone
    assert refused.stderr.count("was made with another configuration") == 1


@pytest.mark.parametrize("words", [("arm=matts_parallel", "r=2"), ("-m", "arm=reasoningbank", "seed=0,1", "k=6")])
def test_without_a_sweep_over_arms_a_size_that_does_nothing_is_refused(main_here, tmp_path, words):
    status, _, errors = main_here(*words, *TOY, "limit=2", "run_dir=run")
    assert status == 1 and "need" in errors
    assert not list(tmp_path.rglob("summary.json"))
