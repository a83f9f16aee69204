"""What a round sets aside keeps its keys, and is found by them however it comes back."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import numpy as np
import pytest
from memory_kit import Compass, item, open_life_bank, record

from core.errors import InfraError
from core.memory import by_hand
from core.memory.__main__ import main
from core.memory.consolidation.deduplicate import Deduplicate
from core.memory.consolidation.merge import Merge, Voting


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
    return open_life_bank(path, embedder=embedder, **policies)


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
                bank.reembed(key)
                found(bank)  # the index exists already
                back = way(bank)
                assert found(bank) == back and not bare(bank)
                for r in bank.records(status="active"):
                    assert np.array_equal(np.float32(r.query_embedding), Compass().embed([r.original_query])[0])
            with closing(life(path)) as again:
                again.key = key
                assert found(again) == back


@pytest.mark.parametrize("how", [Broken, Dying])
def test_what_comes_back_without_keys_is_embedded_at_the_next_opening(tmp_path, how, caplog):
    """A rollback brings back the texts of lessons, whose keys went when the texts were changed."""
    path = tmp_path / "bank.sqlite"
    with closing(life(path)) as bank:
        bank.reembed("item")
        bank.add(record("r", item(10, "look here")))
        with bank.change("reword") as change:
            change.update("r", items=(item(100, "look there"),))
        assert bank.nearest("@100", 1, key="item")[0].score == 1.0
    bank = life(path, how())
    if how is Broken:
        bank.history.rollback(1)
        assert "wait for their vectors: gone" in caplog.text
    else:
        with pytest.raises(KeyboardInterrupt):
            bank.history.rollback(1)
    bank._store.close()
    with closing(life(path)) as bank:
        assert bank.nearest("@10", 1, key="item")[0].score == 1.0
        assert bank.nearest("@100", 1, key="item")[0].score < 1.0


def test_the_doctor_finds_every_key_and_a_rebuilt_bank_is_whole(path):
    with closing(life(path)) as bank:
        assert next(bank.verify_indexes()) == "6 records, each with its vectors"
    path.write_bytes(b"damaged" * 1000)
    with closing(life(path)) as bank:
        assert not bare(bank) and found(bank) == {merge_of(bank).id, "lone"}
        assert bank.retrieve("@120 another task", 1)[0].score == 1.0
        assert found(bank) != unmerge(bank) == found(bank)


@pytest.mark.sqlite_file
def test_compact_gives_the_room_back_and_changes_nothing(tmp_path, capsys):
    path = tmp_path / "bank.sqlite"
    embedder = Wide()
    with closing(life(path, embedder, merge=None)) as bank:
        bank.add_many([record(f"r{k}", item(0), query=f"@{k % 360} task {k}", tick=k) for k in range(300)])
        with bank.change("erase") as change:
            bank.erase(change, tuple(f"r{k}" for k in range(250)))
        state = (bank.records(), bank.links(), bank.history.journal(), found(bank, "@0"))
        there, left = bank.compact()
        assert there - left > 250 * 4 * Wide.dim
        assert (bank.records(), bank.links(), bank.history.journal(), found(bank, "@0")) == state
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
