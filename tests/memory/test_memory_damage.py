"""Damage of a bank's files is mended from the other copy and said, or refused in one sentence: never silent."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import sqlite3
import sys
from contextlib import closing

import forkserver
import pytest
from conftest import WITH_KITS
from test_memory import open_bank, record  # noqa: F401 - open_bank is a fixture

from core.checksum import sealed
from core.errors import UserError
from core.memory.__main__ import main
from core.memory.formats import export, load
from core.memory.sqlite import damage, journal_file
from core.memory.sqlite.journal_file import JournalFile
from core.memory.sqlite.setup import finish

pytestmark = pytest.mark.sqlite_file
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
    """The files of a bank whose writer was killed: half of its lessons are in the file, half in the -wal."""
    folder = tmp_path_factory.mktemp("killed")
    command = [sys.executable, "-c", KILLED, str(folder / "bank.sqlite")]
    assert forkserver.run(command, env=WITH_KITS, check=False).returncode == -signal.SIGKILL
    (folder / "bank.sqlite-shm").unlink()  # SQLite makes it again
    return folder


@pytest.fixture
def files(killed, tmp_path):
    shutil.copytree(killed, tmp_path, dirs_exist_ok=True)
    return tmp_path


def content(bank):
    return bank.records(), bank.links(), bank.fact("progress"), bank.lexical("lesson 33", 3), bank.nearest("x 7", 3)


@pytest.fixture(scope="module")
def truth(killed, tmp_path_factory):
    from core.memory.bank import MemoryBank
    from core.memory.policies.cosine import Cosine
    from core.models.embedding import HashingEmbedder

    folder = shutil.copytree(killed, tmp_path_factory.mktemp("truth") / "copy")
    bank = MemoryBank(path=str(folder / "bank.sqlite"), embedder=HashingEmbedder(), policy=Cosine())
    with closing(bank):
        assert len(bank) == 38
        return content(bank)


def flip(path, at, bit=0):
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(bytes(data))


WAL = {
    "removed": lambda path: path.unlink(),
    "emptied": lambda path: os.truncate(path, 0),
    "first frame": lambda path: flip(path, 32 + 24 + 100, 3),
    "last byte": lambda path: flip(path, -1, 7),
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
    assert {one.id for one in bank.records()} == {f"r{n}" for n in range(19)}  # each of them can be undone, too
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
    bank.history.rollback(3)
    assert bank.get("r5") is None
    bank.close()
    assert not any(b"lesson number 5 " in path.read_bytes() for path in files.iterdir() if path.is_file())


def test_a_journal_of_another_bank_is_kept_and_not_mixed_in(open_bank, files, truth, caplog):  # noqa: F811
    open_bank().close()
    other = open_bank("other.sqlite")
    with other.change("another history") as change:
        for n in range(3):
            change.add(record(f"other {n}", id=f"o{n}"))
    for n in range(60):
        other.add(record(f"more {n}", id=f"m{n}"))
    other.close()
    shutil.copy(files / "other.sqlite.journal", files / "bank.sqlite.journal")
    caplog.clear()
    assert content(open_bank()) == truth and "is of another bank" in caplog.text
    [kept] = files.glob("bank.sqlite.journal.corrupt-*")
    assert kept.read_bytes() == (files / "other.sqlite.journal").read_bytes()


def test_a_journal_that_departs_from_the_bank_early_is_not_mixed_in(open_bank, files, truth, caplog):  # noqa: F811
    """Banks of one sweep may agree in their last change, which was made in the same second."""
    open_bank().close()
    journal = files / "bank.sqlite.journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    changed = json.loads(lines[4])
    del changed["crc32"]
    lines[4], _ = sealed(json.dumps(changed | {"reason": "another"}).encode() + b"\n", 0)
    journal.write_bytes(b"".join(lines[:-1]))  # and it is looked at, because it lacks a change
    caplog.clear()
    assert content(open_bank()) == truth and "is of another bank" in caplog.text


def test_a_journal_line_that_is_there_twice_is_made_once(open_bank, files, truth, caplog, capsys):  # noqa: F811
    (files / "bank.sqlite-wal").unlink()
    journal = files / "bank.sqlite.journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:-1], lines[-2], lines[-1], lines[-1]]))
    bank = open_bank()
    assert content(bank) == truth
    assert "was damaged in line" in caplog.text and "now brought back" in caplog.text
    bank.close()
    assert main(["doctor", str(files / "bank.sqlite")]) == 0
    assert "the database is whole" in capsys.readouterr().out


def test_a_change_that_both_files_have_lost_is_told(open_bank, files, caplog):  # noqa: F811
    (files / "bank.sqlite-wal").unlink()
    journal = files / "bank.sqlite.journal"
    os.truncate(journal, journal.stat().st_size - 10)
    bank = open_bank()
    assert len(bank) == 39  # without the last change, which took one out
    assert "what stood after them cannot be read, and is lost if it was acknowledged" in caplog.text


def test_how_many_changes_two_damaged_files_have_lost_is_told(open_bank, files, caplog):  # noqa: F811
    open_bank().close()
    path, journal = files / "bank.sqlite", files / "bank.sqlite.journal"
    flip(path, at_text(path, b"lesson number 30") + 3)
    flip(journal, at_text(journal, b"lesson number 30") + 3)
    caplog.clear()
    bank = open_bank()
    assert "bank.sqlite.journal was damaged in 1 lines, too: of the 42 changes that one of them names 0" in caplog.text
    assert bank.get("r30") is None and "lost: r30" in caplog.text
    bank.close()
    data = journal.read_bytes()
    journal.write_bytes(data[: len(data) // 2])
    path.write_bytes(path.read_bytes()[:20_000])
    caplog.clear()
    left = len(open_bank())
    n, names = map(int, re.search(r"of the (\d+) changes that one of them names (\d+) are lost", caplog.text).groups())
    assert left < 37 and names <= n


def at_text(path, text):
    return path.read_bytes().index(text)


@pytest.mark.parametrize("where", [b"CREATE TABLE records", b"lesson number 7", b"INSERT INTO touched"])
@pytest.mark.parametrize("bit", [0, 7])
def test_a_text_that_is_not_what_was_written_is_damage(open_bank, files, truth, caplog, capsys, where, bit):  # noqa: F811
    """bit 7: it is not UTF-8 any more. In the schema, in a record and in a trigger."""
    open_bank().close()
    path = files / "bank.sqlite"
    flip(path, at_text(path, where) + len(where) - 3, bit)
    copy = files / "copy"
    copy.mkdir()
    for name in ("bank.sqlite", "bank.sqlite.journal"):
        shutil.copy(files / name, copy)
    with pytest.raises(UserError, match="doctor"):
        open_bank(read_only=True)
    assert content(open_bank()) == truth and "is damaged" in caplog.text
    assert main(["doctor", str(copy / "bank.sqlite")]) == 0
    assert "38 records" in capsys.readouterr().out


def test_a_record_that_no_copy_holds_is_named(open_bank, files, caplog):  # noqa: F811
    open_bank().close()
    flip(files / "bank.sqlite", at_text(files / "bank.sqlite", b"lesson number 7") + 3)
    (files / "bank.sqlite.journal").unlink()
    bank = open_bank()
    assert len(bank) == 37 and bank.get("r7") is None
    assert "no journal" in caplog.text and "lost: r7 (row 8)" in caplog.text


def test_a_record_is_checked_when_it_is_read(open_bank, files, monkeypatch):  # noqa: F811
    open_bank().close()
    monkeypatch.setattr(damage, "SAMPLE", 0)  # as in a large bank
    flip(files / "bank.sqlite", at_text(files / "bank.sqlite", b"lesson number 7") + 3)
    bank = open_bank()
    for read in (bank.records, lambda: bank.retrieve("lesson number 7", top_k=5)):
        with pytest.raises(UserError, match=r"bank\.sqlite is damaged \(the record 'r7' in row 8.*doctor"):
            read()


def test_what_a_person_edits_by_sql_is_no_damage(open_bank, files):  # noqa: F811
    open_bank().close()
    with closing(sqlite3.connect(files / "bank.sqlite")) as db, db:
        db.execute("UPDATE records SET original_query = 'edited' WHERE id = 'r7'")
        db.execute("UPDATE keys SET vector = zeroblob(length(vector)) WHERE origin = 3")
    bank = open_bank()
    assert bank.get("r7").original_query == "edited" and not any(bank.get("r2").query_embedding)
    with bank.change("used") as change:
        change.update("r7", n_used=5)
    assert bank._store.rows("SELECT sum FROM records WHERE id = 'r7'") != [(None,)]


@pytest.mark.parametrize("spoil", ["digit", "checksum", "line removed", "lines exchanged", "torn", "emptied"])
def test_a_damaged_journal_is_said_kept_and_written_anew(open_bank, files, truth, caplog, spoil):  # noqa: F811
    open_bank().close()
    path = files / "bank.sqlite.journal"
    lines = path.read_bytes().splitlines(keepends=True)
    if spoil == "digit":
        lines[7] = lines[7].replace(b'"tick": 0', b'"tick": 1')
    elif spoil == "checksum":
        lines[7] = lines[7].replace(b'"crc32"', b'"crc33"')
    elif spoil == "line removed":
        del lines[7]
    elif spoil == "lines exchanged":
        lines[7:9] = lines[8:6:-1]
    elif spoil == "torn":
        lines[-1] = lines[-1][:-30]
    path.write_bytes(b"" if spoil == "emptied" else b"".join(lines))
    bank = open_bank(read_only=True)
    assert content(bank) == truth and "is damaged: run" in caplog.text
    bank.close()
    caplog.clear()
    bank = open_bank()
    assert content(bank) == truth and "its journal differ" in caplog.text
    bank.close()
    assert bool(list(files.glob("*.journal.corrupt-*"))) == (spoil not in ("line removed", "emptied"))
    (files / "bank.sqlite").unlink()
    assert content(open_bank())[:3] == truth[:3]


def test_doctor_takes_links_and_facts_from_the_journal(open_bank, files, truth, capsys):  # noqa: F811
    open_bank().close()
    with closing(sqlite3.connect(files / "bank.sqlite")) as db, db:
        for trigger in ("undo_UPDATE_links", "undo_UPDATE_facts"):
            db.execute(f"DROP TRIGGER {trigger}")
        db.execute("UPDATE links SET note = 'whz' WHERE source = 'r19'")
        db.execute("UPDATE facts SET value = '44' WHERE key = 'progress'")
    with closing(sqlite3.connect(files / "bank.sqlite")) as db, db:
        finish(db)
    assert main(["doctor", str(files / "bank.sqlite")]) == 0
    assert "2 links or facts were not as the journal has them" in capsys.readouterr().out
    assert content(open_bank()) == truth


def test_two_empty_files_are_no_new_bank(open_bank, files):  # noqa: F811
    open_bank().close()
    for name in ("bank.sqlite", "bank.sqlite.journal"):
        os.truncate(files / name, 0)
    for read_only in (True, False):
        with pytest.raises(UserError, match="are both empty, and nothing is left"):
            open_bank(read_only=read_only)


@pytest.mark.parametrize("ends", [("",), ("-wal",), (".journal",), ("", ".journal")])
@pytest.mark.parametrize("size", [1, 200])
def test_damage_anywhere_is_neither_silent_nor_a_traceback(open_bank, killed, tmp_path, truth, caplog, ends, size):  # noqa: F811
    for seed in range(6):
        rng = random.Random(f"{ends} {size} {seed}")
        folder = shutil.copytree(killed, tmp_path / str(seed))
        for end in ends:
            path = folder / f"bank.sqlite{end}"
            data = bytearray(path.read_bytes())
            at = rng.randrange(len(data) - size)
            for place in range(at, at + size):
                data[place] ^= 1 << rng.randrange(8)
            path.write_bytes(bytes(data))
        caplog.clear()
        try:
            bank = open_bank(f"{seed}/bank.sqlite")
            assert content(bank) == truth or caplog.text, seed
        except UserError as error:
            assert "doctor" in str(error) or "Put back" in str(error), seed


def test_a_line_of_a_change_that_was_rolled_back_is_taken_back(tmp_path):
    with closing(JournalFile(tmp_path / "b.sqlite")) as journal:
        lines = [dict(zip(journal_file.ENTRY, (n, "", 0, ""))) | {"embedder": None, "undo": {}} for n in (1, 2)]
        assert journal.append(lines[0])
        journal.committed()
        before = journal.path.read_bytes()
        assert journal.append(lines[1])
        journal.take_back()
        assert journal.path.read_bytes() == before
        journal.rewrite([lines[1]])
        journal.take_back()
        assert journal.path.read_bytes() == before and journal.append(lines[1])
        with pytest.raises(UserError, match="was replaced while it was open"):
            JournalFile(tmp_path / "b.sqlite").append(lines[0] | {"seq": 0})


BAD = [None, [], {}, "x", -1, [[1]], {"a": 1}, "\x00", [None], 2**70, True]


def test_an_import_that_is_not_as_it_was_written_is_refused_or_read(open_bank, tmp_path):  # noqa: F811
    bank = open_bank()
    for n in range(3):
        bank.add(record(f"q {n}", id=f"r{n}"))
    with bank.change("link") as change:
        change.link("r0", "supersedes", "r1", "why")
    export(bank, tmp_path / "x.jsonl", "jsonl")
    lines = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    other = open_bank("other.sqlite")
    for number, line in enumerate(lines):
        for key in line:
            for bad in BAD:
                spoilt = [*lines[:number], line | {key: bad}, *lines[number + 1 :]]
                (tmp_path / "y.jsonl").write_text("".join(json.dumps(each) + "\n" for each in spoilt))
                try:
                    load(other, tmp_path / "y.jsonl", "jsonl")
                except UserError as error:
                    assert len(str(error).splitlines()) == 1
