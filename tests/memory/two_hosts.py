"""Two hosts on one bank in PostgreSQL, of which one can die.

The hosts are network namespaces of this machine, each with a cable to the server's (Linux, root, `ip` of iproute2).
Writers add lessons on each over TCP, and a run of env=toy learns into the same bank.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from conftest import REPO
from embedded_postgres import APP, Server

from core.jsonl import read_lines
from core.memory.open import read_records

NET = "10.77"  # .HOST.1 is the server's end of a host's cable, .HOST.2 the host's
TIMEOUT_S = 300
WRITER = """
import sys
from core.memory.bank import MemoryBank
from core.memory.policies.cosine import Cosine
from core.models.embedding import HashingEmbedder
from core.types import Lesson, MemoryRecord
url, name, told, lessons = *sys.argv[1:4], int(sys.argv[4])
bank = MemoryBank(path=url, embedder=HashingEmbedder(), policy=Cosine())
with open(told, "ab", buffering=0) as file:
    for n in range(lessons):
        item = Lesson(title=f"lesson {n}", description=f"of {name}", content=f"Do thing {n} before thing {n + 1}.")
        bank.add(
            MemoryRecord(
                id=f"{name}-{n}", original_query=f"{name} asks for thing {n}", items=(item,),
                source_trajectory_id="", score=1.0, outcome="success", label_source="given", task_id=f"{name}/{n}",
            )
        )
        file.write(f"{name}-{n}\\n".encode())
"""


@dataclass(kw_only=True)
class Host:
    """A namespace with a network of its own. number: of its cable."""

    number: int
    bank: str
    folder: Path
    writers: int
    lessons: int
    processes: list[subprocess.Popen] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"rb{os.getpid()}h{self.number}"

    def start(self) -> None:
        """Start the writers and the run, or let them go on."""
        names = [f"h{self.number}w{n}" for n in range(self.writers)]
        for name in names:
            self._start(["-c", WRITER, self.bank, name, str(self.folder / f"{name}.told"), str(self.lessons)])
        parts = f"main.py env=toy llm=scripted embedder=hashing seed={self.number}".split()
        self._start([*parts, f"memory.path={self.bank}", f"run_dir={self.run}"])

    def command(self, words: list[str]) -> list[str]:
        """What runs Python on this host."""
        return ["ip", "netns", "exec", self.name, sys.executable, *words]

    def _start(self, words: list[str]) -> None:
        with (self.folder / f"h{self.number}.log").open("a") as log:
            self.processes.append(subprocess.Popen(self.command(words), cwd=REPO, stdout=log, stderr=log))

    @property
    def run(self) -> Path:
        return self.folder / f"run{self.number}"

    def die(self) -> int:
        """Kill every process of the host; how many were at work."""
        running = [each for each in self.processes if each.poll() is None]
        for each in running:
            each.send_signal(signal.SIGKILL)
        for each in running:
            each.wait()
        self.processes.clear()
        return len(running)

    def end(self) -> list[int | None]:
        """The exit statuses, once all have ended; None of one that takes longer than TIMEOUT_S."""
        for each in self.processes:
            with suppress(subprocess.TimeoutExpired):
                each.wait(TIMEOUT_S)
        return [each.poll() for each in self.processes]

    def log(self) -> str:
        return (self.folder / f"h{self.number}.log").read_text(encoding="utf-8")[-1500:]

    def told(self) -> list[str]:
        """The ids that the writers were told are stored."""
        files = self.folder.glob(f"h{self.number}w*.told")
        return [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]

    def learned(self) -> list[str]:
        """The ids of the records of the run's episodes."""
        file = self.run / "episodes.jsonl"
        rows = list(read_lines(file)) if file.exists() else []
        return [record["id"] for row in rows for record in row["records"]]


@contextmanager
def cable(host: Host) -> Iterator[None]:
    """The host's namespace, with a pair of interfaces to the server's."""
    n, here, there = host.number, f"rbs{host.number}", f"rbh{host.number}"
    inside = f"ip netns exec {host.name} ip"
    lines = (
        f"ip netns add {host.name}",
        f"ip link add {here} type veth peer name {there} netns {host.name}",
        f"ip addr add {NET}.{n}.1/24 dev {here}",
        f"ip link set {here} up",
        f"{inside} addr add {NET}.{n}.2/24 dev {there}",
        f"{inside} link set {there} up",
        f"{inside} link set lo up",
    )
    try:
        for line in lines:
            done = subprocess.run(line.split(), capture_output=True, text=True)
            assert done.returncode == 0, f"{line}: {done.stderr}"
        yield
    finally:
        host.die()
        subprocess.run(["ip", "link", "del", here], capture_output=True)
        subprocess.run(["ip", "netns", "del", host.name], capture_output=True)


@contextmanager
def connected(writers: int, lessons: int) -> Iterator[tuple[list[Host], str]]:
    """Two hosts with a cable each to a server; with them the bank's URL at the server itself."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = Server(durable=True, listen="0.0.0.0", network=f"{NET}.0.0/16")
        stack.callback(server.close)
        database = server.new().partition("?")[0].rpartition("/")[2]
        hosts = []
        for n in (1, 2):
            bank = f"postgresql://{APP}@{NET}.{n}.1:{server.port}/{database}"
            hosts.append(Host(number=n, bank=bank, folder=folder, writers=writers, lessons=lessons))
            stack.enter_context(cable(hosts[-1]))
        yield hosts, server.url(database)


def drill(first: Host, second: Host) -> tuple[int, int]:
    """Kill all of the first host once a third is written; (processes killed, lessons that it had been told).

    The second goes on to its end; the first is then started again with the same commands, and ends too.
    """
    every = first.writers * first.lessons
    first.start()
    second.start()
    until = time.monotonic() + TIMEOUT_S
    while len(first.told()) < every // 3 and time.monotonic() < until:
        time.sleep(0.02)
    killed, at_death = first.die(), len(first.told())
    assert set(second.end()) == {0}, second.log()
    first.start()
    assert set(first.end()) == {0}, first.log()
    return killed, at_death


def stored(bank: str) -> Counter[str]:
    """How often each id is in the bank."""
    return Counter(record.id for record in read_records(bank, "default"))
