"""A real Ray of two nodes on this host, which are ended one by one; `ray stop` would end other people's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from slurm_kit import free_ports


class Ray:
    """A context manager. `env` is what a sweep needs to find it; each node runs one cell at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        address = f"127.0.0.1:{free_ports(1)[0]}"
        self.env = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_ADDRESS": address}
        self.env |= {"RAY_AUTH_MODE": "disabled"}  # else it depends on a token that this user may have
        # Sooner than in half a minute a node counts as dead.
        self.env |= {"RAY_health_check_period_ms": "1000", "RAY_health_check_failure_threshold": "4"}
        self._head: subprocess.Popen
        self._second: subprocess.Popen

    def __enter__(self) -> Ray:
        self.folder.mkdir(exist_ok=True)
        port = self.env["RAY_ADDRESS"].partition(":")[2]
        # A short folder: Ray makes sockets in it, whose names must be short.
        self._head = self._begin("--head", f"--port={port}", f"--temp-dir={self.folder}", "--include-dashboard=false")
        self._second = self._begin(f"--address={self.env['RAY_ADDRESS']}")
        return self

    def __exit__(self, *_exc: object) -> None:
        for node in (self._second, self._head):
            if node.poll() is None:
                node.terminate()
                node.wait(timeout=30)

    def kill_second(self) -> None:
        """As if its power were cut: every process of the second node."""
        for pid in [self._second.pid, *family(self._second.pid)]:
            os.kill(pid, signal.SIGKILL)
        self._second.wait()

    def node_of(self, pid: int) -> str:
        """head | second: the node that a process belongs to."""
        return "second" if pid in family(self._second.pid) else "head"

    def _begin(self, *words: str) -> subprocess.Popen:
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus=1"]
        log = self.folder / f"node-{len(list(self.folder.glob('node-*')))}.log"
        with log.open("wb") as file:
            node = subprocess.Popen(
                [*command, "--object-store-memory=80000000", *words], env=self.env, stdout=file, stderr=file
            )
        until(lambda: "will now block forever" in log.read_text(), what=lambda: log.read_text()[-2000:])
        return node


def until(holds, seconds: float = 120, what=str) -> None:
    """Wait until holds(); else fail with what()."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, what()
        time.sleep(0.1)


def family(pid: int) -> list[int]:
    """The processes that a process began, and they began, as far as they run."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended meanwhile
            continue
    found = [pid]
    for each in found:  # grows as it goes
        found += [child for child, parent in parents.items() if parent == each]
    return found[1:]


def writer(path: Path) -> int | None:
    """The process that has a file open; None where there is none."""
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if link.readlink() == path:
                return int(link.parts[2])
        except OSError:
            continue
    return None
