"""Damage of a bank's files has one of two results: it holds what it held, or a file is set aside and that is said.

The bank was killed in the middle: half of its changes are in its file, half in the -wal, all of them in the journal.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import sqlite3
import sys
from contextlib import closing

import forkserver
import pytest
from conftest import WITH_KITS
from test_memory import open_bank, record  # noqa: F401 - open_bank is a fixture

from core.errors import StopRun, UserError
from core.memory.__main__ import main
from core.memory.bank import MemoryBank
from core.memory.policies.cosine import Cosine
from core.memory.sqlite import damage
from core.models.embedding import HashingEmbedder

KILLED = """
import os, signal, sys
from core.models.embedding import HashingEmbedder
from core.memory.bank import MemoryBank
from core.memory.policies.cosine import Cosine
from test_memory import record
for end in (20, 40):
    bank = MemoryBank(path=sys.argv[1], embedder=HashingEmbedder(), policy=Cosine())
    for number in range(end - 20, end):
        bank.add(record(f"lesson number {number}", id=f"r{number}", task=f"t{number}"))
    with bank.change("edit") as change:
        change.update(f"r{end - 3}", status="archived", n_used=3)
        change.link(f"r{end - 1}", "supersedes", f"r{end - 3}", "why")
        change.fact("progress", str(end))
        change.remove(f"r{end - 9}")
    if end == 20:
        bank.close()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed")
    command = [sys.executable, "-c", KILLED, str(folder / "bank.sqlite")]
    assert forkserver.run(command, env=WITH_KITS, check=False).returncode == -signal.SIGKILL
    (folder / "bank.sqlite-shm").unlink()  # SQLite makes it again
    return folder


@pytest.fixture
def files(killed, tmp_path):
    shutil.copytree(killed, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.fixture
def closed(files, open_bank):  # noqa: F811
    """The files after the bank was opened and closed: without -wal."""
    open_bank().close()
    return files


def opened(folder):
    return MemoryBank(path=str(folder / "bank.sqlite"), embedder=HashingEmbedder(), policy=Cosine())


def content(bank):
    found = (bank.lexical("lesson 33", 3), bank.nearest("x 7", 3), bank.nearest("lesson number 37", 1))
    return bank.records(), bank.links(), bank.fact("progress"), *found


@pytest.fixture(scope="module")
def truth(killed, tmp_path_factory):
    with closing(opened(shutil.copytree(killed, tmp_path_factory.mktemp("truth") / "copy"))) as bank:
        assert len(bank) == 38
        return content(bank)


def flip(path, at, bit=0):
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(bytes(data))


def noise(path, start, size):
    with path.open("r+b") as file:
        file.seek(start)
        file.write(random.Random(size).randbytes(size))


def lines_of(path):
    return path.read_bytes().splitlines(keepends=True)


DATABASE = {
    "header": lambda path: noise(path, 0, 32),
    "middle": lambda path: noise(path, path.stat().st_size // 3 // 4096 * 4096, 5 * 4096),
    "emptied": lambda path: os.truncate(path, 0),
    "cut": lambda path: os.truncate(path, path.stat().st_size // 2),
    "removed": lambda path: path.unlink(),
}


@pytest.mark.parametrize("kind", DATABASE)
def test_a_damaged_database_is_set_aside_and_made_anew_from_the_journal(open_bank, closed, truth, caplog, kind):  # noqa: F811
    path = closed / "bank.sqlite"
    DATABASE[kind](path)
    damaged = path.read_bytes() if path.exists() else None
    before = {file: file.read_bytes() for file in closed.iterdir() if not file.name.startswith(".")}
    with pytest.raises(UserError, match="doctor"):
        open_bank(read_only=True)
    assert {file: file.read_bytes() for file in closed.iterdir() if not file.name.startswith(".")} == before
    bank = open_bank()
    assert content(bank) == truth and "is damaged" in caplog.text
    aside = list(closed.glob("bank.sqlite.corrupt-*"))
    assert [file.read_bytes() for file in aside] == ([] if damaged is None else [damaged])
    bank.history.rollback(19)  # each of the changes can be undone, too
    assert {one.id for one in bank.records()} == {f"r{n}" for n in range(19)}
    bank.history.rollback(42)
    assert content(bank) == truth and bank.add(record("and it goes on", id="new"))
    bank.close()
    caplog.clear()
    assert len(open_bank()) == 39 and caplog.text == ""


def test_without_a_journal_a_damaged_database_is_refused_and_left_alone(open_bank, closed):  # noqa: F811
    (closed / "bank.sqlite.journal").unlink()
    DATABASE["middle"](closed / "bank.sqlite")
    before = (closed / "bank.sqlite").read_bytes()
    with pytest.raises(UserError, match="no journal beside it .* restore a backup"):
        open_bank()
    assert (closed / "bank.sqlite").read_bytes() == before


def test_a_large_bank_is_checked_by_the_doctor(open_bank, closed, truth, monkeypatch, capsys):  # noqa: F811
    monkeypatch.setattr(damage, "CHECKED", 0)
    path = closed / "bank.sqlite"
    noise(path, path.read_bytes().index(b"lesson number 33") // 4096 * 4096, 4096)
    bank = open_bank()
    with pytest.raises(UserError, match="doctor"):
        bank.records()
    bank.close()
    assert main(["doctor", str(closed / "bank.sqlite")]) == 0
    assert "38 records" in capsys.readouterr().out
    assert content(open_bank()) == truth


def test_a_damaged_bank_that_is_in_use_is_not_rebuilt_under_its_user(open_bank, closed):  # noqa: F811
    bank = open_bank()
    DATABASE["header"](closed / "bank.sqlite")
    code = "import sys; from core.memory.sqlite.store import SqliteStore; SqliteStore(sys.argv[1])"
    words = [sys.executable, "-c", code, str(closed / "bank.sqlite")]
    done = forkserver.run(words, env=WITH_KITS, capture_output=True, text=True, check=False)
    assert "another process has it open" in done.stderr
    bank.close()


def test_two_empty_files_are_no_new_bank(open_bank, closed):  # noqa: F811
    for name in ("bank.sqlite", "bank.sqlite.journal"):
        os.truncate(closed / name, 0)
    for read_only in (True, False):
        with pytest.raises(UserError, match="are both empty, and nothing is left"):
            open_bank(read_only=read_only)


WAL = {
    "removed": lambda path: path.unlink(),
    "first frame": lambda path: flip(path, 32 + 24 + 100, 3),
    "cut": lambda path: os.truncate(path, path.stat().st_size * 2 // 3),
}


@pytest.mark.parametrize("kind", WAL)
def test_what_the_log_has_lost_is_brought_back_from_the_journal(open_bank, files, truth, caplog, kind):  # noqa: F811
    WAL[kind](files / "bank.sqlite-wal")
    with pytest.raises(UserError, match=r"changes ahead of it.*doctor"):
        open_bank(read_only=True)
    bank = open_bank()
    assert content(bank) == truth and "now brought back from there" in caplog.text
    assert bank.add(record("one more", id="new"))
    bank.history.rollback(bank.history.seq() - 1)
    assert content(bank) == truth
    bank.history.rollback(19)
    assert {one.id for one in bank.records()} == {f"r{n}" for n in range(19)}
    bank.close()
    caplog.clear()
    (files / "bank.sqlite").unlink()
    assert {one.id for one in open_bank().records()} == {f"r{n}" for n in range(19)}


def test_a_forgotten_lesson_does_not_come_back_with_a_lost_log(open_bank, files, truth, caplog):  # noqa: F811
    before = (files / "bank.sqlite").read_bytes()
    bank = open_bank()
    bank.history.forget(id="r5")
    bank.add(record("the last", id="last"))
    left = content(bank)
    bank.close()
    (files / "bank.sqlite").write_bytes(before)  # as if nothing of it had reached the file
    bank = open_bank()
    assert content(bank) == left and bank.get("r5") is None and "now brought back" in caplog.text
    with pytest.raises(UserError, match="does not tell what was before its entry 43"):
        bank.history.rollback(3)
    bank.history.rollback(43)
    assert bank.get("last") is None and bank.get("r5") is None
    bank.close()
    assert not any(b"lesson number 5 " in path.read_bytes() for path in files.iterdir() if path.is_file())


def another(lines):
    changed = json.loads(lines[-1])
    return [*lines[:-1], json.dumps(changed | {"at": "2020-01-01T00:00:00+00:00"}).encode() + b"\n"]


JOURNAL = {
    "removed": lambda path: path.unlink(),
    "last line torn": lambda path: os.truncate(path, path.stat().st_size - 30),
    "last line removed": lambda path: path.write_bytes(b"".join(lines_of(path)[:-1])),
    "end is noise": lambda path: noise(path, path.stat().st_size - 100, 100),
    "of another bank": lambda path: path.write_bytes(b"".join(another(lines_of(path)))),
}


@pytest.mark.parametrize("kind", JOURNAL)
def test_a_journal_that_does_not_fit_is_set_aside_and_written_anew(open_bank, closed, truth, caplog, kind):  # noqa: F811
    path = closed / "bank.sqlite.journal"
    JOURNAL[kind](path)
    spoilt = path.read_bytes() if path.exists() else b""
    caplog.clear()
    bank = open_bank()
    assert content(bank) == truth and "its journal differ" in caplog.text
    bank.add(record("one more", id="new"))
    bank.history.rollback(42)
    bank.close()
    assert [file.read_bytes() for file in closed.glob("*.journal.corrupt-*")] == ([spoilt] if spoilt else [])
    (closed / "bank.sqlite").unlink()
    bank = open_bank()
    assert content(bank) == truth
    with pytest.raises(UserError, match="does not tell what was before its entry 42"):
        bank.history.rollback(41)


def test_a_journal_of_another_bank_is_not_mixed_in(open_bank, closed, truth, caplog):  # noqa: F811
    other = open_bank("other.sqlite")
    for n in range(60):
        other.add(record(f"more {n}", id=f"m{n}"))
    other.close()
    with closing(sqlite3.connect(closed / "other.sqlite")) as db, db:
        db.execute("UPDATE journal SET at = '2020'")
    lines = [json.loads(line) | {"at": "2020"} for line in lines_of(closed / "other.sqlite.journal")]
    (closed / "bank.sqlite.journal").write_text("".join(json.dumps(line) + "\n" for line in lines))
    caplog.clear()
    assert content(open_bank()) == truth and "ends with change 60" in caplog.text


def test_a_journal_that_is_lost_while_the_bank_is_open_is_written_anew_by_the_next_change(open_bank, closed):  # noqa: F811
    journal = closed / "bank.sqlite.journal"
    for spoil in (journal.unlink, lambda: journal.write_bytes(journal.read_bytes()[:-40])):
        bank = open_bank()
        bank.add(record("one more", id=str(spoil)))
        spoil()
        bank.add(record("after", id=f"after {spoil}"))
        before = content(bank)
        bank.close()
        (closed / "bank.sqlite").unlink()
        bank = open_bank()
        assert content(bank) == before
        bank.close()


def test_how_many_changes_two_damaged_files_have_lost_is_said(open_bank, closed, caplog, capsys):  # noqa: F811
    path, journal = closed / "bank.sqlite", closed / "bank.sqlite.journal"
    lines = lines_of(journal)
    lines[30] = lines[30][:50] + b"#" + lines[30][51:]
    journal.write_bytes(b"".join(lines))
    DATABASE["header"](path)
    caplog.clear()
    bank = open_bank()
    assert "1 of its changes could not be read there and are lost, the journal is kept as" in caplog.text
    assert len(bank) == 37 and bank.get("r29") is None
    bank.close()
    lines = lines_of(journal)
    journal.write_bytes(b"".join([*lines[:5], b"{}\n", *lines[6:]]))
    assert main(["doctor", str(path)]) == 0
    assert "1 lines of bank.sqlite.journal cannot be read: it is kept as" in capsys.readouterr().out
    path.unlink()
    assert len(open_bank()) == 37


def test_a_lone_copy_of_a_new_bank_in_use_is_not_taken_for_an_empty_one(tmp_path, caplog, capsys):
    bank, copies = tmp_path / "new.sqlite", [tmp_path / name / "new.sqlite" for name in ("read", "written")]
    with closing(MemoryBank(path=str(bank), embedder=HashingEmbedder(), policy=Cosine())) as open_one:
        assert main(["list", str(bank)]) == 0 and not caplog.text  # empty, and whole
        open_one.add(record("r1"))
        for copy in copies:
            copy.parent.mkdir()
            shutil.copy(bank, copy)
    for command, copy in zip(("list", "compact"), copies, strict=True):
        caplog.clear()
        main([command, str(copy)])
        assert f"{copy} has no journal beside it: a copy made while it was in use is incomplete" in caplog.text
    caplog.clear()
    assert main(["list", str(bank)]) == 0 and "r1" in capsys.readouterr().out and not caplog.text


def test_no_shared_memory_maps_are_said_to_be_that(tmp_path, monkeypatch):
    def broken(*_given):
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode, error.sqlite_errorname = 5386, "SQLITE_IOERR_SHMMAP"
        raise error

    monkeypatch.setattr("core.memory.sqlite.database.schema_version", broken)
    with pytest.raises(StopRun, match="its file system has no shared memory maps"):
        MemoryBank(path=str(tmp_path / "b.sqlite"), embedder=HashingEmbedder(), policy=Cosine())


ENDS = [("",), ("-wal",), (".journal",), ("", ".journal")]


@pytest.mark.parametrize("ends", ENDS)
def test_damage_anywhere_is_no_traceback_and_beside_the_database_without_effect(killed, tmp_path, truth, ends):
    for size, seed in itertools.product((1, 200), range(3)):
        rng = random.Random(f"{ends} {size} {seed}")
        folder = shutil.copytree(killed, tmp_path / f"{size} {seed}")
        for end in ends:
            path = folder / f"bank.sqlite{end}"
            data = bytearray(path.read_bytes())
            at = rng.randrange(len(data) - size)
            for place in range(at, at + size):
                data[place] ^= 1 << rng.randrange(8)
            path.write_bytes(bytes(data))
        try:
            with closing(opened(folder)) as bank:
                found = content(bank)
        except UserError as error:
            assert "" in ends and ("doctor" in str(error) or "put back" in str(error)), (size, seed)
        else:
            assert found == truth or "" in ends, (size, seed)
