"""Two hosts on one bank in PostgreSQL, and one of them dies: is everything there that was acknowledged?

    python -m benchmarks.two_hosts [--writers 4] [--lessons 200]

The hosts are network namespaces of this machine, each with a cable to the server's (Linux, root, the programs `ip` of
iproute2, and a PostgreSQL: see docs/shared_bank.md). On each, writers add lessons to one bank over TCP, and a run of
env=toy learns into it. Once a third is written, everything on the first host is killed with SIGKILL. The second must
go on; the first is then started again with the same commands. At the end each lesson that a writer was told is stored,
and each record of both runs' episodes, must be in the bank, once. Exit 1 where one is lost or doubled.
"""

from __future__ import annotations

import json
import os
import shutil
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

from benchmarks.embedded_postgres import APP, Server, missing
from core.errors import UserError
from core.jsonl import read_lines
from core.memory.open import read_records
from scripts.command_line import REPO, parser, plain_errors

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
            if done.returncode:
                raise UserError(f"{line}: {done.stderr.strip() or 'failed'} (this needs root).")
        yield
    finally:
        host.die()
        subprocess.run(["ip", "link", "del", here], capture_output=True)
        subprocess.run(["ip", "netns", "del", host.name], capture_output=True)


@contextmanager
def connected(writers: int, lessons: int) -> Iterator[tuple[list[Host], str]]:
    """Two hosts with a cable each to a server; with them the bank's URL at the server itself."""
    if reason := missing() or (None if shutil.which("ip") else "there is no program `ip` (apt install iproute2)"):
        raise UserError(f"{reason}.")
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


@plain_errors()
def main(arguments: list[str] | None = None) -> int:
    options = parser(__doc__)
    options.add_argument("--writers", type=int, default=4, help="of each host")
    options.add_argument("--lessons", type=int, default=200, help="that each writer adds")
    given = options.parse_args(arguments)
    with connected(given.writers, given.lessons) as (hosts, bank):
        return judged(drill(*hosts), hosts, bank)


def drill(first: Host, second: Host) -> dict[str, int]:
    """Run it; what happened, in numbers."""
    every = first.writers * first.lessons
    first.start()
    second.start()
    until = time.monotonic() + TIMEOUT_S
    while len(first.told()) < every // 3 and time.monotonic() < until:
        time.sleep(0.02)
    killed, at_death = first.die(), len(first.told())
    if not killed or at_death >= every:
        raise UserError("the first host had ended before it could die: give more --lessons.")
    if set(second.end()) != {0}:
        raise UserError(f"the second host broke: {log_of(second)}")
    first.start()
    if set(first.end()) != {0}:
        raise UserError(f"the first host did not go on: {log_of(first)}")
    return {"processes killed at once": killed, "lessons that the dead host had been told": at_death}


def log_of(host: Host) -> str:
    return (host.folder / f"h{host.number}.log").read_text(encoding="utf-8")[-1500:]


def judged(found: dict[str, int], hosts: list[Host], bank: str) -> int:
    """Print what is in the bank of what was acknowledged; 1 where something is lost, doubled, or nobody knows of it."""
    ids = Counter(record.id for record in read_records(bank, "default"))
    told = {id for host in hosts for id in host.told()}
    learned = {id for host in hosts for id in host.learned()}
    found |= {
        "lessons acknowledged to writers": len(told),
        "records of the two runs": len(learned),
        "in the bank": sum(ids.values()),
        "lost": len((told | learned) - ids.keys()),
        "doubled": sum(n > 1 for n in ids.values()),
        "unknown": len(ids.keys() - told - learned),
    }
    print(json.dumps(found, indent=1))
    wanted = sum(host.writers * host.lessons for host in hosts)
    return int(bool(found["lost"] or found["doubled"] or found["unknown"] or len(told) != wanted or not learned))


if __name__ == "__main__":
    sys.exit(main())
