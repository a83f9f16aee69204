"""The index: filters inside the search, the graph, the cache file."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from memory_kit import on_both_stores
from test_memory import open_bank, record  # noqa: F401 - open_bank is a fixture

from core.errors import UserError
from core.memory.filter import STATUSES, Filter
from core.memory.sqlite import index as index_module
from core.memory.sqlite import search as searcher
from core.memory.sqlite import vectors as vectors_module
from core.memory.sqlite.index import VectorIndex
from core.memory.sqlite.vectors import Flat

SIZE, DIM = 1200, 24
TENANTS = ("big", "big", "big", "big", "big", "big", "big", "big", "big", "small")


def vectors(count, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((count, DIM)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def rows(found, start=1):
    """As the store gives them: tenants, outcomes and domains mixed."""
    return [
        (
            start + n,
            -1,
            TENANTS[n % 10],
            "active" if n % 7 else "archived",
            "success" if n % 2 else "failure",
            f"d{n % 3}",
            '["even"]' if n % 4 == 0 else "[]",
            start + n,
            row.tobytes(),
        )
        for n, row in enumerate(found)
    ]


FILTERS = [
    Filter(namespace="big"),
    Filter(namespace="small"),
    Filter(namespace="small", outcome="failure", domain="d1"),
    Filter(namespace="big", tags=("even",)),
    Filter(namespace="big", statuses=STATUSES),
    Filter(namespace="small", statuses=("archived",)),
    Filter(namespace="nobody"),
]


def passes(where, namespace, status, outcome, domain, even):
    """Whether one of FILTERS lets an entry through, written down once more by hand."""
    return (
        namespace == where.namespace
        and status in where.statuses
        and where.outcome in (None, outcome)
        and where.domain in (None, domain)
        and (even or not where.tags)
    )


@pytest.mark.parametrize("few", [0, 50, 5_000])
def test_a_filtered_search_equals_a_plain_sort_of_what_passes(monkeypatch, few):
    monkeypatch.setattr(vectors_module, "FEW", few)
    found = vectors(SIZE)
    found[SIZE // 2 :] = found[: SIZE // 2]  # of equals the oldest comes first
    made = rows(found)
    index = VectorIndex(DIM)
    for start in range(0, SIZE, 100):
        index.add(made[start : start + 100])
    index.mark_deleted({5, 6, 7})
    for query in vectors(5, seed=1):
        for where in FILTERS:
            passing = [
                (round(float(found[n] @ query), 6), -made[n][0])
                for n in range(SIZE)
                if made[n][0] not in (5, 6, 7) and passes(where, *made[n][2:6], "even" in made[n][6])
            ]
            best = [-rowid for _, rowid in sorted(passing, reverse=True)[:9]]
            assert [hit[0] for hit in index.search(query, 9, where)] == best


def test_the_graph_finds_what_an_exact_search_finds(monkeypatch):
    monkeypatch.setattr(index_module, "GRAPH_FROM", 500)
    monkeypatch.setattr(index_module, "TAIL", 200)
    monkeypatch.setattr(vectors_module, "FEW", 30)
    made = rows(vectors(SIZE))
    graph, exact = VectorIndex(DIM, graph=True), VectorIndex(DIM)
    for start in range(0, SIZE, 100):
        graph.add(made[start : start + 100])
    exact.add(made)
    assert type(graph.main).__name__ == "Graph"
    for where in FILTERS:
        for query in vectors(20, seed=1):
            one, two = graph.search(query, 5, where), exact.search(query, 5, where)
            assert len(one) == len(two)
            assert len({h[0] for h in one} & {h[0] for h in two}) >= 0.8 * len(two)


def test_a_vector_has_one_score_wherever_it_stands():
    found, query = vectors(301), vectors(1, seed=1)[0]
    alone, all_at_once = Flat(DIM), Flat(DIM)
    all_at_once.add(found)
    scores, places = all_at_once.nearest(query, 301)
    alone.add(found[places[7]][None])
    for n in (1, 2, 3):  # places of another alignment
        alone.add(found[:n])
        alone.add(found[places[7]][None])
    same = alone.nearest(query, len(alone))[0]
    assert (same == scores[7]).sum() >= 4


def test_a_graph_without_faiss_is_refused_in_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(UserError, match=r"reasoningbank-harness\[hnsw\].* or index=flat"):
        VectorIndex(DIM, graph=True)
    VectorIndex(DIM).add(rows(vectors(3)))


@on_both_stores
def test_a_small_tenant_of_a_big_bank_gets_its_k(open_bank):  # noqa: F811
    bank, small = open_bank(), open_bank(namespace="small")
    bank.add_many([record("the same words", task=f"t{n}", id=f"r{n}") for n in range(500)])
    small.add_many([record(f"other things {n}", task=f"s{n}", id=f"s{n}") for n in range(5)])
    assert {hit.record.id for hit in small.retrieve("the same words", 5)} == {f"s{n}" for n in range(5)}
    assert {hit.record.id for hit in small.lexical("things words", 9)} == {f"s{n}" for n in range(5)}
    assert all(hit.record.namespace == "default" for hit in bank.nearest("other things 1", 600))
    assert len(bank.nearest("other things 1", 9, where=Filter(namespace="small"))) == 5


@pytest.fixture
def cached(open_bank, monkeypatch):  # noqa: F811
    monkeypatch.setattr(index_module, "WORTH", 50)
    bank = open_bank()
    bank.add_many([record(f"query number {n}", task=f"t{n}", id=f"r{n}") for n in range(200)])
    bank.retrieve("query number 7")
    bank.close()
    return open_bank


def test_the_index_is_read_from_its_file_and_follows_what_came_after(cached, monkeypatch, tmp_path):
    assert (tmp_path / "bank.sqlite.index").exists()
    monkeypatch.setattr(index_module, "WORTH", 10**9)
    bank = cached()
    bank.add(record("later thing", id="later"))
    with bank.change("edit") as change:
        change.update("r7", status="archived")
        change.remove("r8")
    bank.close()
    bank = cached()
    read = []
    vectors_of = bank._search._entries
    monkeypatch.setattr(bank._search, "_entries", lambda *a: read.append(a) or vectors_of(*a))
    assert bank.retrieve("later thing")[0].record.id == "later"
    assert not {"r7", "r8"} & {hit.record.id for hit in bank.nearest("query number 7", 300)}
    assert len(bank.nearest("query number 7", 300)) == 199
    assert min(after for after, _, _ in read) >= 6  # nothing but what changed was read again


def test_a_damaged_index_file_is_made_anew_and_said(cached, tmp_path, caplog):
    path = tmp_path / "bank.sqlite.index"
    whole = path.read_bytes()
    flipped = whole[:-500] + bytes([whole[-500] ^ 255]) + whole[-499:]
    for spoilt in (whole[:-100], flipped, b"", b"not an index\n" * 99):
        path.write_bytes(spoilt)
        for said in (True, False):
            caplog.clear()
            bank = cached()
            assert bank.retrieve("query number 42")[0].record.id == "r42"
            assert ("is not used" in caplog.text) is said
            bank.close()


def test_the_index_file_of_another_bank_is_not_believed(cached, tmp_path):
    bank = cached("other.sqlite")
    bank.add_many([record(f"another thing {n}", task=f"t{n}", id=f"x{n}", created_at="2020") for n in range(200)])
    with bank._store._db as db:
        db.execute("UPDATE journal SET at = '2020'")
    bank.close()
    (tmp_path / "bank.sqlite.index").rename(tmp_path / "other.sqlite.index")
    assert cached("other.sqlite").retrieve("another thing 5")[0].record.id == "x5"


def test_a_frozen_bank_reads_the_index_file_and_writes_none(cached, tmp_path):
    (tmp_path / "bank.sqlite.index").unlink()
    before = {*tmp_path.iterdir()}
    bank = cached(read_only=True)
    assert bank.retrieve("query number 42")[0].record.id == "r42"
    bank.close()
    assert {*tmp_path.iterdir()} == before


def test_many_hidden_entries_are_cleared_out(open_bank, monkeypatch):  # noqa: F811
    monkeypatch.setattr(index_module, "WORTH", 50)
    bank = open_bank()
    bank.add_many([record(f"query number {n}", task=f"t{n}", id=f"r{n}") for n in range(100)])
    bank.retrieve("query")
    with bank.change("remove") as change:
        for number in range(searcher.MOST_DELETED and 40):
            change.remove(f"r{number}")
    assert len(bank.nearest("query number 3", 100)) == 60
    assert len(bank._search._indexes["query"].index) == 60


@pytest.mark.parametrize("at_once", [True, False])
def test_no_hit_is_lost_when_more_records_are_found_than_are_kept_in_memory(open_bank, monkeypatch, at_once):  # noqa: F811
    if not at_once:
        monkeypatch.setattr(searcher, "WHOLE", 0, raising=False)
    monkeypatch.setattr(searcher, "KEPT", 3, raising=False)
    bank = open_bank()
    bank.add_many([record(f"query number {n}", task=f"t{n}", id=f"r{n}") for n in range(12)])
    for k in (2, 4, 12, 1, 5, 12):
        for number in (3, 7, 3):
            found = [hit.record.id for hit in bank.nearest(f"query number {number}", k)]
            assert len(set(found)) == k and found[0] == f"r{number}"


def test_filters_that_clients_invent_do_not_pile_up(open_bank, monkeypatch):  # noqa: F811
    monkeypatch.setattr(index_module, "MASKS", 4, raising=False)
    bank = open_bank()
    bank.add(record("query", id="r"))
    for number in range(20):
        assert bank.nearest("query", 1, where=Filter(domain=f"invented {number}")) == []
    assert len(bank._search._indexes["query"].index._masks) <= 4
