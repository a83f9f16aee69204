"""The launchers of a cluster where there is none: what they refuse, how they read Slurm, how a loss is said."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import TOY
from hydra.core.utils import JobStatus
from hydra.errors import CompactHydraException
from omegaconf import OmegaConf

from core.run.sweep import BASIC
from core.run.sweep_watch import FAILED, Watch, leave_mark
from hydra_plugins.reasoningbank_clusters.ray_tasks import RayLauncher
from hydra_plugins.reasoningbank_clusters.slurm import SlurmLauncher, ended_as, last_line, problem, queue


def slurm(sweeper=BASIC):
    made = SlurmLauncher(folder="jobs", max_num_timeout=20, poll_s=1, sbatch={"timeout_min": 20, "partition": None})
    made.config = OmegaConf.create({"hydra": {"sweeper": {"_target_": sweeper}}})
    return made


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """programs(squeue="shell script", ...): the only programs on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def make(**scripts):
        for name, script in scripts.items():
            (folder / name).write_text(f"#!/bin/sh\n{script}\n")
            (folder / name).chmod(0o755)

    return make


@pytest.mark.parametrize(
    ("launcher", "module", "package"),
    [("slurm", "submitit", "hydra-submitit-launcher"), ("ray", "ray", "ray")],
)
def test_what_is_not_installed_is_named(monkeypatch, launcher, module, package):
    monkeypatch.setitem(sys.modules, module, None)
    made = slurm() if launcher == "slurm" else RayLauncher(address=None, max_retries=1, task={})
    with pytest.raises(
        CompactHydraException, match=f"^error: hydra/launcher={launcher}: .* missing: pip install {package}"
    ):
        made.launch([["seed=0"]], 0)


def test_a_host_without_slurm_is_refused_in_one_sentence(cli, tmp_path):
    pytest.importorskip("submitit")
    done = cli("-m", *TOY, "seed=0,1", "hydra/launcher=slurm", "run_dir=sweep", env={"PATH": str(tmp_path)})
    assert done.returncode == 1
    assert "error: hydra/launcher=slurm: sbatch, srun, squeue, scancel not found" in done.stderr
    assert "Traceback" not in done.stderr and "2 of 2 cells" not in done.stdout


def test_null_leaves_an_option_to_the_cluster_and_the_project_is_importable_there(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/mine")
    made = slurm()
    made.sbatch |= {"setup": ["module load python"], "array_parallelism": 8}
    found = made._parameters()
    assert found["timeout_min"] == 20 and found["slurm_array_parallelism"] == 8
    assert not any("partition" in key for key in found)
    assert found["slurm_setup"][1:] == ["module load python"]
    assert found["slurm_setup"][0].startswith("export PYTHONPATH=") and found["slurm_setup"][0].endswith(":/mine")


def test_the_queue_is_that_of_this_user_and_no_answer_says_nothing(programs):
    lines = ["12_0|RUNNING|None", "12_1|PENDING|Resources", "12_2|PENDING|launch failed requeued held"]
    programs(squeue="; ".join(f"echo '{line}'" for line in [*lines, "11|COMPLETED|None", "10|CANCELLED|None"]))
    held = "PENDING (launch failed requeued held)"
    assert queue() == {"12_0": "RUNNING", "12_1": "PENDING", "12_2": held}
    programs(squeue="exit 1")
    assert queue() is None
    programs(scontrol="echo 'JobId=13 ArrayJobId=12 JobState=OUT_OF_MEMORY Reason=OutOfMemory'")
    assert ended_as("12_1") == "OUT_OF_MEMORY"
    programs(scontrol="echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    assert ended_as("12_1") == ""


class Pickle:
    """A job of submitit, as far as its launcher looks at it."""

    def __init__(self, folder, id, error=None):
        self.job_id, self._error = id, error
        self.paths = SimpleNamespace(folder=folder, result_pickle=folder / f"{id}.pkl", stderr=folder / f"{id}.err")

    def exception(self):
        return self._error


def test_it_waits_while_slurm_is_away_and_a_job_is_lost_only_after_three_looks(programs, tmp_path, capsys):
    looks = tmp_path / "looks"
    programs(
        squeue=f"""echo x >> {looks}
n=0; while read line; do n=$((n + 1)); done < {looks}
[ $n -le 4 ] && exit 1
[ $n -le 5 ] && echo '7_1|PENDING|JobHeldUser'
[ $n -eq 6 ] && echo '7_1|RUNNING|None'
exit 0""",
        scontrol="exit 1",
    )
    jobs = [Pickle(tmp_path, "7_0"), Pickle(tmp_path, "7_1")]
    (tmp_path / "7_0.pkl").touch()
    made = slurm()
    made.poll_s = 0.05
    assert made._wait(jobs) == {"7_1": "RUNNING"}
    assert len(looks.read_text().split()) == 4 + 2 + 3
    said = "Slurm holds job 7_1: PENDING (JobHeldUser). It runs after: scontrol release 7_1\n"
    assert capsys.readouterr().err == said
    assert problem(jobs[0], {}) == ""
    assert problem(jobs[1], {"7_1": "RUNNING"}).startswith("lost: job 7_1 of Slurm ended without a result (RUNNING).")


def test_of_a_job_that_failed_the_last_line_of_its_traceback_is_told():
    frame = "-" * 22
    text = f"Job (task=0) failed with trace:\n{frame}\nTraceback:\n  x\nValueError: no\n\n{frame}\nYou can"
    assert last_line(text.splitlines()) == "ValueError: no"
    assert last_line(["one", "two"]) == "two"


@pytest.mark.parametrize("began", [True, False])
def test_a_cell_that_is_lost_is_named_with_its_reason(tmp_path, monkeypatch, capsys, began):
    monkeypatch.chdir(tmp_path)
    marks = tmp_path / "marks"
    marks.mkdir()
    watch = Watch(tmp_path, marks, [["seed=0"], ["seed=1"]], "the command", "analysis.matrix.print_matrix")
    monkeypatch.setattr(Watch, "running", classmethod(lambda cls: watch))
    if began:
        leave_mark(marks, 1, folder=str(tmp_path / "seed=1"), before=0, state="running")
    leave_mark(marks, 0, folder=str(tmp_path / "seed=0"), before=0, state=FAILED, reason="error: of its own")
    returned = slurm().lost(1, "lost: job 7_1 of Slurm")
    assert (returned.status, returned.return_value) == (JobStatus.COMPLETED, None)  # it stops no other
    assert not watch.end()
    said = capsys.readouterr().err
    assert "2 of 2 cells are not whole" in said and "lost: job 7_1 of Slurm" in said and "not run" not in said
    assert "seed=1" in said


def test_a_sweeper_that_goes_by_results_is_told_of_a_loss():
    returned = slurm(sweeper="optuna").lost(1, "lost: job 7_1 of Slurm")
    assert returned.status == JobStatus.FAILED
    with pytest.raises(CompactHydraException, match="job 7_1"):
        _ = returned.return_value


def test_a_relative_run_dir_is_where_the_sweep_was_started(tmp_path, monkeypatch):
    from hydra_plugins.reasoningbank_clusters import _cells

    seen = []
    monkeypatch.setattr(_cells, "setup_globals", lambda: seen.append(Path.cwd()) or 1 / 0)
    job = _cells.CellJob(
        context=None, task_function=None, config=None, words=[], number=0, folder=str(tmp_path), singletons={}
    )
    monkeypatch.setattr(_cells.Singleton, "set_state", lambda state: None)
    monkeypatch.chdir(Path.cwd())  # which is undone
    with pytest.raises(ZeroDivisionError):
        job()
    assert seen == [tmp_path]
