"""Banks of older schemas: read as they are, brought up to date when written to, rebuilt from their old journals.

The banks of schema 2 are those that the previous release wrote (tests/data/version_1.tar.xz). What they held at each
point of their history is worked out here from their journal's file alone.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import tarfile
from contextlib import closing
from dataclasses import asdict

import numpy as np
import pytest
from conftest import REPO
from test_memory import open_bank, record  # noqa: F401 - open_bank is a fixture

from core.errors import UserError
from core.memory.consolidation.consolidator import Consolidator
from core.memory.open import read_records
from core.memory.records import EpisodeFeedback
from core.memory.sqlite import migrations
from core.models.embedding import HashingEmbedder

SCHEMA_1 = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE records (
    rowid INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, namespace TEXT NOT NULL, task_id TEXT NOT NULL,
    original_query TEXT NOT NULL, query_embedding BLOB NOT NULL, items TEXT NOT NULL,
    source_trajectory_id TEXT NOT NULL, score REAL NOT NULL, outcome TEXT NOT NULL, label_source TEXT NOT NULL,
    created_at TEXT NOT NULL, tick INTEGER NOT NULL, status TEXT NOT NULL
);
CREATE INDEX records_by_task ON records (namespace, task_id);
INSERT INTO meta VALUES ('schema', '1'), ('embedder', 'hashing-256');
"""


@pytest.fixture(params=["whole", "stopped", "sweep/2-toy-reasoningbank-seed0"])
def old(request, tmp_path):
    """A bank of schema 2 under the name that open_bank takes, and the lines of its journal."""
    with tarfile.open(REPO / "tests" / "data" / "version_1.tar.xz") as archive:
        for name in ("bank.sqlite", "bank.sqlite.journal"):
            (tmp_path / name).write_bytes(archive.extractfile(f"{request.param}/{name}").read())
    return [json.loads(line) for line in (tmp_path / "bank.sqlite.journal").read_text().splitlines()]


def held(lines):
    """({id: fields}, links, facts) after some lines of an old journal."""
    records, links, facts = {}, {}, {}
    for kind, *rest in (step for line in lines for step in line["redo"]):
        if kind == "put":
            records[rest[0]["id"]] = dict(rest[0])
        elif kind == "update":
            records[rest[0]] |= rest[1]
        elif kind == "link":
            links[tuple(rest[:3])] = rest[3]
        elif kind == "fact" and rest[0] != "embedder":
            facts[rest[0]] = rest[1]
        else:
            assert kind == "fact", "these banks remove nothing"
    return records, {(*key, note) for key, note in links.items()}, facts


def holds(bank):
    records = {r.id: json.loads(json.dumps(asdict(r))) for r in bank.records()}
    for values in records.values():
        del values["query_embedding"]
    return records, set(bank.links()), dict(bank._store.rows("SELECT key, value FROM facts"))


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_an_old_bank_is_read_and_left_alone(old, open_bank, tmp_path):  # noqa: F811
    before = files(tmp_path)
    bank = open_bank(read_only=True)
    assert holds(bank) == held(old)
    assert [entry["reason"] for entry in bank.history.journal()] == [line["reason"] for line in old]
    first = bank.records()[0]
    assert bank.nearest(first.original_query, 1)[0].score == 1.0
    assert bank.lexical(first.items[0].title, 99)
    bank.close()
    assert {r.id for r in read_records(tmp_path / "bank.sqlite", "default")} == set(held(old)[0])
    assert files(tmp_path) == before


@pytest.mark.parametrize("destroyed", [False, True])
def test_an_old_bank_goes_on_with_all_its_past(old, open_bank, tmp_path, destroyed):  # noqa: F811
    if destroyed:
        (tmp_path / "bank.sqlite").unlink()
    bank = open_bank()
    assert list(tmp_path.glob("*corrupt*")) == []
    names = ("seq", "at", "tick", "reason")
    kept = [tuple(entry[name] for name in names) for entry in bank.history.journal()]
    assert kept[: len(old)] == [tuple(line[name] for name in names) for line in old]
    last = bank.history.seq()
    for n in range(len(old), -1, -1):
        bank.history.rollback(n)
        assert holds(bank) == held(old[:n])
        assert len(bank.nearest("a box", 99)) == sum(r["status"] == "active" for r in held(old[:n])[0].values())
        bank.history.rollback(last)
        assert holds(bank) == held(old)
    assert bank.add(record("and it goes on", id="new"))
    bank.close()
    (tmp_path / "bank.sqlite").unlink()
    bank = open_bank()  # from the journal's file, which is of the new form now
    assert bank.ids() == {*held(old)[0], "new"}
    bank.history.rollback(len(old) // 2)
    assert holds(bank) == held(old[: len(old) // 2])


def middle(path):
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 3 // 4096 * 4096)
        file.write(b"\xff" * 4096 * 6)


@pytest.mark.parametrize("journal", [True, False])
def test_a_damaged_old_bank_is_rebuilt(old, open_bank, tmp_path, caplog, journal):  # noqa: F811
    middle(tmp_path / "bank.sqlite")
    if not journal:
        (tmp_path / "bank.sqlite.journal").unlink()
    bank = open_bank()
    assert "is damaged" in caplog.text
    if journal:
        assert holds(bank) == held(old)
    else:
        assert bank.ids() <= set(held(old)[0])
    assert bank.add(record("and it goes on", id="new"))


def schema_1(path, count=3):
    with closing(sqlite3.connect(path)) as db:
        db.executescript(SCHEMA_1)
        for n in range(count):
            query = f"query number {n}"
            vector = HashingEmbedder().embed([query])[0].tobytes()
            items = json.dumps([{"title": f"T{n}", "description": "d", "content": "c"}])
            values = (n + 1, f"r{n}", "default", f"t{n}", query, vector, items, "x", 1.0, "success", "llm", "2026", n)
            db.execute(f"INSERT INTO records VALUES ({', '.join('?' * 14)})", (*values, "active"))
        db.commit()


@pytest.mark.parametrize("read_only", [True, False])
def test_a_bank_of_schema_1_is_no_damaged_one(open_bank, tmp_path, caplog, read_only):  # noqa: F811
    schema_1(tmp_path / "bank.sqlite")
    before = files(tmp_path)
    bank = open_bank(read_only=read_only)
    assert caplog.text == ""
    assert [(r.id, r.items[0].title, r.trust, r.parents) for r in bank.records()] == [
        (f"r{n}", f"T{n}", 1.0, ()) for n in range(3)
    ]
    assert np.array_equal(bank.get("r1").query_embedding, HashingEmbedder().embed(["query number 1"])[0])
    assert bank.retrieve("query number 2")[0].record.id == "r2"
    assert bank.lexical("2", 1)[0].record.id == "r2"
    if read_only:
        bank.close()
        assert files(tmp_path) == before
    else:
        assert bank.add(record("one more", id="r3"))
        assert bank.history.rollback(0) == 1
        assert len(bank) == 3
        bank.close()
        (tmp_path / "bank.sqlite").unlink()
        assert open_bank().ids() == {"r0", "r1", "r2"}  # also what no change has added is in the journal's file


def test_a_bank_of_a_later_version_is_refused_in_one_sentence(open_bank, tmp_path, caplog):  # noqa: F811
    bank = open_bank()
    bank.add(record("a"))
    with bank.change("a later version") as change:
        change.fact("consolidate::default", '{"usage": {}, "of_later": 1}')
    bank.consolidate = Consolidator()
    with pytest.raises(UserError, match="was begun by a later version: of_later is its"):
        bank.learn(None)
    about = EpisodeFeedback(label="success", used=(), counted=False, new=(("r2", None),))
    assert bank.add_many([record("b", id="r2")], feedback=about) == 1 == len(bank) - 1  # it is not lost for that
    assert "stored, but" in caplog.text and "was begun by a later version" in caplog.text
    for schema, why in (
        ("99", "has schema 99, of a later version: this one reads up to 3"),
        ("x", "none of that name"),
    ):
        with closing(sqlite3.connect(tmp_path / "bank.sqlite")) as db, db:
            db.execute("UPDATE meta SET value = ? WHERE key = 'schema'", (schema,))
        bank.close()
        before = files(tmp_path)
        for read_only in (True, False):
            with pytest.raises(UserError, match=why):
                open_bank(read_only=read_only)
        assert files(tmp_path) == before


def test_a_step_that_fails_leaves_the_bank_as_it_was(old, open_bank, tmp_path, monkeypatch):  # noqa: F811
    def fails(db):
        db.execute("DELETE FROM records")
        raise ValueError("no")

    before = files(tmp_path)
    monkeypatch.setattr(migrations, "STEPS", (*migrations.STEPS, fails))
    for read_only in (True, False):
        with pytest.raises(UserError, match="cannot be brought from schema 2 to 3, and stays as it was: .*no"):
            open_bank(read_only=read_only)
    monkeypatch.undo()
    assert files(tmp_path) == before
    assert holds(open_bank()) == held(old)


def test_a_crash_before_the_end_of_a_migration_leaves_the_bank_as_it_was(old, open_bank, tmp_path, monkeypatch):  # noqa: F811
    class Crash(BaseException):
        pass

    def crash(db):
        raise Crash

    monkeypatch.setattr("core.memory.sqlite.store.finish", crash)
    with pytest.raises(Crash):
        open_bank()
    monkeypatch.undo()
    assert holds(open_bank()) == held(old)


def test_eight_processes_open_an_old_bank_at_once(old, tmp_path):
    code = (
        "import sys; from core.memory.sqlite.store import SqliteStore; s = SqliteStore(sys.argv[1]); "
        "print(s.count(), s.meta('schema')); s.close()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "bank.sqlite")]
    opened = [subprocess.Popen(command, cwd=REPO, stdout=subprocess.PIPE, text=True) for _ in range(8)]
    assert {process.communicate()[0] for process in opened} == {f"{len(held(old)[0])} 3\n"}
    lines = [json.loads(line) for line in (tmp_path / "bank.sqlite.journal").read_text().splitlines()]
    assert [line["seq"] for line in lines if line["undo"] is not None] == [line["seq"] for line in old]


def test_a_dead_status_and_the_queue_come_along(old, open_bank, tmp_path):  # noqa: F811
    id = next(iter(held(old)[0]))
    with closing(sqlite3.connect(tmp_path / "bank.sqlite")) as db, db:
        db.execute("UPDATE records SET status = 'candidate' WHERE id = ?", (id,))
        undo = json.dumps([["update", id, {"status": "candidate"}]])
        db.execute("INSERT INTO journal (at, tick, reason, undo) VALUES ('2026', 9, 'twice', ?)", (undo,))
        db.execute(
            "CREATE TABLE jobs (id TEXT PRIMARY KEY, namespace TEXT NOT NULL, state TEXT NOT NULL, payload TEXT NOT "
            "NULL, result TEXT NOT NULL, tries INTEGER NOT NULL, created_at TEXT NOT NULL, changed_at TEXT NOT NULL)"
        )
        db.execute("INSERT INTO jobs VALUES ('j', 'default', 'pending', '{\"a\": 1}', '{}', 0, '', '')")
    bank = open_bank()
    assert bank.get(id).status == "quarantined"
    assert bank.jobs().get("j").payload == {"a": 1}
    with bank.change("release") as change:
        change.update(id, status="active")
    bank.history.rollback(len(old))
    assert bank.get(id).status == "quarantined"
