"""Cells of a sweep on a real Slurm of two nodes: what is preempted ends in the same bytes, what is lost is said so."""

from __future__ import annotations

import signal
import subprocess
import time

import forkserver
import pytest
from conftest import TOY, command, read_json
from slurm_kit import NODES, Slurm, missing

pytest.importorskip("submitit", reason="submitit is not installed (pip install hydra-submitit-launcher)")
pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

SWEEP = ("-m", *TOY, "arm=reasoningbank", "seed=0,1,2", "limit=8")
SLOWLY = "llm.delay_s=0.15"  # so that a cell can be stopped in its midst
LAUNCHER = ("hydra/launcher=slurm", "hydra.launcher.poll_s=1", "hydra.launcher.sbatch.timeout_min=20")


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    with Slurm(tmp_path_factory.mktemp("slurm") / "s") as started:
        yield started


@pytest.fixture(scope="module")
def one_after_another(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    forkserver.run(command(*SWEEP, "run_dir=sweep"), cwd=folder, capture_output=True, timeout=240, check=True)
    return folder / "sweep"


class Sweep:
    """A sweep on Slurm, started in a folder that no host knows as its own."""

    def __init__(self, slurm, folder, *words):
        self.slurm, self.folder, self.nodes = slurm, folder, set()
        self.process = forkserver.Popen(
            command(*SWEEP, SLOWLY, *LAUNCHER, *words, "run_dir=sweep"),
            cwd=folder,
            env=slurm.env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def cell(self, seed):
        return self.folder / "sweep" / f"arm=reasoningbank,env=toy,llm=scripted,seed={seed}"

    def queue(self):
        """{job: (state, node)}, and the nodes are remembered."""
        lines = self.slurm.run("squeue", "-h", "-r", "-o", "%i %T %N").splitlines()
        found = {words[0]: words[1:] for words in (line.split() for line in lines)}
        self.nodes |= {node for _, *nodes in found.values() for node in nodes}
        return found

    def in_midst(self, seed):
        """Wait until a cell has recorded two of its eight episodes; returns its job."""
        path = self.cell(seed) / "episodes.jsonl"
        self.slurm.until(lambda: path.is_file() and path.read_bytes().count(b"\n") >= 2, seconds=120)
        assert path.read_bytes().count(b"\n") < 8
        return next(job for job in self.queue() if job.endswith(f"_{seed}"))

    def starts_again(self, job):
        """Slurm makes a job that was queued again wait for two minutes: no test does."""
        self.slurm.until(lambda: self.queue().get(job, [""])[0] == "PENDING")
        self.slurm.run("scontrol", "update", f"JobId={job}", "StartTime=now")

    def end(self):
        while self.process.poll() is None and self.queue():
            time.sleep(0.3)
        out, errors = self.process.communicate(timeout=60)
        return self.process.returncode, out, errors

    def is_that_of(self, other, seed):
        here, there = self.cell(seed), other / self.cell(seed).name
        assert (here / "episodes.jsonl").read_bytes() == (there / "episodes.jsonl").read_bytes()
        assert read_json(here / "summary.json")["complete"]


def test_preempted_cells_go_on_and_a_lost_one_is_said(slurm, one_after_another, tmp_path):
    sweep = Sweep(slurm, tmp_path)
    requeued = sweep.in_midst(0)
    slurm.run("scontrol", "requeue", requeued)  # as Slurm does for a job that goes first, and after a node failed
    signalled = sweep.in_midst(1)
    asked = slurm.start("scancel", "--signal=USR2", signalled)  # as at the time limit; it asks on until it is cut off
    for job in (requeued, signalled):
        sweep.starts_again(job)
    asked.kill()
    cancelled = sweep.in_midst(2)
    slurm.run("scancel", cancelled)
    status, out, errors = sweep.end()
    assert sweep.nodes == set(NODES)
    assert status == 1, out + errors
    assert "1 of 3 cells are not whole" in errors
    assert f"lost: job {cancelled} of Slurm ended without a result (CANCELLED)" in errors
    assert "seed=2" in errors and "seed=0" not in errors.split("to go on:")[0]
    for seed in (0, 1):
        sweep.is_that_of(one_after_another, seed)
        starts = read_json(sweep.cell(seed) / "manifest.json")["starts"]
        assert starts[0]["command"][0].endswith("main.py")  # of the sweep, not of what Slurm starts
        log = next((tmp_path / "sweep" / ".submitit").glob(f"*_{seed}/*log.out")).read_text()
        assert log.count("Starting with JobEnvironment") == 2  # it did begin twice
    again = Sweep(slurm, tmp_path)
    status, out, errors = again.end()
    assert status == 0, out + errors
    again.is_that_of(one_after_another, 2)


def test_ctrl_c_takes_the_cells_out_of_the_queue(slurm, tmp_path):
    sweep = Sweep(slurm, tmp_path)
    sweep.in_midst(0)
    sweep.process.send_signal(signal.SIGINT)
    _, errors = sweep.process.communicate(timeout=60)
    assert "stopped: 0 of 3 cells are done." in errors
    slurm.until(lambda: not sweep.queue())


def test_a_refusal_of_sbatch_is_one_sentence(slurm, tmp_path):
    _, errors = Sweep(slurm, tmp_path, "hydra.launcher.sbatch.partition=nowhere").process.communicate(timeout=60)
    assert "invalid partition specified: nowhere" in errors
    assert "Traceback" not in errors
