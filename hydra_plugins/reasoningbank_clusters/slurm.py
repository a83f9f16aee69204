"""Each cell is a job of Slurm, by submitit. What is preempted, or reaches its limit, is queued again and goes on."""

from __future__ import annotations

import getpass
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from hydra.core.utils import JobReturn

from hydra_plugins.reasoningbank_clusters._cells import ClusterLauncher, refuse

if TYPE_CHECKING:
    from submitit import SlurmJob

# submitit's own names, for all its executors; each other key is one of sbatch.
ANY_EXECUTOR = "name timeout_min mem_gb nodes cpus_per_task gpus_per_node tasks_per_node stderr_to_stdout".split()
CANCEL_S = 20.0
GONE_AFTER = 3  # looks at the queue: a shared folder may show a result late


class SlurmLauncher(ClusterLauncher):
    """Waits until every cell has returned, or is lost. Ctrl-C cancels the jobs. The keys are in launcher/slurm.yaml."""

    def __init__(self, *, folder: str, max_num_timeout: int, poll_s: float, sbatch: dict[str, Any]) -> None:
        self.folder, self.max_num_timeout, self.poll_s, self.sbatch = folder, max_num_timeout, poll_s, sbatch

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        try:
            import submitit
        except ImportError:
            raise refuse("slurm", "submitit is missing: pip install hydra-submitit-launcher.") from None
        if missing := [name for name in ("sbatch", "srun", "squeue", "scancel") if shutil.which(name) is None]:
            raise refuse("slurm", f"{', '.join(missing)} not found: start the sweep where Slurm's commands are.")
        failures = (submitit.core.utils.FailedJobError, submitit.core.utils.FailedSubmissionError)
        executor = submitit.AutoExecutor(self.folder, cluster="slurm", slurm_max_num_timeout=self.max_num_timeout)
        executor.update_parameters(**self._parameters())
        try:
            with executor.batch():  # one array of jobs
                jobs = [executor.submit(job) for job in self.jobs(job_overrides, initial_job_idx)]
        except failures as error:  # sbatch says why
            raise refuse("slurm", str(error).strip()) from None
        try:
            over = self._wait(jobs)
        except KeyboardInterrupt:
            cancel(jobs)
            raise
        return [
            self.lost(initial_job_idx + place, reason) if (reason := problem(job, over)) else job.result()
            for place, job in enumerate(jobs)
        ]

    def _parameters(self) -> dict[str, Any]:
        from core.run.sweep import search_path

        given = {key: value for key, value in self.sbatch.items() if value is not None}
        setup = [f"export PYTHONPATH={shlex.quote(search_path())}", *given.pop("setup", ())]
        found = {key if key in ANY_EXECUTOR else f"slurm_{key}": value for key, value in given.items()}
        return found | {"slurm_setup": setup}

    def _wait(self, jobs: list[SlurmJob]) -> dict[str, str]:
        """Until each job has a result or is lost. Returns, of those without a result, {job id: its last state}."""
        last, missed, looked = {}, dict.fromkeys((job.job_id for job in jobs), 0), time.monotonic()
        while waiting := [job for job in jobs if not has_result(job) and missed[job.job_id] < GONE_AFTER]:
            time.sleep(min(1.0, self.poll_s))
            if time.monotonic() - looked < self.poll_s:
                continue
            looked, queued = time.monotonic(), queue()
            for job in waiting if queued is not None else ():  # None: Slurm did not answer, which says nothing
                state = queued.get(job.job_id, "")
                if "(" in state and state != last.get(job.job_id):
                    print(
                        f"Slurm holds job {job.job_id}: {state}. It runs after: scontrol release {job.job_id}",
                        file=sys.stderr,
                    )
                missed[job.job_id] = 0 if job.job_id in queued else missed[job.job_id] + 1
                last[job.job_id] = state or last.get(job.job_id, "not seen in the queue")
        return {job.job_id: ended_as(job.job_id) or last[job.job_id] for job in jobs if not has_result(job)}


def cancel(jobs: Sequence[SlurmJob]) -> None:
    """Take the jobs out of the queue, or say that they stay in it."""
    command = ["scancel", *sorted({job.job_id.partition("_")[0] for job in jobs})]
    try:
        subprocess.run(command, capture_output=True, timeout=CANCEL_S, check=True)
    except subprocess.SubprocessError:
        print(f"Slurm does not answer, and the cells go on: {shlex.join(command)}", file=sys.stderr)


def queue() -> dict[str, str] | None:
    """{job id: state} of this user's jobs that wait or run, with the reason where Slurm holds one; None: no answer.

    squeue, because sacct needs an accounting database that a cluster may not have.
    """
    words = ["squeue", "--noheader", "--array", "--states=all", f"--user={getpass.getuser()}", "--format=%i|%T|%r"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        return None
    found = [line.split("|", 2) for line in done.stdout.splitlines()]
    return {
        job: f"{state} ({reason})" if "held" in reason.lower() else state
        for job, state, reason in found
        if not is_over(state)
    }


def is_over(state: str) -> bool:
    """Whether a job in this state will not run any more."""
    return state in "BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY TIMEOUT REVOKED".split()


def ended_as(job_id: str) -> str:
    """How Slurm says a job ended, while it remembers; "" afterwards."""
    words = ["scontrol", "--oneliner", "show", "job", job_id]
    told = subprocess.run(words, capture_output=True, text=True, check=False).stdout
    return next((word.partition("=")[2] for word in told.split() if word.startswith("JobState=")), "")


def has_result(job: SlurmJob) -> bool:
    """Whether a job has written what it returns. The listing makes a shared folder show what is new in it."""
    return job.paths.result_pickle.name in {path.name for path in job.paths.folder.iterdir()}


def problem(job: SlurmJob, states: dict[str, str]) -> str:
    """Why a job returned nothing; "" where it did."""
    where = f"Its log is {job.paths.stderr}."
    if job.job_id in states:
        return f"lost: job {job.job_id} of Slurm ended without a result ({states[job.job_id]}). {where}"
    if (error := job.exception()) is None:
        return ""
    return f"lost: job {job.job_id} of Slurm: {last_line(str(error).splitlines())} {where}"


def last_line(lines: Iterable[str]) -> str:
    """The end of the traceback in submitit's message, without its frame and advice."""
    lines = [line.strip() for line in lines if line.strip()]
    ends = [place for place, line in enumerate(lines) if set(line) == {"-"}]
    return lines[ends[-1] - 1] if ends and ends[-1] else lines[-1]
