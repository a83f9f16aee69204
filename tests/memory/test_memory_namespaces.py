"""Tenants of one bank whose records have the same ids: each has all of its own and never touches another's."""

from __future__ import annotations

import json

import pytest
from conftest import TOY, read_rows
from test_memory import lesson, open_bank, record  # noqa: F401 - open_bank is a fixture

from core.errors import UserError
from core.memory import formats
from core.memory.__main__ import main
from core.memory.filter import Filter
from core.memory.open import read_records
from core.memory.policies.rrf import RRF
from core.memory.ports import Hygiene

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
    return view.records(view.namespace), view.links(), view.fact("folded"), view.history.snapshots(), view.ids()


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
    assert [hit.record.original_query for hit in bob.lexical("2", 9)] == ["bob asks 2"]


def test_everyones_search_shows_equal_ids_of_two_tenants(tenants, open_bank):  # noqa: F811
    for key in ("query", "item", "joined"):
        bank = open_bank(f"{key}.sqlite", key=key)
        for view in tenants:
            bank.of(view.namespace).add_many(view.records(view.namespace))
        found = bank.of("ann").nearest("ann asks 2", 9, where=Filter(everyone=True), key=key)
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
    start = ann.history.seq()
    before = [state(view) for view in tenants]
    for view in (ann, bob, ann):
        with view.change("edit") as change:
            change.update("r1", n_used=change.get("r1").n_used + 1)
    work(bob)
    ann.history.snapshot("here")
    worked, marked = [state(view) for view in tenants], ann.history.seq()
    assert ann.history.rollback(start) == 3
    assert [state(view) for view in tenants] == [before[0], worked[1]]
    assert ann.history.rollback(marked) == 1  # the undoing of it
    assert [state(view) for view in tenants] == worked
    assert bob.history.rollback(start) == 2
    assert [state(view) for view in tenants] == [worked[0], before[1]]
    ann.history.rollback(start, everyone=True)
    assert [state(view) for view in tenants] == before
    ann.history.rollback(0)
    assert [len(view.records(view.namespace)) for view in tenants] == [0, 4]


def test_snapshots_of_one_name_are_each_ones_own(tenants):
    ann, bob = tenants
    ann.history.snapshot("start")
    work(bob)
    bob.history.snapshot("start")
    worked = state(bob)
    work(ann)
    ann.history.rollback("start")
    assert ann.get("m") is None
    assert state(bob) == worked
    with pytest.raises(UserError, match="it has start"):
        bob.history.rollback("else")


@pytest.mark.sqlite_file
def test_forgetting_leaves_the_others_record_its_links_and_its_past(tenants, tmp_path):
    ann, bob = tenants
    for view in tenants:
        work(view)
    start, before = bob.history.seq(), state(bob)
    assert ann.history.forget(task="t1") == ["r1", "m"]
    assert (ann.ids(), ann.links()) == ({"r2", "r3"}, [])
    assert state(bob) == before
    assert bob.of("ann").history.forget(id="r1") == []
    bob.history.rollback(2)  # what the journal held of bob's records is still there
    assert {r.original_query for r in bob.records("bob")} == {f"bob asks {n}" for n in range(4)}
    bob.history.rollback(start)
    assert state(bob) == before
    ann.close()
    held = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"ann asks 1" not in held
    assert b"bob asks 1" in held


def test_hygiene_asks_the_tenant_that_the_record_goes_to(open_bank):  # noqa: F811
    class Asks(Hygiene):
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


@pytest.mark.sqlite_file
def test_two_runs_of_one_seed_keep_all_their_lessons(here, tmp_path):
    words = ("memory=consolidated_offline", "memory.consolidate.every=4", "limit=8")
    words += (f"memory.path={tmp_path / 'b.sqlite'}",)
    for name in TENANTS:
        here(*TOY, *words, "seed=3", f"memory.namespace={name}", run_dir=tmp_path / name)
    made = [{record["id"] for row in read_rows(tmp_path / name) for record in row["records"]} for name in TENANTS]
    kept = [{r.id for r in read_records(tmp_path / "b.sqlite", name) if not r.parents} for name in TENANTS]
    assert made[0] & made[1]  # the same lessons, so the same ids
    assert kept == made


def test_rrf_tells_equal_ids_of_two_tenants_apart(tenants):
    ann, _ = tenants
    found = RRF(top_k=8).rank(ann, "ann asks 2", 8, None, Filter(everyone=True))
    assert {(hit.record.namespace, hit.record.id) for hit in found} == {
        (name, f"r{n}") for name in TENANTS for n in range(4)
    }
    assert (found[0].record.original_query, found[0].score) == ("ann asks 2", pytest.approx(2 / 61, abs=1e-6))
    [strict] = RRF(top_k=8, min_score=0.99).rank(ann, "ann asks 2", 8, None, Filter(everyone=True))
    assert (strict.record.original_query, strict.score) == ("ann asks 2", pytest.approx(2 / 61, abs=1e-6))


def test_the_servers_files_keep_equal_ids_of_two_tenants_with_their_vectors(tenants, open_bank, tmp_path):  # noqa: F811
    def lessons(view):
        return {(r.original_query, one) for r in view.records(view.namespace) for one in r.items}

    def nearest(view):
        hits = view.nearest(f"{view.namespace} asks 3", 9)  # the best first
        return {hit.record.original_query: hit.score for hit in reversed(hits)}

    for view in tenants:
        work(view)
    formats.export(tenants[0], tmp_path / "out", "mcp")
    other = open_bank("other.sqlite")
    assert formats.load(other, tmp_path / "out", "mcp") == (14, 0)  # a memory for each lesson: 2 + 2 + 1 + 2 a tenant
    memories, held = tmp_path / "out" / "memories.json", tmp_path / "out" / "embeddings.json"
    for file in (memories, memories.with_name("archived_memories.json"), held):  # as they were written before
        file.write_text(file.read_text().replace('"ann/', '"').replace('"bob/', '"'))
    older = open_bank("older.sqlite")
    assert formats.load(older, tmp_path / "out", "mcp") == (14, 0)
    for view in tenants:
        assert other.of(view.namespace).get("m-0") is None
        name = view.namespace
        assert other.of(name).get(f"{name}/m-0").parents == (f"{name}/r1", f"{name}/r2")
        for bank in (other, older):
            assert lessons(bank.of(view.namespace)) == lessons(view)
            assert nearest(bank.of(view.namespace)) == pytest.approx(nearest(view), abs=1e-6)
    with pytest.raises(UserError, match="ann and bob have different lessons of the id"):
        formats.load(open_bank("one.sqlite"), tmp_path / "out", "mcp", "carl")


def test_tenants_with_different_lessons_of_one_id_are_not_imported_into_one(tenants, open_bank, tmp_path):  # noqa: F811
    formats.export(tenants[0], tmp_path / "out.jsonl", "jsonl")
    other = open_bank("other.sqlite")
    with pytest.raises(UserError, match="ann and bob have different lessons of the id r0"):
        formats.load(other, tmp_path / "out.jsonl", "jsonl", "carl")
    assert len(other) == 0
    for name in TENANTS:
        other.of(name).add(record("the same", id="s"))
    formats.export(other, tmp_path / "same.jsonl", "jsonl")
    assert formats.load(open_bank("one.sqlite"), tmp_path / "same.jsonl", "jsonl", "carl") == (1, 1)


def test_the_undo_of_a_round_by_hand_is_that_tenants_alone(tenants, tmp_path, capsys):
    def run(*words):
        assert main([words[0], str(tmp_path / "bank.sqlite"), *words[1:]]) == 0
        return capsys.readouterr().out.splitlines()

    tenants[0].close()
    *_, undo = run("consolidate", "--namespace", "ann", "--only", "deduplicate")
    assert undo.endswith(" --namespace ann")
    assert sum("superseded" in line for line in run("list", "--namespace", "ann")) == 3
    run("mark", "r1", "helpful", "--namespace", "bob")
    command, _, *rest = undo.partition("reasoningbank bank ")[2].split()
    run(command, *rest)
    assert not any("superseded" in line for line in run("list", "--namespace", "ann"))
    assert "helpful 2 harmful 0" in run("mark", "r1", "helpful", "--namespace", "bob")[0]
    assert "--namespace" not in run("consolidate", "--only", "deduplicate")[-1]
