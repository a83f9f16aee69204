"""The bank under several processes, kill -9 and damage: what was acknowledged is there, whole, and never empty."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import forkserver
import pytest
from conftest import WITH_KITS
from test_memory import lesson, open_bank, record  # noqa: F401 - open_bank is a fixture

from core.errors import StopRun, UserError
from core.memory.filter import STATUSES, Filter
from core.memory.sqlite import journal_file

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


@pytest.mark.sqlite_file
def test_eight_processes_write_at_once(open_bank, tmp_path):  # noqa: F811
    path = tmp_path / "bank.sqlite"
    writers = [write(path, f"w{number}", 500) for number in range(8)]
    reader = open_bank()
    slowest, began = 0.0, time.perf_counter()
    while any(writer.poll() is None for writer in writers):
        start = time.perf_counter()
        reader.retrieve("w3 100", top_k=5)
        slowest = max(slowest, time.perf_counter() - start)
        time.sleep(0.05)
    whole = time.perf_counter() - began
    assert [writer.wait() for writer in writers] == [0] * 8, writers[0].stderr.read()
    assert len(reader) == 4000
    assert reader.ids() == {f"w{w}-{n}" for w in range(8) for n in range(500)}
    assert slowest < whole / 2  # never behind the writers' lock
    lines = (tmp_path / "bank.sqlite.journal").read_text().splitlines()
    assert [json.loads(line)["seq"] for line in lines] == list(range(1, 4001))


@pytest.mark.sqlite_file
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
        hits = bank.nearest(f"p{number} {acknowledged}", 20, where=where)
        assert f"p{number}-{acknowledged}" in {hit.record.id for hit in hits if hit.score == 1.0}
        bank.close()


def fill(bank, count=300):
    bank.add_many([record(f"query number {n}", task=f"t{n}", id=f"r{n}", tick=n) for n in range(count)])
    with bank.change("edit") as change:
        change.update("r7", status="archived", n_used=3)
        change.link("r8", "supersedes", "r7", "why")
        change.remove("r9")


def first_page(path):
    with path.open("r+b") as file:
        file.write(os.urandom(4096))


def header(path):
    with path.open("r+b") as file:
        file.write(b"garbage!" * 4)


def middle(path):
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size // 3 // 4096 * 4096)
        file.write(os.urandom(5 * 4096))


DAMAGE = {
    "first page": first_page,
    "header": header,
    "middle": middle,
    "emptied": lambda path: os.truncate(path, 0),
    "cut": lambda path: os.truncate(path, path.stat().st_size // 2),
    "removed": lambda path: path.unlink(),
}


@pytest.mark.sqlite_file
@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_bank_is_set_aside_and_rebuilt_whole(open_bank, tmp_path, caplog, kind):  # noqa: F811
    bank = open_bank()
    fill(bank)
    before, journal, links = bank.records(), bank.history.journal(), bank.links()
    bank.close()
    path = tmp_path / "bank.sqlite"
    DAMAGE[kind](path)
    damaged = path.read_bytes() if path.exists() else None
    bank = open_bank()
    assert "is damaged" in caplog.text
    assert (bank.records(), bank.history.journal()[:-1], bank.links()) == (before, journal, links)
    aside = list(tmp_path.glob("bank.sqlite.corrupt-*"))
    assert [file.read_bytes() for file in aside] == ([] if damaged is None else [damaged])
    assert bank.nearest("query number 42", 1)[0].record.id == "r42"
    assert bank.lexical("42", 1)[0].record.id == "r42"
    bank.history.rollback(1)
    assert bank.get("r9") is not None
    assert bank.add(record("new", id="new"))
    bank.close()
    caplog.clear()
    assert len(open_bank()) == 301
    assert caplog.text == ""


@pytest.mark.sqlite_file
def test_without_its_journal_a_damaged_bank_gives_what_can_be_read(open_bank, tmp_path, caplog):  # noqa: F811
    bank = open_bank()
    fill(bank)
    bank.close()
    (tmp_path / "bank.sqlite.journal").unlink()
    middle(tmp_path / "bank.sqlite")
    bank = open_bank()
    assert "is damaged" in caplog.text
    assert len(bank) > 50
    for one in bank.records():
        assert one.items == record("x").items


@pytest.mark.sqlite_file
def test_a_lost_or_torn_journal_is_written_anew(open_bank, tmp_path):  # noqa: F811
    journal = tmp_path / "bank.sqlite.journal"
    for spoil in (journal.unlink, lambda: journal.write_bytes(journal.read_bytes()[:-40])):
        bank = open_bank()
        fill(bank, 20)
        bank.add(record("one more", id=str(spoil)))
        spoil()
        bank.add(record("after", id=f"after {spoil}"))
        before = bank.records()
        bank.close()
        (tmp_path / "bank.sqlite").unlink()
        bank = open_bank()
        assert bank.records() == before
        bank.close()


@pytest.mark.sqlite_file
def test_a_damaged_frozen_bank_is_refused_and_left_alone(open_bank, tmp_path):  # noqa: F811
    bank = open_bank()
    fill(bank)
    bank.close()
    middle(tmp_path / "bank.sqlite")
    files = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(UserError, match="doctor"):
        open_bank(read_only=True)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == files


@pytest.mark.sqlite_file
def test_a_damaged_bank_that_is_in_use_is_not_rebuilt_under_its_user(open_bank, tmp_path):  # noqa: F811
    bank = open_bank()
    fill(bank)
    bank._store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # what the log still holds hides damage, and mends it
    header(tmp_path / "bank.sqlite")
    command = [sys.executable, "-c", WRITER, str(tmp_path / "bank.sqlite"), "x", "1", "add"]
    done = forkserver.run(command, env=WITH_KITS, capture_output=True, text=True, check=False)
    assert "another process has it open" in done.stderr


@pytest.mark.sqlite_file
def test_a_database_of_something_else_is_refused(open_bank, tmp_path):  # noqa: F811
    with sqlite3.connect(tmp_path / "other.sqlite") as db:
        db.execute("CREATE TABLE mine (a)")
    with pytest.raises(UserError, match="something else"):
        open_bank("other.sqlite")


@pytest.mark.sqlite_file
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


@pytest.mark.sqlite_file
def test_the_last_line_of_a_long_journal_is_checked_and_not_parsed(open_bank, tmp_path, monkeypatch, caplog):  # noqa: F811
    with closing(open_bank()) as bank:
        bank.add(record("the first", id="first"))
        bank.add_many([record(f"query {number} " + "word " * 200, id=str(number)) for number in range(1_500)])
    file = tmp_path / "bank.sqlite.journal"
    lines = file.read_bytes().splitlines(keepends=True)
    assert len(lines) == 2 and len(lines[1]) > journal_file.CHECKED  # longer than what is looked at
    with monkeypatch.context() as never:
        never.setattr(journal_file, "_parsed", None)
        open_bank().close()
    middle = len(lines[1]) // 2
    file.write_bytes(lines[0] + lines[1][:middle] + b"#" + lines[1][middle + 1 :])
    with closing(open_bank()) as bank:
        assert len(bank) == 1_501
    assert "was damaged in line 2" in caplog.text
