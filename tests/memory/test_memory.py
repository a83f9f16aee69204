"""The bank: real SQLite, real vectors."""

from __future__ import annotations

import sqlite3
from contextlib import ExitStack, closing

import numpy as np
import pytest

from core.errors import StopRun, UserError
from core.memory.bank import MemoryBank
from core.memory.policies.cosine import Cosine
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
    with ExitStack() as banks:

        def build(name="bank.sqlite", **changes):
            policy = Cosine(**{k: changes.pop(k) for k in ("top_k", "min_score") if k in changes})
            values = {"path": str(tmp_path / name), "embedder": HashingEmbedder(), "policy": policy}
            return banks.enter_context(closing(MemoryBank(**values | changes)))

        yield build


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


def test_half_a_surrogate_pair_does_not_stop_a_record(open_bank):
    bank = open_bank()
    broken = "an emoji \ud83d cut in two"
    bank.add(record(broken, items=(Lesson(title=broken, description=broken, content=broken),)))
    assert "cut in two" in bank.retrieve("an emoji cut")[0].record.items[0].title


def test_a_task_never_retrieves_itself_unless_allowed(open_bank):
    bank = open_bank()
    bank.add(record("same words here", task="me"))
    bank.add(record("quite another matter", task="other"))
    assert bank.retrieve("same words here", exclude_task="me")[0].record.task_id == "other"
    assert open_bank(allow_self=True).retrieve("same words here", exclude_task="me")[0].record.task_id == "me"
    assert bank.of("nobody").retrieve("same words here") == []


@pytest.mark.sqlite_file
def test_retrieval_writes_nothing(open_bank, tmp_path):
    bank = open_bank()
    bank.add(record("a b c"))
    before = bank._store._db.total_changes
    for _ in range(3):
        bank.retrieve("a new query that nobody stored")
    assert bank._store._db.total_changes == before
    assert len(bank) == 1


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
def test_a_frozen_bank_refuses_what_writes_without_a_journal_entry_too(open_bank):
    open_bank().add(record("a"))
    bank = open_bank(read_only=True)
    for write in (
        bank.compact,
        bank.reembed,
        lambda: list(bank.verify_indexes()),
        lambda: bank.jobs().put("job", "default", {}),
    ):
        with pytest.raises(UserError, match="reading only"):
            write()


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
def test_every_text_has_a_unit_vector():
    rows = HashingEmbedder().embed(["", "   ", "\x00", "!!!", "word " * 5000])
    assert np.allclose(np.linalg.norm(rows, axis=1), 1.0)
