"""A bank that cannot be read and has no journal is set aside by the server, never a file of somebody else's."""

from __future__ import annotations

import logging
import os
import sqlite3
from contextlib import closing

import pytest
from memory_kit import item, record

from core.errors import UserError
from core.memory.bank import MemoryBank
from core.memory.policies.cosine import Cosine
from core.memory.sqlite.journal_file import path_of
from core.models.embedding import HashingEmbedder
from mcp_server.config import load_config
from mcp_server.service import Service


@pytest.fixture
def serve(monkeypatch, caplog):
    """(number of records, warnings) of a server on a file."""
    monkeypatch.setenv("REASONINGBANK_SETTINGS", "none")

    def serve(path):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            service = Service(path, load_config([]), embedder="hashing-256")
        with closing(service):
            return len(service.bank), caplog.text

    return serve


@pytest.fixture
def bank(tmp_path):
    """A bank's file with a record and no journal, under a name."""

    def make(name):
        path = tmp_path / name
        with closing(MemoryBank(path=str(path), embedder=HashingEmbedder(), policy=Cosine())) as bank:
            bank.add(record("a", item(0)))
        path_of(path).unlink()
        return path

    return make


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("bank.sqlite", lambda data: os.urandom(len(data))),
        ("bank.db", lambda data: b"\0" * 512 + data[512:]),
        ("lessons", lambda data: b"\0" * 100 + data[100:]),  # known by its tables
        ("bank.sqlite3", lambda data: b'{"torn": '),
    ],
)
def test_it_is_set_aside_whole_and_the_server_begins_with_an_empty_one(serve, bank, name, damage):
    path = bank(name)
    data = damage(path.read_bytes())
    path.write_bytes(data)
    count, said = serve(path)
    [aside] = path.parent.glob(f"{name}.corrupt-*")
    assert count == 0 and aside.read_bytes() == data
    assert aside.name in said and "cannot be read" in said and "empty one takes its place" in said
    assert serve(path) == (0, "") and len(list(path.parent.glob(f"{name}.corrupt-*"))) == 1


def test_with_its_journal_it_is_rebuilt(serve, bank, tmp_path):
    path = bank("bank.sqlite")
    with closing(MemoryBank(path=str(path), embedder=HashingEmbedder(), policy=Cosine())) as opened:
        opened.add(record("b", item(90)))
    path.write_bytes(os.urandom(9000))
    count, said = serve(path)
    assert count >= 1 and "rebuilt" in said


@pytest.mark.parametrize("name", ["memories.json", "thesis.docx", "notes"])
def test_another_file_is_refused_and_stays(serve, tmp_path, name):
    path = tmp_path / name
    path.write_bytes(b'{"a": "text that is no bank"}' * 50)
    with pytest.raises(UserError, match="is not a memory bank"):
        serve(path)
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_another_database_is_refused_and_stays(serve, tmp_path):
    path = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE x (a)")
    with pytest.raises(UserError, match="a database of something else"):
        serve(path)
    assert [file.name for file in tmp_path.iterdir()] == ["other.sqlite"]
