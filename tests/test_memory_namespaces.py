"""Tenants of one bank whose records have the same ids: each has all of its own and never touches another's."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from conftest import REPO, read_rows
from test_memory import lesson, open_bank, record  # noqa: F401 - open_bank is a fixture

from core.errors import UserError
from core.memory import formats
from core.memory.__main__ import main
from core.memory.store.bank_file import read_records
from core.memory.store.filter import Filter

TENANTS = ("ann", "bob")


@pytest.fixture
def tenants(open_bank):  # noqa: F811
    """Two views of one bank with four records each, of the same ids and other texts."""
    bank = open_bank()
    views = [bank.of(name) for name in TENANTS]
    for view in views:
        made = [record(f"{view.namespace} asks {n}", task=f"t{n}", id=f"r{n}", tick=n) for n in range(4)]
        assert view.add_many(made) == 4
    return views


def state(view):
    return view.records(view.namespace), view.links(), view.fact("folded"), view.snapshots(), view.ids()


def work(view):
    """Everything that names a record by its id."""
    with view.change("work") as change:
        change.add(record("merged", id="m", namespace=view.namespace, parents=("r1", "r2"), created_at="2026"))
        for parent in ("r1", "r2"):
            change.update(parent, status="archived", n_used=change.get(parent).n_used + 1)
            change.link("m", "supersedes", parent, view.namespace)
        change.update("r3", items=(lesson("zebra"),))
        change.remove("r0")
        change.fact("folded", view.namespace)


def test_equal_ids_are_kept_apart(tenants):
    ann, bob = tenants
    assert len(ann) == 8
    assert [view.get("r2").original_query for view in tenants] == ["ann asks 2", "bob asks 2"]
    assert ann.add(record("once more", id="r2")) is False
    assert [hit.record.namespace for hit in ann.nearest("bob asks 2", 9)] == ["ann"] * 4
    assert {hit.record.id for hit in ann.neighbours("r2", 9)} == {"r0", "r1", "r3"}
    assert [hit.record.original_query for hit in bob.lexical("2", 9)] == ["bob asks 2"]


def test_everyones_search_shows_equal_ids_of_two_tenants(tenants):
    ann, _ = tenants
    for key in ("query", "item", "both"):
        found = ann.nearest("ann asks 2", 9, where=Filter(everyone=True), key=key)
        assert {(hit.record.namespace, hit.record.id) for hit in found} == {
            (name, f"r{n}") for name in TENANTS for n in range(4)
        }


def test_what_one_does_the_other_does_not_see(tenants):
    ann, bob = tenants
    before = state(bob)
    work(ann)
    assert state(bob) == before
    assert {link[0] for link in ann.links("r1")} == {"m"}
    with pytest.raises(UserError, match="no record m"), bob.change("foreign") as change:
        change.update("m", status="archived")
    with bob.change("foreign") as change:
        assert change.unlink("m", "supersedes", "r1") is False
        assert change.remove("m") is False
        assert change.get("m") is None
    assert state(bob) == before


def test_a_rollback_undoes_ones_own_changes_alone(tenants):
    ann, bob = tenants
    start = ann.seq()
    before = [state(view) for view in tenants]
    for view in (ann, bob, ann):
        with view.change("edit") as change:
            change.update("r1", n_used=change.get("r1").n_used + 1)
    work(bob)
    ann.snapshot("here")
    worked, marked = [state(view) for view in tenants], ann.seq()
    assert ann.rollback(start) == 3
    assert [state(view) for view in tenants] == [before[0], worked[1]]
    assert ann.rollback(marked) == 1  # the undoing of it
    assert [state(view) for view in tenants] == worked
    assert bob.rollback(start) == 2
    assert [state(view) for view in tenants] == [worked[0], before[1]]
    ann.rollback(start, everyone=True)
    assert [state(view) for view in tenants] == before
    ann.rollback(0)
    assert [len(view.records(view.namespace)) for view in tenants] == [0, 4]


def test_snapshots_of_one_name_are_each_ones_own(tenants):
    ann, bob = tenants
    ann.snapshot("start")
    work(bob)
    bob.snapshot("start")
    worked = state(bob)
    work(ann)
    ann.rollback("start")
    assert ann.get("m") is None
    assert state(bob) == worked
    with pytest.raises(UserError, match="it has start"):
        bob.rollback("else")


@pytest.mark.sqlite_file
def test_forgetting_leaves_the_others_record_its_links_and_its_past(tenants, tmp_path):
    ann, bob = tenants
    for view in tenants:
        work(view)
    start, before = bob.seq(), state(bob)
    assert ann.forget(task="t1") == ["r1", "m"]
    assert (ann.ids(), ann.links()) == ({"r2", "r3"}, [])
    assert state(bob) == before
    assert bob.forget(id="r1", namespace="ann") == []
    bob.rollback(2)  # what the journal held of bob's records is still there
    assert {r.original_query for r in bob.records("bob")} == {f"bob asks {n}" for n in range(4)}
    bob.rollback(start)
    assert state(bob) == before
    ann.close()
    held = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"ann asks 1" not in held
    assert b"bob asks 1" in held


def test_hygiene_asks_the_tenant_that_the_record_goes_to(open_bank):  # noqa: F811
    class Asks:
        def screen(self, made, bank, shown):
            asked.append((bank.namespace, [p for p in made.parents if bank.get(p)]))
            return made

    asked = []
    bank = open_bank(hygiene=Asks())
    bank.of("ann").add(record("a parent", id="p"))
    made = [record("child", id="c", parents=("p",), namespace=name) for name in TENANTS]
    bank.add_many(made, keep_namespaces=True)
    assert asked[1:] == [("ann", ["p"]), ("bob", [])]


def test_an_export_of_everyone_comes_back_whole(tenants, open_bank, tmp_path):  # noqa: F811
    for view in tenants:
        work(view)
    formats.export(tenants[0], tmp_path / "out.jsonl", "jsonl")
    other = open_bank("other.sqlite")
    assert formats.load(other, tmp_path / "out.jsonl", "jsonl") == (8, 0)
    for view in tenants:
        assert other.of(view.namespace).records(view.namespace) == view.records(view.namespace)
        assert other.of(view.namespace).links() == view.links()
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    old = [{"link": line["link"]} if "link" in line else line for line in lines]  # as long as ids were unique in a bank
    old = [line for line in old if line.get("record", {}).get("namespace") != "bob"]
    (tmp_path / "old.jsonl").write_text("".join(json.dumps(line) + "\n" for line in old))
    older = open_bank("older.sqlite")
    formats.load(older, tmp_path / "old.jsonl", "jsonl")
    assert {link[:3] for link in older.of("ann").links()} == {link[:3] for link in tenants[0].links()}


def test_the_command_line_takes_the_tenant(tenants, tmp_path, capsys):
    def run(*words):
        assert main([words[0], str(tmp_path / "bank.sqlite"), *words[1:]]) == 0
        return capsys.readouterr().out

    tenants[0].close()
    assert "bob asks 2" in run("show", "r2", "--namespace", "bob")
    run("status", "r2", "archived", "--namespace", "ann")
    run("mark", "r2", "helpful", "--namespace", "bob")
    listed = run("list").splitlines()
    assert [line.split()[2] for line in listed if "r2" in line] == ["archived", "active"]
    run("snapshot", "here", "--namespace", "ann")
    assert "2 records deleted" not in run("forget", "--id", "r3", "--namespace", "bob")
    assert len(run("list", "--namespace", "ann").splitlines()) == 4
    assert len(run("list", "--namespace", "bob").splitlines()) == 3
    assert "1 changes undone" in run("rollback", "--to", "2", "--namespace", "bob")  # the mark; what is forgotten is so
    assert "archived" in run("list", "--namespace", "ann")
    run("rollback", "--to", "2")
    assert "archived" not in run("list", "--namespace", "ann")
    assert main(["show", str(tmp_path / "bank.sqlite"), "r2"]) == 2
    assert "in the namespace default" in capsys.readouterr().err


def test_two_runs_of_one_seed_keep_all_their_lessons(tmp_path):
    words = "env=toy llm=scripted embedder=hashing arm=reasoningbank memory=consolidated_offline seed=3".split()
    words += [
        "memory.consolidate.every=4",
        "env.families=2",
        "env.boxes_per_family=4",
        f"memory.path={tmp_path / 'b.sqlite'}",
    ]
    for name in TENANTS:
        command = [sys.executable, "main.py", *words, f"memory.namespace={name}", f"run_dir={tmp_path / name}"]
        subprocess.run(command, cwd=REPO, check=True, capture_output=True, timeout=120)
    made = [{record["id"] for row in read_rows(tmp_path / name) for record in row["records"]} for name in TENANTS]
    kept = [{r.id for r in read_records(tmp_path / "b.sqlite", name) if not r.parents} for name in TENANTS]
    assert made[0] & made[1]  # the same lessons, so the same ids
    assert kept == made
