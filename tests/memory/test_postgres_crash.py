"""A shared bank when writers, runs and the server are killed: nothing acknowledged is lost, nothing is there twice."""

from __future__ import annotations

import random
import signal
import sys
import time

import forkserver
import pytest
from conftest import TOY, WITH_KITS, command, read_rows
from memory_kit import Compass, item, record
from test_postgres import open_bank, url  # noqa: F401

from core.errors import StopRun
from core.memory.bank import MemoryBank
from core.memory.open import read_records
from core.memory.policies.cosine import Cosine

WRITER = """
import sys
from core.memory.bank import MemoryBank
from core.memory.policies.cosine import Cosine
from memory_kit import Compass, item, record
url, name, log = sys.argv[1:]
bank = MemoryBank(path=url, embedder=Compass(), policy=Cosine())
with open(log, "ab", buffering=0) as told:
    for n in range(30):
        bank.add(record(f"{name} {n}", item(n)))  # again after a kill: known already, or not
        told.write(f"{name} {n}\\n".encode())
"""


def lines_of(file):
    return file.read_bytes().count(b"\n") if file.exists() else 0


def test_what_was_acknowledged_to_writers_that_are_killed_is_there_once(open_bank, url, tmp_path):  # noqa: F811
    rng, running, kills = random.Random(1), {}, 0

    def start(name):
        log = tmp_path / name
        return forkserver.Popen([sys.executable, "-c", WRITER, url, name, str(log)], env=WITH_KITS)

    names = [f"w{n}" for n in range(4)]
    killed_after = {name: rng.randrange(1, 15) for name in names}  # of 30 lines; then it starts again
    running = {name: start(name) for name in names}
    while running:
        for name, process in list(running.items()):
            if process.poll() is not None:
                assert process.returncode == 0
                del running[name]
            elif name in killed_after and lines_of(tmp_path / name) >= killed_after[name]:
                del killed_after[name]
                process.send_signal(signal.SIGKILL)
                kills += process.wait() == -signal.SIGKILL
                running[name] = start(name)
        time.sleep(0.01)
    told = {line for name in names for line in (tmp_path / name).read_text().splitlines()}
    bank = open_bank()
    ids = [one.id for one in bank.records()]
    assert kills >= 3 and told <= set(ids) and len(set(ids)) == len(ids) == 4 * 30
    assert [entry["seq"] for entry in bank.history.journal()] == list(range(1, 4 * 30 + 1))


def test_what_was_acknowledged_outlives_the_server():
    from embedded_postgres import Server, missing

    if reason := missing():
        pytest.skip(reason)
    server = Server(durable=True)
    try:
        bank = MemoryBank(path=server.new(), embedder=Compass(), policy=Cosine())
        for n in range(20):
            bank.add(record(str(n), item(n)))
        server.kill()
        with pytest.raises(StopRun, match="cannot be reached"):
            bank.add(record("lost", item(1)))
        with pytest.raises(StopRun, match="cannot be reached"):
            bank.retrieve("@1")
        server.start()
        assert bank.ids() == {str(n) for n in range(20)}  # with a new connection
        assert bank.add(record("again", item(1))) and len(bank) == 21
        bank.close()
    finally:
        server.close()


def test_a_run_that_is_killed_loses_and_repeats_nothing(postgres, tmp_path):
    words = (*TOY, "limit=8", "llm.delay_s=0.01", "memory=consolidated_offline", "memory.consolidate.every=4")

    def start(folder, bank):
        line = command(*words, f"run_dir={folder}", f"memory.path={bank}")
        return forkserver.Popen(line, stdout=-3, stderr=-3, env=WITH_KITS, cwd=tmp_path)

    urls = [postgres.new(), postgres.new()]
    assert start(tmp_path / "whole", urls[0]).wait(120) == 0
    path, killed, rng = tmp_path / "killed/episodes.jsonl", 0, random.Random(2)
    while killed < 2:
        had = path.stat().st_size if path.exists() else 0
        process, until = start(tmp_path / "killed", urls[1]), had + rng.randint(1, 4000)
        while process.poll() is None and (path.stat().st_size if path.exists() else 0) < until:
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
        assert process.returncode != 0 or killed >= 1
        if process.returncode == 0:
            break
    assert start(tmp_path / "killed", urls[1]).wait(120) == 0
    assert read_rows(tmp_path / "killed") == read_rows(tmp_path / "whole")

    def kept(bank):
        plain = {"created_at": "", "provenance": None}
        return [vars(one) | plain for one in read_records(bank, "default")]

    assert kept(urls[0]) == kept(urls[1]) and len(kept(urls[0])) >= 8
