"""The bank under several processes and kill -9: what was acknowledged is there, whole. Damage: test_memory_damage."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import forkserver
import pytest
from conftest import WITH_KITS
from test_memory import open_bank, record  # noqa: F401 - open_bank is a fixture

from core.errors import StopRun
from core.memory.filter import STATUSES, Filter

WRITER = """
import sys
from core.models.embedding import HashingEmbedder
from core.memory.bank import MemoryBank
from core.memory.policies.cosine import Cosine
from test_memory import record
path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
bank = MemoryBank(path=path, embedder=HashingEmbedder(), policy=Cosine())
for number in range(count):
    if sys.argv[4] == "merge" and number % 3 == 2:
        with bank.change("merge") as change:
            change.add(record(f"{name} {number}", id=f"{name}-{number}", parents=(f"{name}-{number - 1}",)))
            change.update(f"{name}-{number - 1}", status="archived")
            change.link(f"{name}-{number}", "supersedes", f"{name}-{number - 1}")
    else:
        bank.add(record(f"{name} {number}", id=f"{name}-{number}"))
    print(number, flush=True)
bank.close()
"""


def write(path, name, count, kind="add"):
    command = [sys.executable, "-c", WRITER, str(path), name, str(count), kind]
    return forkserver.Popen(command, env=WITH_KITS, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_eight_processes_write_at_once(open_bank, tmp_path):  # noqa: F811
    path = tmp_path / "bank.sqlite"
    writers = [write(path, f"w{number}", 100) for number in range(8)]
    reader = open_bank()
    slowest, began = 0.0, time.perf_counter()
    while any(writer.poll() is None for writer in writers):
        start = time.perf_counter()
        reader.retrieve("w3 50", top_k=5)
        slowest = max(slowest, time.perf_counter() - start)
        time.sleep(0.05)
    whole = time.perf_counter() - began
    assert [writer.wait() for writer in writers] == [0] * 8, writers[0].stderr.read()
    assert len(reader) == 800
    assert reader.ids() == {f"w{w}-{n}" for w in range(8) for n in range(100)}
    assert slowest < whole / 2  # never behind the writers' lock
    lines = (tmp_path / "bank.sqlite.journal").read_text().splitlines()
    assert [json.loads(line)["seq"] for line in lines] == list(range(1, 801))


@pytest.mark.parametrize("kind", ["add", "merge"])
def test_kill_leaves_every_acknowledged_change_whole(open_bank, tmp_path, kind):  # noqa: F811
    for number, delay in enumerate((0.02, 0.05, 0.09)):
        writer = write(tmp_path / "bank.sqlite", f"p{number}", 10_000, kind)
        writer.stdout.readline()
        time.sleep(delay)
        writer.send_signal(signal.SIGKILL)
        acknowledged = int(writer.stdout.read().splitlines()[-1])
        bank = open_bank()
        assert {f"p{number}-{n}" for n in range(acknowledged + 1)} <= {record.id for record in bank.records()}
        for one in bank.records():
            for parent in one.parents:  # a merge is there whole or not at all
                assert bank.get(parent).status == "archived"
                assert bank.links(one.id) == [(one.id, "supersedes", parent, "")]
        where = Filter(statuses=STATUSES)  # it may have been merged since
        exact = [hit.record for hit in bank.nearest(f"p{number} {acknowledged}", 20, where=where) if hit.score == 1.0]
        assert f"p{number}-{acknowledged}" in {id for one in exact for id in (one.id, *one.parents)}
        bank.close()


def test_a_reader_that_came_first_sees_one_state_of_a_bank_that_others_then_write(open_bank, tmp_path, monkeypatch):  # noqa: F811
    def changed():
        """More records, and the whole file written anew, as by a server that is started beside a frozen run."""
        bank = open_bank()
        bank.add_many([record(f"later {number}", id=f"later-{number}") for number in range(400)])
        for number in range(150):
            with bank.change("remove") as change:
                change.remove(f"first-{number}")
        bank.compact()
        bank.close()

    bank = open_bank()
    bank.add_many([record(f"first {number}", id=f"first-{number}") for number in range(300)])
    bank.close()
    before = sorted(path.name for path in tmp_path.iterdir())
    reader = open_bank(read_only=True)
    assert len(reader) == 300 and sorted(path.name for path in tmp_path.iterdir()) == before  # it leaves no trace
    changed()
    assert reader.ids() == {f"first-{number}" for number in range(300)}
    assert reader.retrieve("first 7", top_k=1)[0].record.id == "first-7"
    reader.close()
    monkeypatch.setattr("core.memory.sqlite.database.COPIED", 0)  # as of a large file
    reader = open_bank(read_only=True)
    assert reader.get("later-7") is not None
    later = open_bank()
    later.add(record("last", id="last"))
    later.close()
    with pytest.raises(StopRun, match="was changed while it was read: start this again"):
        reader.retrieve("first 7", top_k=1)
    reader.close()
