"""A world in which memory gains a known probability: what is measured holds the truth as often as it says."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from conftest import read_rows

from analysis.stats import paired
from core.seeding import derive_seed
from envs.toy import ToyEnv

CHANCE = ("env=toy_chance", "llm=scripted", "embedder=hashing")
P_GUESS, P_WORD, FAMILIES, BOXES = 0.3, 0.6, 4, 100
TRUTH = (P_WORD - P_GUESS) * (BOXES - 1) / BOXES  # the first box of a family has nobody to be taught by
make_env = partial(ToyEnv, instructions="", max_steps=5, families=FAMILIES, boxes_per_family=BOXES)


def defined(seed, remembers):
    """The rows of a run as the world's definition gives them, without the loop."""
    rows = []
    for index, task in enumerate(make_env(seed=seed).tasks()):
        taught = remembers and not task.id.endswith("/1")
        won = derive_seed(seed, task.id, "luck") / 2**31 < (P_WORD if taught else P_GUESS)
        rows.append({"index": index, "task_id": task.id, "status": "success" if won else "failure"})
    return rows


@pytest.mark.parametrize(("workflow", "remembers"), [("vanilla", False), ("reasoningbank", True)])
def test_the_loop_gives_just_what_the_definition_gives(here, workflow, remembers):
    run_dir, _ = here(*CHANCE, "seed=7", "limit=100", f"workflow={workflow}")
    rows = [{key: row[key] for key in ("index", "task_id", "status")} for row in read_rows(run_dir)]
    assert rows == defined(7, remembers)[:100]


def outcomes(seed, remembers):
    """(tasks, 1) of 0 and 1, as the tables pair them."""
    return np.array([[row["status"] == "success"] for row in defined(seed, remembers)], float)


def test_the_interval_holds_the_truth_in_nine_of_ten_seeds():
    found = [paired(outcomes(seed, True), outcomes(seed, False)) for seed in range(100)]
    assert sum(each["low"] <= TRUTH <= each["high"] for each in found) >= 90
    assert sum(each["difference"] for each in found) / 100 == pytest.approx(TRUTH, abs=0.01)
    assert {each["n_pairs"] for each in found} == {400}
