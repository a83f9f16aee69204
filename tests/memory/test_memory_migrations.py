"""Banks of version 0.1.0 (schema 4): read as they are, brought up to date when written to, rebuilt from their journals.

tests/data/version_0_1_0.tar.xz holds such banks. What they held at each point of their history is worked out here from
their journal's file alone.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import tarfile
from contextlib import closing
from dataclasses import asdict, replace

import forkserver
import pytest
from conftest import REPO
from test_memory import open_bank, record  # noqa: F401 - open_bank is a fixture

from core.errors import UserError
from core.memory.consolidation.consolidator import Consolidator
from core.memory.open import read_records
from core.memory.records import EpisodeFeedback
from core.memory.sqlite import migrations

COLUMNS = {  # of schema 4
    "records": (
        "rowid id namespace status outcome domain tags task_id original_query items source_trajectory_id score "
        "label_source created_at tick confidence n_used n_used_success n_helpful n_harmful last_used trust parents "
        "provenance folded_tags"
    ).split(),
    "links": "namespace source relation target note".split(),
    "facts": "namespace key value".split(),
}
KEYS = {"records": 3, "links": 4, "facts": 2}
JSON = ("tags", "items", "parents", "provenance")


@pytest.fixture
def old(tmp_path):
    """A bank of schema 4 under the name that open_bank takes, and the lines of its journal."""
    with tarfile.open(REPO / "tests" / "data" / "version_0_1_0.tar.xz") as archive:
        for name in ("bank.sqlite", "bank.sqlite.journal"):
            member = next(n for n in archive.getnames() if "arm=reasoningbank," in n and n.endswith(f"seed=0/{name}"))
            (tmp_path / name).write_bytes(archive.extractfile(member).read())
    return [json.loads(line) for line in (tmp_path / "bank.sqlite.journal").read_text().splitlines()]


def held(lines):
    """({id: fields}, links, facts) after some lines of an old journal."""
    tables = {table: {} for table in KEYS}
    for line in lines:
        for table, rows in line["now"].items():
            for there, *row in rows:
                key = tuple(row[: KEYS[table]])
                if there:
                    tables[table][key] = dict(zip(COLUMNS[table], row, strict=True))
                else:
                    tables[table].pop(key, None)
    records = {}
    for row in tables["records"].values():
        records[row["id"]] = {
            name: json.loads(value) if name in JSON else value
            for name, value in row.items()
            if name not in ("rowid", "folded_tags")
        }
    links = {tuple(row[name] for name in COLUMNS["links"][1:]) for row in tables["links"].values()}
    return records, links, {row["key"]: row["value"] for row in tables["facts"].values()}


def holds(bank):
    records = {r.id: json.loads(json.dumps(asdict(replace(r, query_embedding=())))) for r in bank.records()}
    for values in records.values():
        del values["query_embedding"]
    return records, set(bank.links()), dict(bank._store.rows("SELECT key, value FROM facts"))


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")}


def test_an_old_bank_is_read_and_left_alone(old, open_bank, tmp_path):  # noqa: F811
    before = files(tmp_path)
    bank = open_bank(read_only=True)
    assert holds(bank) == held(old)
    assert [entry["reason"] for entry in bank.history.journal()] == [line["reason"] for line in old]
    first = next(record for record in bank.records() if record.status == "active")
    assert round(bank.nearest(first.original_query, 1)[0].score, 5) == 1.0
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
    assert bank.ids() == {id for id, values in held(old)[0].items() if not values["parents"]} | {"new"}
    bank.history.rollback(len(old) // 2)
    assert holds(bank) == held(old[: len(old) // 2])


def test_what_keys_led_to_in_schema_7_they_lead_to(open_bank, tmp_path):  # noqa: F811
    bank = open_bank()
    for id, query in (("old", "open the red door"), ("new", "boil some water")):
        bank.add(record(query, id=id))
    with bank.change("by hand") as change:
        change.update("old", status="superseded")
        change.link("old", "duplicate_of", "new")
    [hit] = bank.nearest("open the red door", 9)
    bank.close()
    with closing(sqlite3.connect(tmp_path / "bank.sqlite")) as db, db:
        for trigger in ("heir_added", "heir_gone", "record_gone"):
            db.execute(f"DROP TRIGGER {trigger}")
        db.execute("ALTER TABLE keys ADD COLUMN record INTEGER NOT NULL DEFAULT 0")
        db.execute("UPDATE keys SET record = 2")
        db.execute("CREATE INDEX keys_passed ON keys (record) WHERE record <> origin")
        db.execute("DROP TABLE heirs")
        db.execute("UPDATE meta SET value = '7' WHERE key = 'schema'")
    for read_only in (True, False):
        again = open_bank(read_only=read_only)
        assert again.nearest("open the red door", 9) == [hit] and hit.record.id == "new" and hit.score == 1.0
        again.close()
    bank = open_bank()
    with bank.change("back") as change:
        change.update("old", status="active")
    assert [hit.record.id for hit in bank.nearest("open the red door", 9)] == ["old", "new"]
    assert list(tmp_path.glob("*corrupt*")) == []


def test_a_bank_of_another_version_is_refused_in_one_sentence(open_bank, tmp_path, caplog):  # noqa: F811
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
        ("99", "has schema 99, of a later version: this one reads up to 8"),
        ("3", "has schema 3, of before version 0.1.0: this version reads from 4"),
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


class Crash(BaseException):
    """The process ends here."""


def test_a_migration_that_fails_or_is_cut_off_leaves_the_bank_as_it_was(old, open_bank, tmp_path, monkeypatch):  # noqa: F811
    def fails(db):
        db.execute("DELETE FROM records")
        raise ValueError("no")

    def crash(db):
        raise Crash

    before = files(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "STEPS", (*migrations.STEPS, (8, fails)))
        for read_only in (True, False):
            with pytest.raises(UserError, match="cannot be brought from schema 4 to 8, and stays as it was: .*no"):
                open_bank(read_only=read_only)
    assert files(tmp_path) == before
    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr("core.memory.sqlite.database.finish", crash)
        open_bank()
    assert holds(open_bank()) == held(old)


def test_processes_open_an_old_bank_at_once(old, tmp_path):
    code = (
        "import sys; from core.memory.sqlite.store import SqliteStore; s = SqliteStore(sys.argv[1]); "
        "print(s.count(), s.meta('schema')); s.close()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "bank.sqlite")]
    opened = [forkserver.Popen(command, cwd=REPO, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert {process.communicate()[0] for process in opened} == {f"{len(held(old)[0])} 8\n"}
    lines = [json.loads(line) for line in (tmp_path / "bank.sqlite.journal").read_text().splitlines()]
    assert [line["seq"] for line in lines if line["undo"] is not None] == [line["seq"] for line in old]
