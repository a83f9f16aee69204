"""Changes that are undone, marks to go back to, and what is forgotten for good."""

from __future__ import annotations

import re

import pytest
from test_memory import lesson, open_bank, record  # noqa: F401 - open_bank is a fixture

from core.errors import UserError


def state(bank):
    return bank.records(), bank.links(), bank.fact("folded")


def found(bank):
    return [hit.record.id for hit in bank.nearest("query number", 99)], [
        hit.record.id for hit in bank.lexical("number zebra", 99)
    ]


@pytest.fixture
def bank(open_bank):  # noqa: F811
    made = open_bank()
    made.add_many([record(f"query number {n}", task=f"t{n}", id=f"r{n}", tick=n) for n in range(6)])
    return made


def merge(bank):
    with bank.change("merge") as change:
        change.add(record("query merged", id="m1", parents=("r1", "r2"), items=(lesson("zebra"),)))
        for parent in ("r1", "r2"):
            change.update(parent, status="archived", n_used=change.get(parent).n_used + 1)
            change.link("m1", "supersedes", parent, "alike")
        change.update("r3", items=(lesson("zebra"),))
        change.remove("r4")
        change.fact("folded", "7")


def test_undoing_everything_newest_first_gives_back_each_state(bank):
    states = [(state(bank), found(bank))]
    merge(bank)
    states.append((state(bank), found(bank)))
    bank.history.snapshot("merged")
    bank.add(record("query number 9", id="r9"))
    assert bank.history.rollback("merged") == 1
    assert (state(bank), found(bank)) == states[1]
    bank.history.rollback(1)
    assert (state(bank), found(bank)) == states[0]
    last = bank.history.seq()
    bank.history.rollback(last - 1)  # undo the undoing
    assert (state(bank), found(bank)) == states[1]
    assert [entry["seq"] for entry in bank.history.journal()] == list(range(1, last + 2))
    bank.history.rollback(0)
    assert len(bank) == 0


def test_what_fails_half_way_leaves_nothing(bank):
    before = state(bank), bank.history.journal()
    for spoil in (
        lambda change: change.update("r1", original_query="other"),
        lambda change: change.update("nobody", status="archived"),
        lambda change: change.update("r1", status="asleep"),
        lambda change: change.link("r1", "likes", "r2"),
        lambda change: change.add(record("x", id="x", status="asleep")),
    ):
        with pytest.raises(UserError), bank.change("half") as change:
            change.update("r1", status="archived")
            change.add(record("new", id="new"))
            spoil(change)
    assert (state(bank), bank.history.journal()) == before


def test_snapshots_are_refused_twice_and_unknown(bank):
    bank.history.snapshot("one")
    with pytest.raises(UserError, match="already"):
        bank.history.snapshot("one")
    with pytest.raises(UserError, match="it has one"):
        bank.history.rollback("two")
    with pytest.raises(UserError, match="no journal entry 99"):
        bank.history.rollback(99)


def test_what_is_forgotten_is_in_no_file_any_more(bank, tmp_path):
    secret = "zebracorn"
    bank.add(record(f"about the {secret}", id="s", task="secret", items=(lesson(secret),)))
    with bank.change("edit") as change:
        change.update("s", items=(lesson(f"{secret} again"),))
    with bank.change("merge") as change:
        change.add(record(f"merged with {secret}", id="m", parents=("s", "r1")))
        change.update("r1", status="archived")
        change.update("s", status="archived")
        change.link("m", "supersedes", "s", secret)
    bank.add(record("other", id="late"))
    assert bank.history.forget(task="secret") == ["s", "m"]
    assert bank.get("r1").status == "active"  # its merged record is gone, so it counts again
    assert bank.lexical(secret, 5) == []
    assert "s" not in found(bank)[0]
    bank.close()
    for path in tmp_path.iterdir():
        assert secret.encode() not in path.read_bytes(), path.name


def test_what_is_forgotten_does_not_come_back_by_rollback(bank):
    merge(bank)
    gone = bank.history.forget(id="r1")
    assert gone == ["r1", "m1"]
    assert bank.history.journal()[-1]["reason"] == "forget"  # which all tenants may read
    assert list(bank.history.forgotten()) == ["r1", "m1"]
    assert all(re.fullmatch("sha256:[0-9a-f]{64}", digest) for digest in bank.history.forgotten().values())
    bank.history.rollback(1)
    assert bank.ids() == {f"r{n}" for n in (0, 2, 3, 4, 5)}


def test_a_run_is_forgotten_by_its_name(bank):
    bank.add(record("of a run", id="p", provenance={"run": "seven"}))
    assert bank.history.forget(run="seven") == ["p"]
    assert bank.history.forget(run="seven") == []
    with pytest.raises(UserError, match="say what"):
        bank.history.forget()


def test_an_id_with_a_nul_byte_is_forgotten_and_no_other(bank):
    odd = "r1\0more"  # SQLite's JSON ends a text at the NUL byte
    bank.add(record("query number 9", task="t9", id=odd))
    bank.history.forget(id=odd)
    assert bank.get(odd) is None and bank.get("r1").id == "r1"


def test_more_records_are_forgotten_than_fit_in_one_statement(bank):
    many = [record(f"query {n}", task="many", id=f"many{n}") for n in range(1_050)]
    bank.add_many(many)
    assert len(bank.history.forget(task="many")) == 1_050
    assert sorted(bank.ids() - {each.id for each in many}) == [f"r{n}" for n in range(6)]
    assert bank._store.rows("SELECT count(*) FROM undo_records WHERE task_id = $1", ("many",)) == [(0,)]


def test_what_only_the_journal_holds_is_forgotten_too(open_bank, tmp_path):  # noqa: F811
    bank = open_bank()
    bank.add(record("a secret word", task="t1", id="one"))
    before = bank.history.seq()
    bank.add(record("an heirloom", task="t2", id="heir", parents=("one",)))
    bank.history.rollback(before)
    assert set(bank.history.forget(id="one")) == {"heir", "one"}
    bank.history.rollback(before + 1)
    assert bank.ids() == set()
    bank.close()
    held = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"secret" not in held
    assert b"heirloom" not in held


def test_a_search_finds_what_comes_back_in_the_place_of_something_newer(bank):
    with bank.change("remove the last") as change:
        for number in (3, 4, 5):
            change.remove(f"r{number}")
    assert sorted(found(bank)[0]) == ["r0", "r1", "r2"]
    bank.add(record("query number 6", id="r6"))
    assert sorted(found(bank)[0]) == ["r0", "r1", "r2", "r6"]
    bank.history.rollback(1)
    assert sorted(found(bank)[0]) == [f"r{n}" for n in range(6)]
