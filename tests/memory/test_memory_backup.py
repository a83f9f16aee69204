"""A backup is one checked file with all that the bank holds; a bank restored from it goes on where the bank was."""

from __future__ import annotations

import logging
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from test_memory import open_bank, record  # noqa: F401 - open_bank is a fixture

from core.memory.__main__ import main


def test_a_backup_made_while_the_bank_is_open_is_restored_whole(tmp_path, open_bank, capsys, caplog):  # noqa: F811
    bank = open_bank()
    bank.add(record("first"))
    bank.add(record("second"))
    bank.history.snapshot("before")
    bank.add(record("third"))
    there, back = str(tmp_path / "bank.sqlite"), str(tmp_path / "elsewhere" / "back.sqlite")
    assert main(["backup", there, str(tmp_path / "copies" / "one")]) == 0  # what is still in the -wal, too
    assert [file.name for file in (tmp_path / "copies").iterdir()] == ["one"]
    bank.add(record("fourth"))
    assert main(["restore", str(tmp_path / "copies" / "one"), back]) == 0
    assert capsys.readouterr().out.count("3 records") == 2

    with caplog.at_level(logging.WARNING):
        restored = open_bank("elsewhere/back.sqlite")
        assert [one.original_query for one in restored.records()] == ["first", "second", "third"]
        assert restored.records() == bank.records()[:3]
        assert [hit.record.original_query for hit in restored.nearest("second", 1)] == ["second"]
        restored.close()
        assert main(["rollback", back, "--to", "before"]) == 0
        assert not caplog.messages
        (tmp_path / "elsewhere" / "back.sqlite").unlink()  # its journal is whole, too
        again = open_bank("elsewhere/back.sqlite")
        assert [one.id for one in again.records()] == [one.id for one in bank.records()[:2]]


def test_nothing_is_overwritten(tmp_path, open_bank, capsys):  # noqa: F811
    open_bank().add(record("first"))
    there, copy = tmp_path / "bank.sqlite", tmp_path / "copy"
    assert main(["backup", str(there), str(copy)]) == 0
    before = copy.read_bytes()
    assert main(["backup", str(there), str(copy)]) == 2
    assert f"there is a file {copy} already" in capsys.readouterr().err
    assert main(["restore", str(copy), str(there)]) == 2
    assert f"{there} is there already: give another path, or --replace" in capsys.readouterr().err
    (tmp_path / "other.journal").write_text("{}\n")
    assert main(["restore", str(copy), str(tmp_path / "other")]) == 2
    assert "other.journal is there already" in capsys.readouterr().err
    assert copy.read_bytes() == before and not (tmp_path / "other").exists()


def test_a_damaged_backup_makes_no_bank(tmp_path, open_bank, capsys):  # noqa: F811
    bank = open_bank()
    for number in range(30):
        bank.add(record(f"lesson {number}", task=f"t{number}"))
    copy, back = tmp_path / "copy", tmp_path / "back.sqlite"
    assert main(["backup", str(tmp_path / "bank.sqlite"), str(copy)]) == 0
    data = copy.read_bytes()
    for damaged in (data[: len(data) // 2], b"no database at all" * 99, b""):
        copy.write_bytes(damaged)
        assert main(["restore", str(copy), str(back)]) == 2
        assert str(copy) in (said := capsys.readouterr().err) and said.count("\n") == 1
        assert not list(tmp_path.glob("back*"))
    copy.unlink()
    assert main(["restore", str(copy), str(back)]) == 2


def test_in_the_place_of_a_newer_bank_the_backup_is_what_is_restored(tmp_path, open_bank, capsys):  # noqa: F811
    bank, there, copy = open_bank(), tmp_path / "bank.sqlite", tmp_path / "copy"
    bank.add(record("first"))
    assert main(["backup", str(there), str(copy)]) == 0
    bank.add(record("second"))
    assert main(["restore", str(copy), str(there), "--replace"]) == 2  # it is open
    assert "another process has it open" in capsys.readouterr().err and len(open_bank()) == 2
    assert not list(tmp_path.glob(".*restored"))
    bank.close()


@pytest.mark.parametrize("by_hand", [False, True])
def test_what_the_journal_has_beyond_a_backup_does_not_come_back(tmp_path, open_bank, capsys, caplog, by_hand):  # noqa: F811
    bank, there, copy = open_bank(), tmp_path / "bank.sqlite", tmp_path / "copy"
    bank.add(record("first"))
    assert main(["backup", str(there), str(copy)]) == 0
    bank.add(record("second"))
    bank.close()
    if by_hand:
        shutil.copy(copy, there)
        assert main(["list", str(there)]) == 0 and "second" not in capsys.readouterr().out
    else:
        assert main(["restore", str(copy), str(there), "--replace"]) == 0
        aside = re.search(r"the bank that was there is (\S+) now", capsys.readouterr().out)[1]
        with closing(open_bank(Path(aside).name)) as old:
            assert [one.original_query for one in old.records()] == ["first", "second"]
    bank = open_bank()
    assert [one.original_query for one in bank.records()] == ["first"]
    assert ("a backup was put in the bank's place" in caplog.text) is by_hand
    bank.add(record("third"))
    bank.close()
    there.unlink()  # its journal is the backup's, with what came after
    assert [one.original_query for one in open_bank().records()] == ["first", "third"]
    if by_hand:
        [kept] = tmp_path.glob("bank.sqlite.journal.corrupt-*")
        assert "second" in kept.read_text()


def test_a_backup_put_in_place_by_hand_is_a_bank_like_others_once_it_was_written(tmp_path, open_bank):  # noqa: F811
    bank, there, copy = open_bank(), tmp_path / "bank.sqlite", tmp_path / "copy"
    bank.add(record("first"))
    assert main(["backup", str(there), str(copy)]) == 0
    bank.close()
    shutil.copy(copy, there)  # of the same state as the journal
    open_bank().close()
    with closing(sqlite3.connect(there)) as db:  # else the journal would not be followed after a crash
        assert db.execute("SELECT * FROM meta WHERE key = 'backup'").fetchall() == []
