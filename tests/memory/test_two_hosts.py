"""One bank in PostgreSQL, two hosts: one of them dies, or its cable is pulled.

The hosts are network namespaces of this machine, each with a cable to the server's (Linux, root, `ip` of iproute2).
Writers add lessons on each over TCP, and a run of env=toy learns into the same bank.
"""

from __future__ import annotations

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

import pytest
from conftest import REPO, WITH_KITS, wait_for
from embedded_postgres import APP, Server, missing
from memory_kit import Compass, item, record

from core.jsonl import read_lines
from core.memory.bank import MemoryBank
from core.memory.open import read_records
from core.memory.policies.cosine import Cosine

NET = "10.77"  # .HOST.1 is the server's end of a host's cable, .HOST.2 the host's
TIMEOUT_S = 300
LESSONS = 20  # of each of two writers a host
WRITER = """
import sys
from core.memory.bank import MemoryBank
from core.memory.policies.cosine import Cosine
from core.models.embedding import HashingEmbedder
from memory_kit import item, record
url, name, told, lessons = *sys.argv[1:4], int(sys.argv[4])
bank = MemoryBank(path=url, embedder=HashingEmbedder(), policy=Cosine())
with open(told, "ab", buffering=0) as file:
    for n in range(lessons):
        bank.add(record(f"{name}-{n}", item(n), query=f"{name} asks for thing {n}"))
        file.write(f"{name}-{n}\\n".encode())
"""


@dataclass(kw_only=True)
class Host:
    """A namespace with a network of its own. number: of its cable."""

    number: int
    bank: str
    folder: Path
    processes: list[subprocess.Popen] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"rb{os.getpid()}h{self.number}"

    def start(self) -> None:
        """Start the writers and the run, or let them go on."""
        for name in (f"h{self.number}w{n}" for n in range(2)):
            self._start(["-c", WRITER, self.bank, name, str(self.folder / f"{name}.told"), str(LESSONS)])
        parts = f"main.py env=toy llm=scripted embedder=hashing limit=12 seed={self.number}".split()
        self._start([*parts, f"memory.path={self.bank}", f"run_dir={self.run}"])

    def command(self, words: list[str]) -> list[str]:
        """What runs Python on this host."""
        return ["ip", "netns", "exec", self.name, sys.executable, *words]

    def _start(self, words: list[str]) -> None:
        with (self.folder / f"h{self.number}.log").open("a") as log:
            self.processes.append(
                subprocess.Popen(self.command(words), cwd=REPO, env=WITH_KITS, stdout=log, stderr=log)
            )

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
def connected() -> Iterator[tuple[list[Host], str]]:
    """Two hosts with a cable each to a server; with them the bank's URL at the server itself."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = Server(durable=True, listen="0.0.0.0", network=f"{NET}.0.0/16")
        stack.callback(server.close)
        database = server.new().partition("?")[0].rpartition("/")[2]
        hosts = []
        for n in (1, 2):
            bank = f"postgresql://{APP}@{NET}.{n}.1:{server.port}/{database}"
            hosts.append(Host(number=n, bank=bank, folder=folder))
            stack.enter_context(cable(hosts[-1]))
        yield hosts, server.url(database)


HOLDER = """
import sys
import core.memory.postgres.connection as connection
from memory_kit import Compass, item, record
connection.GONE_S = 6
from core.memory.bank import MemoryBank
from core.memory.policies.cosine import Cosine
bank = MemoryBank(path=sys.argv[1], embedder=Compass(), policy=Cosine())
bank.add(record("before", item(1)))
with bank.change("holds the lock") as change:
    change.fact("key", "of the host that goes")
    print("holding", flush=True)
    sys.stdin.readline()
"""


def without_networks() -> str | None:
    """Why there can be no two hosts here; None where there can."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        return "network namespaces need root and the program `ip` (apt install iproute2)"
    name = f"rbtry{os.getpid()}"  # other processes of the same test run try, too
    done = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return f"no network namespace can be made: {done.stderr.strip()}" if done.returncode else None


pytestmark = pytest.mark.skipif(bool(reason := missing() or without_networks()), reason=str(reason))


def test_all_that_a_host_was_told_is_there_after_it_died_and_came_back():
    """The second host goes on to its end; the first is then started again with the same commands, and ends too."""
    with connected() as ((first, second), bank):
        first.start()
        second.start()
        wait_for(lambda: len(first.told()) >= 2 * LESSONS // 3, TIMEOUT_S)
        killed, at_death = first.die(), len(first.told())
        assert set(second.end()) == {0}, second.log()
        first.start()
        assert set(first.end()) == {0}, first.log()
        ids = Counter(record.id for record in read_records(bank, "default"))
        told, learned = (
            {id for host in (first, second) for id in getattr(host, name)()} for name in ("told", "learned")
        )
    assert killed >= 2 and 0 < at_death < 2 * LESSONS
    assert len(told) == 4 * LESSONS and learned
    assert ids == dict.fromkeys(told | learned, 1)


def test_a_host_whose_cable_is_pulled_lets_go_of_the_bank_and_says_so():
    with connected() as ([host, _], bank):
        line, pipe = host.command(["-c", HOLDER, host.bank]), subprocess.PIPE
        holder = subprocess.Popen(line, env=WITH_KITS, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        try:
            assert holder.stdout.readline() == "holding\n", holder.stderr.read()
            inside = ["ip", "netns", "exec", host.name, "ip", "link", "set", f"rbh{host.number}"]
            subprocess.run([*inside, "down"], check=True)
            other, began = MemoryBank(path=bank, embedder=Compass(), policy=Cosine()), time.monotonic()
            assert other.add(record("of another", item(2)))
            assert time.monotonic() - began < 300  # else after two hours
            assert other.fact("key") is None  # what it had not committed is undone
            _, said = holder.communicate("go on\n", timeout=60)
            assert holder.returncode and "cannot be reached or written" in said.splitlines()[-1]
            subprocess.run([*inside, "up"], check=True)
            line = host.command(["-c", HOLDER, host.bank])
            assert subprocess.run(line, env=WITH_KITS, input="\n", text=True, capture_output=True).returncode == 0
            assert other.ids() == {"before", "of another"}
            other.close()
        finally:
            holder.kill()
            holder.wait()
