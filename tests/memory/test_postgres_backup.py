"""A backup of a bank in PostgreSQL by the owner of its tables, and what is restored from it."""

from __future__ import annotations

import subprocess
import zipfile
from urllib.parse import urlsplit

import pytest
from embedded_postgres import programs
from memory_kit import item, record
from test_postgres import bound_role, filled, open_bank, url  # noqa: F401 - open_bank and url are fixtures

from core.memory.__main__ import main
from core.memory.postgres.setup import TENANTS

ODD = "@30 open\tit \\N \0 there"  # COPY has signs of its own for these


def rows(bank):
    everyone = bank._store.of(None)
    return {
        table: sorted(map(repr, everyone.rows(f"SELECT * FROM {table}"))) for table in (*TENANTS, "meta", "journal")
    }


def test_every_tenant_is_restored_as_it_was_at_the_backup(postgres, open_bank, url, tmp_path, capsys):  # noqa: F811
    other = postgres.new()
    ann, bob = open_bank(namespace="ann"), open_bank(namespace="bob", key="joined")
    filled(ann, ODD)
    filled(bob, ODD)
    bob.history.snapshot("before")
    with bob.change("gone") as change:
        change.remove("r")
    was, file = rows(bob), tmp_path / "copies" / "one"
    assert main(["backup", url, str(file)]) == 0 and "3 records backed up" in capsys.readouterr().out
    ann.add(record("later", item(50)))
    assert main(["restore", str(file), other]) == 0 and "3 records restored" in capsys.readouterr().out
    restored = open_bank(other, namespace="bob", key="joined")
    assert rows(restored) == was

    # It goes on where it was: numbers are not given twice, tenants are apart, searches and history work.
    assert restored.add(record("new", item(60), query="@60 it")) and restored.nearest("@60", 1)[0].record.id == "new"
    restored.history.rollback("before")
    assert restored.ids() == {"r"} and restored.get("r").status == "archived"
    assert open_bank(other, namespace="ann").get("later") is None
    with pytest.raises(Exception, match="row-level security"), restored._store.of("ann").unjournaled() as db:
        db.execute("INSERT INTO facts VALUES ('bob', 'k', 'v')")
    assert main(["restore", str(file), other]) == 2
    assert "is there already" in capsys.readouterr().err and restored.get("new") is None


def test_roles_that_were_bound_are_bound_in_the_restored_bank(postgres, open_bank, url, tmp_path):  # noqa: F811
    other = postgres.new()
    for name in ("ann", "bob"):
        filled(open_bank(namespace=name))
    with bound_role(postgres, url, "bob"):
        assert main(["backup", url, str(tmp_path / "one")]) == main(["restore", str(tmp_path / "one"), other]) == 0
        grant = f"GRANT SELECT ON {', '.join((*TENANTS, 'meta', 'journal', 'members'))} TO bob_only"
        postgres.admin(urlsplit(other).path[1:], grant)
        his = open_bank(other.replace("bank_app", "bob_only"), namespace="bob", read_only=True)
        assert {one.namespace for one in his.records()} == {"bob"}
        assert main(["backup", his.path, str(tmp_path / "his")]) == 2 and not (tmp_path / "his").exists()
        his.close()
        postgres.admin(urlsplit(other).path[1:], "DROP OWNED BY bob_only")


def test_a_backup_that_fails_leaves_no_file_and_a_damaged_one_makes_no_bank(postgres, open_bank, url, tmp_path, capsys):  # noqa: F811
    other, file = postgres.new(), tmp_path / "one"
    filled(open_bank())
    database = urlsplit(url).path[1:]
    postgres.admin(database, "ALTER TABLE undo_links RENAME TO elsewhere")
    assert main(["backup", url, str(file)]) == 2 and not list(tmp_path.iterdir())
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "Traceback" not in said
    postgres.admin(database, "ALTER TABLE elsewhere RENAME TO undo_links")
    assert main(["backup", url, str(file)]) == 0
    assert main(["backup", url, str(file)]) == 2 and "there is a file" in capsys.readouterr().err
    data = file.read_bytes()
    with zipfile.ZipFile(file) as packed:
        assert "bank.json" in packed.namelist()
        place = packed.getinfo("records").header_offset + 99  # within the rows
    for damaged in (data[: len(data) // 2], data[:place] + b"\xff" + data[place + 1 :], b"", b"x" * 99):
        file.write_bytes(damaged)
        assert main(["restore", str(file), other]) == 2
        assert str(file) in (said := capsys.readouterr().err) and said.count("\n") == 1
        assert len(open_bank(other)) == 0
    file.write_bytes(data)
    assert main(["restore", str(file), str(tmp_path / "bank.sqlite")]) == 2
    assert "of a bank in PostgreSQL" in capsys.readouterr().err and not list(tmp_path.glob("bank*"))
    assert main(["restore", str(file), other]) == 0


def test_pg_dump_copies_everything_when_the_session_says_so(open_bank, url):  # noqa: F811
    filled(open_bank(namespace="ann"))
    filled(open_bank(namespace="bob"))
    how = {"PGOPTIONS": "-c reasoningbank.namespace=*"}
    line = [str(programs() / "pg_dump"), "--enable-row-security", url]
    done = subprocess.run(line, env=how, capture_output=True, text=True, check=True)
    assert done.stdout.count("close it") >= 2
