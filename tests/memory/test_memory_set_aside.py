"""What a round sets aside may lose its vectors: it has them again however it comes back, and whatever is cut off."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import numpy as np
import pytest
from memory_kit import Compass, item, open_life_bank, record, statuses

from core.errors import InfraError
from core.memory import by_hand, formats
from core.memory.__main__ import main
from core.memory.bank import MemoryBank
from core.memory.consolidation.deduplicate import Deduplicate
from core.memory.consolidation.merge import Merge, Voting
from core.memory.policies.cosine import Cosine


class Broken(Compass):
    """A provider that is gone."""

    def embed(self, texts):
        raise InfraError("gone")


class Dying(Compass):
    """The process ends while it embeds."""

    def embed(self, texts):
        raise KeyboardInterrupt


def life(path, embedder=None, **changes):
    policies = {"deduplicate": Deduplicate(title_distance=0, min_score=0.99), "merge": Merge(author=Voting())} | changes
    return open_life_bank(path, embedder=embedder, keep_vectors=False, **policies)


def gone_over(path):
    """A bank in which r0, r1, r2 were merged and copy was superseded by lone."""
    with closing(life(path)) as bank:
        for k in range(3):
            bank.add(record(f"r{k}", item(k * 10, f"word{k}"), query=f"@{k * 7} task {k}", tick=k))
        bank.add(record("lone", item(180), query="@100 one task", tick=3))
        bank.add(record("copy", item(180), query="@120 another task", tick=4))
        bank.consolidate.consolidate(bank)
    return path


@pytest.fixture
def path(tmp_path):
    return gone_over(tmp_path / "bank.sqlite")


def merge_of(bank):
    return next(r for r in bank.records() if r.parents)


def bare(bank):
    """The ids of the records without a vector."""
    return {r.id for r in bank.records() if not r.query_embedding}


def found(bank, query="@0", k=10):
    return {hit.record.id for hit in bank.retrieve(query, top_k=k)}


def test_a_round_drops_the_vectors_of_what_it_sets_aside_and_of_nothing_else(path):
    with closing(life(path)) as bank:
        assert bare(bank) == {"r0", "r1", "r2", "copy"}
        assert found(bank) == {merge_of(bank).id, "lone"}
        assert {hit.record.id for hit in bank.lexical("task", 10)} == {merge_of(bank).id, "lone"}
        assert bank.get("r1").items and bank.get("r1").status == "archived"


def test_a_bank_keeps_them_unless_it_is_told_otherwise(tmp_path):
    with closing(open_life_bank(tmp_path / "b.sqlite", deduplicate=Deduplicate())) as bank:
        bank.add(record("a", item(0)))
        bank.add(record("b", item(0)))
        bank.consolidate.consolidate(bank)
        assert statuses(bank) == {"a": "active", "b": "superseded"} and bare(bank) == set()


def unmerge(bank):
    by_hand.unmerge(bank, merge_of(bank).id)
    return {"r0", "r1", "r2", "lone"}


def activate(bank):
    by_hand.set_status(bank, "r1", "active")
    return {"r1", merge_of(bank).id, "lone"}


def quarantine_and_release(bank):
    by_hand.set_status(bank, "copy", "quarantined")
    by_hand.set_status(bank, "copy", "active")
    return {"copy", merge_of(bank).id, "lone"}


def roll_back(bank):
    bank.history.rollback(5)  # after the five adds
    return {"r0", "r1", "r2", "lone", "copy"}


def forget_the_merge(bank):
    bank.history.forget(id=merge_of(bank).id)
    return {"r0", "r1", "r2", "lone"}


def forget_the_keeper(bank):
    bank.history.forget(id="lone")
    return {"copy", merge_of(bank).id}


WAYS = [unmerge, activate, quarantine_and_release, roll_back, forget_the_merge, forget_the_keeper]


@pytest.mark.parametrize("key", ["query", "item"])
def test_what_comes_back_has_its_vectors_and_is_found(subtests, tmp_path, key):
    for way in WAYS:
        with subtests.test(way.__name__):
            path = gone_over(tmp_path / f"{way.__name__}.sqlite")
            with closing(life(path)) as bank:
                bank.key = key
                found(bank)  # the index exists already
                back = way(bank)
                assert found(bank) == back
                for r in bank.records(status="active"):
                    assert np.array_equal(np.float32(r.query_embedding), Compass().embed([r.original_query])[0])
            with closing(life(path)) as again:
                again.key = key
                assert found(again) == back


def test_without_an_embedder_it_comes_back_all_the_same_and_is_embedded_at_the_next_opening(subtests, tmp_path, caplog):
    for way in WAYS:
        with subtests.test(way.__name__):
            path = gone_over(tmp_path / f"{way.__name__}.sqlite")
            caplog.clear()
            with closing(life(path, Broken())) as bank:
                back = way(bank)
                assert {id for id, status in statuses(bank).items() if status == "active"} == back
                assert "wait for their vectors: gone" in caplog.text
            with closing(life(path, Broken())) as still:
                assert bare(still) & back
            with closing(life(path)) as bank:
                assert found(bank) == back and not bare(bank) & back


def test_killed_before_the_vectors_are_made_the_next_opening_makes_them(subtests, tmp_path):
    for way in WAYS:
        with subtests.test(way.__name__):
            path = gone_over(tmp_path / f"{way.__name__}.sqlite")
            bank = life(path, Dying())
            with pytest.raises(KeyboardInterrupt):
                way(bank)
            bank._store.close()
            with closing(life(path)) as bank:
                active = {id for id, status in statuses(bank).items() if status == "active"}
                assert found(bank) == active and not bare(bank) & active


def test_what_comes_back_while_others_are_embedded_is_not_forgotten(path):
    class Slow(Compass):
        def embed(self, texts):
            if not self.done:
                self.done = True
                by_hand.set_status(other, "r2", "active")
            return super().embed(texts)

    slow = Slow()
    slow.done = True
    with closing(life(path, slow)) as bank, closing(life(path, Broken())) as other:
        slow.done = False
        by_hand.set_status(bank, "r1", "active")
        assert bare(bank) == {"r0", "r2", "copy"}
    with closing(life(path)) as bank:
        assert bare(bank) == {"r0", "copy"}


def test_a_record_that_waits_for_its_vector_can_still_be_compared(path):
    with closing(life(path, Broken())) as bank:
        by_hand.set_status(bank, "copy", "active")
        bank.embedder = Compass()
        assert [hit.record.id for hit in bank.neighbours("copy", 1)] == ["lone"]
        bank.consolidate.consolidate(bank)
        assert bank.get("copy").status == "superseded"


@pytest.mark.parametrize("form", ["jsonl", "mcp"])
def test_an_export_and_its_import_leave_them_out(path, tmp_path, form):
    file = tmp_path / ("out.jsonl" if form == "jsonl" else "out")
    with closing(life(path)) as bank:
        formats.export(bank, file, form)
        wanted = statuses(bank) | ({} if form == "jsonl" else {"copy": "archived"})
    embedder = Compass()
    with closing(life(tmp_path / "other.sqlite", embedder)) as other:
        formats.load(other, file, form)
        assert statuses(other) == wanted and bare(other) == {"r0", "r1", "r2", "copy"}
        assert embedder.texts == []
        by_hand.set_status(other, "r0", "active")
        assert "r0" in found(other)


def test_the_doctor_leaves_them_out_and_a_rebuilt_bank_is_whole(path):
    with closing(life(path)) as bank:
        assert next(bank.verify_indexes()) == "6 records, each with its vector, but for 4 that are set aside"
        assert bare(bank) == {"r0", "r1", "r2", "copy"}
    path.write_bytes(b"damaged" * 1000)
    with closing(life(path)) as bank:
        assert found(bank) == {merge_of(bank).id, "lone"}
        assert found(bank) != unmerge(bank) == found(bank)


@pytest.mark.sqlite_file
def test_compact_gives_the_room_back_and_changes_nothing(tmp_path, capsys):
    path = tmp_path / "bank.sqlite"
    embedder = Wide()
    with closing(life(path, embedder, merge=None)) as bank:
        bank.add_many([record(f"r{k}", item(0), query=f"@{k % 360} task {k}", tick=k) for k in range(300)])
        before = (bank.records(), found(bank, "@0"))
        bank.consolidate.consolidate(bank)
        state = (bank.records(), bank.links(), bank.history.journal())
        there, left = bank.compact()
        assert there - left > 250 * 4 * Wide.dim
        assert (bank.records(), bank.links(), bank.history.journal()) == state
        bank.history.rollback(1)
        assert (bank.records(), found(bank, "@0")) == before
    before = path.stat().st_size
    assert main(["compact", str(path)]) == 0
    assert capsys.readouterr().out == f"{before} bytes before, {path.stat().st_size} after\n"
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


class Wide(Compass):
    """As many numbers as real embedders give."""

    dim = 384

    def embed(self, texts):
        return np.pad(super().embed(texts), ((0, 0), (0, self.dim - 2)))


def test_a_bank_that_is_only_read_stays_as_it_is(path):
    with closing(life(path, Broken())) as bank:
        by_hand.set_status(bank, "r1", "active")
    reader = MemoryBank(path=str(path), embedder=Compass(), policy=Cosine(), read_only=True)
    with closing(reader):
        assert "r1" in bare(reader) and "r1" not in found(reader)
