"""A real Slurm on this host alone: munge, one controller and two nodes, with no systemd, in a folder of its own."""

from __future__ import annotations

import getpass
import os
import secrets
import shutil
import socket
import subprocess
import time
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol")
NODES = ("one", "two")

CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=1,sched_interval=1,sched_min_interval=0
ReturnToService=2
JobRequeue=1
KillWait=10
MinJobAge=300
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str:
    """Why no Slurm can be started here; "" where one can."""
    lacking = [name for name in PROGRAMS if found(name) is None]
    return f"{', '.join(lacking)} not installed (apt-get install slurm-wlm)" if lacking else ""


def found(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


def free_ports(n: int) -> list[int]:
    sockets = [socket.socket() for _ in range(n)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Slurm:
    """A context manager. `env` is what a program needs to speak to it; `cpus` is how many each node says it has."""

    def __init__(self, folder: Path, cpus: int = 1) -> None:
        self.folder, self.cpus = folder, cpus
        self.env = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        self._processes: list[subprocess.Popen] = []

    def __enter__(self) -> Slurm:
        self.folder.mkdir(parents=True)
        self.folder.chmod(0o755)
        for name in ("state", *(f"spool-{node}" for node in NODES)):
            (self.folder / name).mkdir()
        ports = free_ports(1 + len(NODES))
        host = socket.gethostname().partition(".")[0]
        nodes = "\n".join(
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={self.cpus} State=UNKNOWN"
            for node, port in zip(NODES, ports[1:], strict=True)
        )
        conf = CONF.format(host=host, user=getpass.getuser(), port=ports[0], folder=self.folder, nodes=nodes)
        (self.folder / "slurm.conf").write_text(conf)
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        if len(self._processes) > 1:  # steps of jobs are not ended with their slurmd
            self.run("scancel", "--state=PENDING", "--state=RUNNING", "--state=SUSPENDED", check=False)
            self.until(lambda: not self.run("squeue", "-h", check=False), seconds=20, must=False)
        for process in reversed(self._processes):
            process.terminate()
        for process in reversed(self._processes):
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def run(self, program: str, *words: str, check: bool = True) -> str:
        """What a program of Slurm prints."""
        command = [found(program), *words]
        return subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=60, check=check).stdout

    def start(self, program: str, *words: str) -> subprocess.Popen:
        """A program of Slurm that is not waited for."""
        return subprocess.Popen([found(program), *words], env=self.env, stderr=subprocess.DEVNULL)

    def until(self, holds, seconds: float = 60, must: bool = True) -> bool:
        """Wait until holds(), looking often."""
        end = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > end:
                assert not must, f"not within {seconds} s: {self.said()}"
                return False
            time.sleep(0.2)
        return True

    def said(self) -> str:
        """The ends of the logs, for the message of a test that fails."""
        logs = sorted(self.folder.glob("*.log"))
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-2000:]}" for log in logs)

    def _start(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        files = {"key-file": key, "socket": self.folder / "munge.socket", "pid-file": self.folder / "munge.pid"}
        files |= {"log-file": self.folder / "munge.log", "seed-file": self.folder / "munge.seed"}
        words = [f"--{name}={path}" for name, path in files.items()]
        self._begin("munged", "--foreground", "--force", *words)
        self.until((self.folder / "munge.socket").exists)
        self._begin("slurmctld", "-D")
        for node in NODES:
            self._begin("slurmd", "-D", "-N", node)
        self.until(lambda: self.run("sinfo", "-h", "-t", "idle", "-o", "%D", check=False).strip() == str(len(NODES)))

    def _begin(self, program: str, *words: str) -> None:
        log = (self.folder / f"{program}-{len(self._processes)}.out.log").open("wb")
        process = subprocess.Popen(
            [found(program), *words], env=self.env, stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
        log.close()
        self._processes.append(process)
