"""A sweep on a real Ray of two nodes: a worker and a node are killed to no effect, and a lost cell is said so."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from pathlib import Path

import forkserver
import pytest
from conftest import TOY, command, read_json
from ray_kit import Ray, until, writer

pytest.importorskip("ray", reason="ray is not installed (pip install ray)")

SWEEP = ("-m", *TOY, "arm=reasoningbank", "seed=0,1", "limit=8")
SLOWLY = "llm.delay_s=0.15"  # so that a cell can be killed in its midst


@pytest.fixture
def ray():
    with tempfile.TemporaryDirectory(prefix="ray") as folder, Ray(Path(folder)) as started:
        yield started


def begin(ray, folder, *words):
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return forkserver.Popen(
        command(*SWEEP, SLOWLY, "hydra/launcher=ray", *words, "run_dir=sweep"),
        cwd=folder,
        env=ray.env,
        text=True,
        **streams,
    )


def cell(folder, seed):
    return folder / "sweep" / f"arm=reasoningbank,env=toy,llm=scripted,seed={seed}"


def in_midst(folder, seed):
    """Wait until a cell has recorded two of its eight episodes; returns the process that runs it."""
    path = cell(folder, seed) / "episodes.jsonl"
    until(lambda: path.is_file() and path.read_bytes().count(b"\n") >= 2)
    assert path.read_bytes().count(b"\n") < 8
    return writer(path)


def test_a_killed_worker_and_a_killed_node_leave_the_same_bytes_and_a_lost_cell_is_said(ray, here, tmp_path):
    plain = tmp_path / "plain"
    for seed in (0, 1):
        here(*TOY, "arm=reasoningbank", f"seed={seed}", "limit=8", run_dir=cell(plain, seed))
    once = tmp_path / "once"
    once.mkdir()
    process = begin(ray, once, "hydra.launcher.max_retries=0")
    os.kill(in_midst(once, 0), signal.SIGKILL)
    out, errors = process.communicate(timeout=240)
    assert process.returncode == 1, out + errors
    assert "1 of 2 cells are not whole" in errors and "lost: Ray's task ended without a result." in errors
    assert read_json(cell(once, 1) / "summary.json")["complete"]

    again = tmp_path / "again"
    again.mkdir()
    process = begin(ray, again)
    workers = [in_midst(again, seed) for seed in (0, 1)]
    places = [ray.node_of(pid) for pid in workers]
    assert sorted(places) == ["head", "second"]
    os.kill(workers[places.index("head")], signal.SIGKILL)
    ray.kill_second()
    out, errors = process.communicate(timeout=300)
    assert process.returncode == 0, out + errors
    for seed in (0, 1):
        here, there = cell(again, seed), cell(plain, seed)
        assert (here / "episodes.jsonl").read_bytes() == (there / "episodes.jsonl").read_bytes()
        assert read_json(here / "summary.json")["complete"]
