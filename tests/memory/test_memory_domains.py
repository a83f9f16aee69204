"""Subjects within a bank: the loop names them (memory.domain, memory.tags), retrieval keeps to them."""

from __future__ import annotations

import pytest
from conftest import TOY, read_rows
from test_memory import lesson, record
from test_memory_policies import ALL, Angles

from core.errors import UserError
from core.memory.bank import MemoryBank
from core.memory.filter import Filter
from core.memory.open import read_records
from core.memory.policies.cosine import Cosine
from core.types import Task


@pytest.fixture
def bank_of(tmp_path):
    banks = []

    def build(records=(), policy=None, **changes):
        path = tmp_path / f"{len(banks)}.sqlite"
        banks.append(MemoryBank(path=str(path), embedder=Angles(), policy=policy or Cosine(top_k=9), **changes))
        banks[-1].add_many(list(records))
        return banks[-1]

    yield build
    for bank in banks:
        bank.close()


def made(id, **changes):
    return record("boil water @0", task=f"task {id}", id=id, items=(lesson("boil water"),), **changes)


def ids(hits):
    return {hit.record.id for hit in hits}


def test_domains_may_be_several_or_the_tasks_own(subtests, bank_of):
    bank = bank_of([made("k", domain="kitchen"), made("g", domain="garden"), made("none"), made("s", domain="same")])
    for policy in ALL:
        with subtests.test(policy.__name__):
            bank.policy = policy(top_k=9, domain=["kitchen", "garden"])
            assert ids(bank.retrieve("boil water @0", domain="sea")) == {"k", "g"}
            bank.policy = policy(top_k=9, domain="same")
            assert ids(bank.retrieve("boil water @0", domain="garden")) == {"g"}
            assert ids(bank.retrieve("boil water @0", domain="")) == {"none"}
            assert ids(bank.retrieve("boil water @0")) == {"k", "g", "none", "s"}
            assert ids(bank.retrieve("boil water @0", domain="garden", where=Filter(domain="kitchen"))) == {"k"}
            bank.policy = policy(top_k=9, domain=["same"])
            assert ids(bank.retrieve("boil water @0", domain="garden")) == {"s"}


def test_what_is_believed_in_too_little_is_left_out_and_what_was_never_rated_has_its_prior(subtests, bank_of):
    for policy in ALL:
        with subtests.test(policy.__name__):
            rated = [made(f"r{c}", confidence=c / 10) for c in range(11)]
            bank = bank_of([*rated, made("success"), made("failure", outcome="failure")])
            everything = {f"r{c}" for c in range(11)} | {"success", "failure"}
            for least, left in ((None, everything), (0.0, everything), (0.65, {"r7", "r8", "r9", "r10", "success"})):
                bank.policy = policy(top_k=99, min_confidence=least)
                assert ids(bank.retrieve("boil water @0")) == left
            bank.policy = policy(top_k=2, min_confidence=0.6)
            assert len(bank.retrieve("boil water @0")) == 2  # what is left out takes no place
            with bank.change("test") as change:
                change.update("r10", confidence=0.1)
            bank.policy = policy(top_k=99, min_confidence=1.0)
            assert bank.retrieve("boil water @0") == []


@pytest.mark.sqlite_file
def test_a_domain_and_a_confidence_that_make_no_sense_are_refused(bank_of):
    for wrong in ({"domain": []}, {"domain": [3]}, {"min_confidence": 1.5}):
        with pytest.raises(UserError, match="retrieval"):
            Cosine(**wrong)
    with pytest.raises(UserError, match=r"memory\.tags"):
        bank_of(tags="kitchen")


def test_a_bank_files_by_the_tasks_type_or_by_a_word(bank_of):
    task = Task(id="t", query="q", type="Heat Things")
    assert bank_of().filing(task) == (None, ())
    assert bank_of(domain="type", tags=["type", "Pilot", "pilot"]).filing(task) == (
        "Heat Things",
        ("heat-things", "pilot"),
    )
    assert bank_of(domain="maths", tags=["type"]).filing(Task(id="t", query="q")) == ("maths", ())


def test_a_run_keeps_to_the_tasks_own_domain(here, tmp_path):
    """Cross-checked without the filter: there, lessons of other families are retrieved too."""

    def crossings(run_dir):
        rows = read_rows(run_dir)
        family = {record["id"]: row["task_type"] for row in rows for record in row["records"]}
        pairs = [(row["task_type"], family[hit["id"]]) for row in rows for hit in row["retrieved"]]
        assert pairs
        return sum(one != other for one, other in pairs), rows

    top = "retrieval.top_k=3"
    free, plain = crossings(here(*TOY, top)[0])
    assert free and all("domain" not in record and "tags" not in record for row in plain for record in row["records"])
    keys = ("memory.domain=type", "memory.tags=[type,Pilot]", "retrieval.domain=same")
    crossed, rows = crossings(here(*TOY, top, *keys, run_dir=tmp_path / "same")[0])
    assert crossed == 0
    for row in rows:
        for kept in row["records"]:
            assert kept["domain"] == row["task_type"] and kept["tags"] == [row["task_type"].lower(), "pilot"]
    kept = read_records(tmp_path / "same" / "bank.sqlite", "default")
    assert {record.domain for record in kept} == {row["task_type"] for row in rows if row["records"]}


@pytest.mark.sqlite_file
def test_same_without_a_domain_is_refused(here):
    with pytest.raises(UserError, match=r"memory\.domain=type"):
        here(*TOY, "retrieval.domain=same")
