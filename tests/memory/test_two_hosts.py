"""One bank, two hosts: network namespaces with a cable each to the server. One host dies, or its cable is pulled."""

from __future__ import annotations

import os
import shutil
import subprocess
import time

import pytest
import two_hosts
from conftest import WITH_KITS
from embedded_postgres import missing
from memory_kit import Compass, item, record

from core.memory.bank import MemoryBank
from core.memory.policies.cosine import Cosine

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
    with two_hosts.connected(2, 60) as (hosts, bank):
        killed, at_death = two_hosts.drill(*hosts)
        ids = two_hosts.stored(bank)
        told, learned = ({id for host in hosts for id in getattr(host, name)()} for name in ("told", "learned"))
    assert killed >= 2 and 0 < at_death < 120
    assert len(told) == 240 and learned
    assert ids == dict.fromkeys(told | learned, 1)


def test_a_host_whose_cable_is_pulled_lets_go_of_the_bank_and_says_so():
    with two_hosts.connected(0, 0) as ([host, _], bank):
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
