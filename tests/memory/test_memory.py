"""The bank: real SQLite, real vectors."""

from __future__ import annotations

import sqlite3

import numpy as np
import pytest

from core.errors import StopRun, UserError
from core.memory.bank import MemoryBank
from core.memory.filter import Filter
from core.memory.policies.cosine import Cosine
from core.memory.sqlite.index import VectorIndex
from core.models.cache import CachedEmbedder
from core.models.embedding import HashingEmbedder
from core.types import Lesson, MemoryRecord


def lesson(text="look twice"):
    return Lesson(title=f"Title {text}", description=f"About {text}", content=f"Always {text}. It helps.")


def record(query, task="t", **changes):
    values = {
        "id": f"{task}:{query}",
        "original_query": query,
        "items": (lesson(), lesson("think")),
        "source_trajectory_id": "traj",
        "score": 1.0,
        "outcome": "success",
        "label_source": "llm",
        "task_id": task,
    }
    return MemoryRecord(**values | changes)


@pytest.fixture
def open_bank(tmp_path):
    banks = []

    def build(name="bank.sqlite", **changes):
        policy = Cosine(**{k: changes.pop(k) for k in ("top_k", "min_score") if k in changes})
        values = {"path": str(tmp_path / name), "embedder": HashingEmbedder(), "policy": policy}
        banks.append(MemoryBank(**values | changes))
        return banks[-1]

    yield build
    for bank in banks:
        bank.close()


def test_the_nearest_query_brings_its_whole_record(open_bank):
    bank = open_bank()
    for query in ("open the red door", "boil some water", "add two numbers"):
        bank.add(record(query, task=query))
    [hit] = bank.retrieve("boil the water")
    assert hit.record.original_query == "boil some water"
    assert hit.record.items == (lesson(), lesson("think"))
    assert 0 < hit.score < 1
    assert [h.record.original_query for h in bank.retrieve("open the red door", top_k=3)][0] == "open the red door"
    assert bank.retrieve("open the red door")[0].score == 1.0


def test_a_record_comes_back_as_it_went_in(open_bank):
    text = 'LaTeX \\frac{1}{2} "quotes" \n new line \t tab ünï 漢字'
    made = record(
        text, items=(Lesson(title=text, description=text, content=text),), score=0.25, outcome="failure", tick=7
    )
    bank = open_bank()
    bank.add(made)
    [kept] = open_bank().records()
    vector = np.array(kept.query_embedding, dtype=np.float32)
    assert np.allclose(vector, HashingEmbedder().embed([text])[0])
    assert kept.created_at
    assert (kept.items, kept.original_query, kept.score, kept.outcome, kept.tick) == (
        made.items,
        text,
        0.25,
        "failure",
        7,
    )


def test_half_a_surrogate_pair_does_not_stop_a_record(open_bank):
    bank = open_bank()
    broken = "an emoji \ud83d cut in two"
    bank.add(record(broken, items=(Lesson(title=broken, description=broken, content=broken),)))
    assert "cut in two" in bank.retrieve("an emoji cut")[0].record.items[0].title


def test_adding_the_same_record_again_changes_nothing(open_bank):
    bank = open_bank()
    assert [bank.add(record("a")), bank.add(record("a"))] == [True, False]
    assert len(bank) == 1


def test_a_task_never_retrieves_itself_unless_allowed(open_bank):
    bank = open_bank()
    bank.add(record("same words here", task="me"))
    bank.add(record("quite another matter", task="other"))
    assert bank.retrieve("same words here", exclude_task="me")[0].record.task_id == "other"
    assert open_bank(allow_self=True).retrieve("same words here", exclude_task="me")[0].record.task_id == "me"


def test_only_own_records_leave_nothing_to_retrieve(open_bank):
    bank = open_bank()
    for number in range(20):
        bank.add(record(f"try {number}", task="me", id=str(number)))
    assert bank.retrieve("try 3", exclude_task="me") == []


def test_ties_go_to_the_oldest(open_bank):
    bank = open_bank()
    for number in range(50):
        bank.add(record("the very same query", task=str(number), id=str(number)))
    assert [h.record.task_id for h in bank.retrieve("the very same query", top_k=3)] == ["0", "1", "2"]
    assert [h.record.task_id for h in bank.retrieve("the very same query", top_k=2, exclude_task="0")] == ["1", "2"]


def test_a_threshold_may_leave_nothing(open_bank):
    bank = open_bank(min_score=0.9)
    bank.add(record("boil some water"))
    assert bank.retrieve("open the door") == []
    assert len(bank.retrieve("boil some water")) == 1


@pytest.mark.sqlite_file
def test_retrieval_writes_nothing(open_bank, tmp_path):
    bank = open_bank()
    bank.add(record("a b c"))
    before = bank._store._db.total_changes
    for _ in range(3):
        bank.retrieve("a new query that nobody stored")
    assert bank._store._db.total_changes == before
    assert len(bank) == 1


def test_namespaces_do_not_see_each_other(open_bank):
    one, two = open_bank(namespace="one"), open_bank(namespace="two")
    one.add(record("shared words", task="1"))
    assert two.retrieve("shared words") == []
    two.add(record("shared words", task="2", id="2"))
    assert [h.record.task_id for h in one.retrieve("shared words", top_k=5)] == ["1"]


@pytest.mark.sqlite_file
def test_the_index_follows_what_others_write_and_remove(open_bank, tmp_path):
    reader, writer = open_bank(), open_bank()
    writer.add(record("first thing", task="1"))
    assert reader.retrieve("first thing")[0].record.task_id == "1"
    writer.add(record("second thing", task="2"))
    assert reader.retrieve("second thing")[0].record.task_id == "2"
    with sqlite3.connect(tmp_path / "bank.sqlite") as db:
        db.execute("DELETE FROM records WHERE task_id = '1'")
    assert [h.record.task_id for h in reader.retrieve("first thing", top_k=5)] == ["2"]


@pytest.mark.sqlite_file
def test_a_record_added_while_the_index_catches_up_is_indexed_once(open_bank, monkeypatch):
    reader, writer = open_bank(), open_bank()
    writer.add(record("first thing", task="1"))
    vectors = reader._search._entries

    def slow(*args, **kwargs):
        monkeypatch.setattr(reader._search, "_entries", vectors)
        writer.add(record("second thing", task="2"))  # lands between the look at the state and the reading
        return vectors(*args, **kwargs)

    monkeypatch.setattr(reader._search, "_entries", slow)
    reader.retrieve("second thing")
    assert [h.record.task_id for h in reader.retrieve("second thing", top_k=5)] == ["2", "1"]


def test_a_bank_of_another_embedder_is_refused_by_name(open_bank):
    open_bank().add(record("a"))
    with pytest.raises(UserError, match="'hashing-256'.*'hashing-64'"):
        open_bank(embedder=HashingEmbedder(dim=64))


@pytest.mark.sqlite_file
def test_a_file_that_is_no_bank_is_refused(open_bank, tmp_path):
    (tmp_path / "notes.txt").write_text("these are my notes, not a database " * 100)
    with pytest.raises(UserError, match="not a memory bank"):
        open_bank("notes.txt")
    assert (tmp_path / "notes.txt").read_text().startswith("these are my notes")


def test_a_frozen_bank_refuses_to_add_and_must_exist(open_bank):
    with pytest.raises(UserError, match="does not exist"):
        open_bank("none.sqlite", read_only=True)
    open_bank().add(record("a"))
    with pytest.raises(UserError, match="reading only"):
        open_bank(read_only=True).add(record("b"))


@pytest.mark.sqlite_file
@pytest.mark.parametrize(
    "write",
    [
        lambda bank: bank.compact(),
        lambda bank: bank.reembed(),
        lambda bank: list(bank.verify_indexes()),
        lambda bank: bank.jobs().put("job", "default", {}),
    ],
    ids=["compact", "reembed", "verify", "queue"],
)
def test_a_frozen_bank_refuses_what_writes_without_a_journal_entry_too(open_bank, write):
    open_bank().add(record("a"))
    with pytest.raises(UserError, match="reading only"):
        write(open_bank(read_only=True))


def test_a_query_without_its_attempt_makes_no_record(open_bank):
    bank = open_bank()
    with pytest.raises(UserError, match="give its trajectory"):
        bank.add("open the red door", items=(lesson(),))
    assert len(bank) == 0


@pytest.mark.sqlite_file
def test_a_write_the_disk_refuses_is_a_stop_and_leaves_the_bank_whole(open_bank):
    bank = open_bank()
    bank.add(record("a"))
    bank._store._db.execute("PRAGMA max_page_count = 1")
    with pytest.raises(StopRun, match="cannot be written"):
        for number in range(2000):
            bank.add(record(f"filler {number}" * 50, id=str(number)))
    assert open_bank().retrieve("a")[0].record.original_query == "a"


@pytest.mark.sqlite_file
@pytest.mark.parametrize("top_k", [-1, "many", 1.5])
def test_a_senseless_top_k_is_refused(top_k):
    with pytest.raises(UserError, match="retrieval.top_k"):
        Cosine(top_k=top_k)


@pytest.mark.sqlite_file
def test_search_equals_a_plain_sort(tmp_path):
    rng = np.random.default_rng(3)
    vectors = rng.integers(-2, 3, size=(300, 16)).astype(np.float32)  # small integers: many exact ties
    index = VectorIndex(16)
    attributes = ("default", "active", "success", "", "[]")
    index.add([(i + 1, -1, *attributes, i + 1, row.tobytes()) for i, row in enumerate(vectors)])
    for query in vectors[:40]:
        exclude = set(rng.integers(1, 301, size=20).tolist())
        scores = [(round(float(s), 6), -i) for i, s in enumerate(vectors @ query, 1) if i not in exclude]
        expected = [(-i, -1, s) for s, i in sorted(scores, reverse=True)[:7]]
        assert index.search(query, 7, Filter(namespace="default"), exclude) == expected


@pytest.mark.sqlite_file
def test_the_embedding_cache_embeds_a_text_once_and_across_runs(tmp_path):
    class Counting(HashingEmbedder):
        calls = 0

        def measure(self, texts):
            Counting.calls += len(texts)
            return super().measure(texts)

    path = str(tmp_path / "cache.sqlite")
    first = CachedEmbedder(inner=Counting(), path=path)
    one = first.embed(["a b", "c", "a b"])
    first.close()
    again = CachedEmbedder(inner=Counting(), path=path)
    two = again.embed(["a b", "c"])
    again.close()
    assert Counting.calls == 2
    assert one.dtype == np.float32
    assert np.array_equal(one[:2], two)
    assert np.array_equal(one[0], one[2])


@pytest.mark.sqlite_file
@pytest.mark.parametrize("text", ["", "   ", "\x00", "!!!", "word " * 5000])
def test_every_text_has_a_unit_vector(text):
    [row] = HashingEmbedder().embed([text])
    assert np.isclose(np.linalg.norm(row), 1.0)
