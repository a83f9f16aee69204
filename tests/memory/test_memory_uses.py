"""How often a lesson was shown: counted by a server when it shows it, without keeping the retrieval."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager

import forkserver
import pytest
from memory_kit import Compass, item, on_both_stores, open_life_bank, record

from core.errors import UserError
from core.memory.bank import MemoryBank
from core.memory.consolidation.confidence import Confidence
from core.memory.consolidation.consolidator import Consolidator
from core.memory.consolidation.merge import Merge, Voting
from core.memory.filter import Filter
from core.memory.policies.cosine import Cosine
from core.memory.records import EpisodeFeedback
from core.memory.store.contract import Busy

LOCK = """
import sys
from pathlib import Path
from core.memory.sqlite.journal_file import JournalFile
with JournalFile(Path(sys.argv[1])).turn():
    print("locked", flush=True)
    sys.stdin.read()
"""


def plain(path, **changes):
    return MemoryBank(**{"path": str(path), "embedder": Compass(), "policy": Cosine()} | changes)


@pytest.fixture
def bank(tmp_path):
    with closing(plain(tmp_path / "bank.sqlite")) as bank:
        for k in range(3):
            bank.add(record(f"r{k}", item(k * 10), tick=k))
        yield bank


def counters(bank, id="r0"):
    kept = bank.get(id)
    return kept.n_used, kept.n_used_success, kept.last_used


@on_both_stores
def test_a_showing_is_counted_once_in_one_change_that_can_be_undone(bank):
    before, records = bank.history.seq(), bank.records()
    bank.count_shown(["r0", "nobody", "r1", "r0"])
    assert bank.history.seq() == before + 1 and bank.history.journal()[-1]["reason"] == "shown"
    assert (counters(bank), counters(bank, "r1"), counters(bank, "r2")) == ((1, 0, 2), (1, 0, 2), (0, 0, None))
    assert bank.get("r0").confidence is None
    bank.history.rollback(before)
    assert bank.records() == records


@on_both_stores
def test_many_are_counted_at_once_each_as_often_as_it_was_shown(bank):
    bank.add(record("r1\0more", item(40)))  # no other id, though SQLite's JSON would end it at the NUL byte
    before = bank.history.seq()
    bank.count_shown({"r2": 2, "r1\0more": 5, "nobody": 1, "r0": 1})
    assert bank.history.seq() == before + 1
    assert [counters(bank, id)[0] for id in ("r0", "r1", "r2", "r1\0more")] == [1, 0, 2, 5]


def test_nothing_but_counts_is_set_by_counting(bank):
    with pytest.raises(UserError, match="status"), bank.change("mistake") as change:
        change.update_usage(["r0"], lambda id, record: {"status": "archived"})
    assert bank.get("r0").status == "active"


def test_last_used_is_by_the_banks_clock(tmp_path):
    with closing(plain(tmp_path / "b.sqlite", clock="wall")) as bank:
        bank.add(record("r0", item(0)))
        bank.add(record("r1", item(10)))
        bank.count_shown(["r0", "r1"])
        assert abs(bank.get("r0").last_used - time.time()) < 60
        assert bank.get("r0").last_used == bank.get("r1").last_used  # one change, one time


def test_what_counts_nothing(bank):
    before = bank.history.seq()
    bank.count_shown([])
    bank.count_shown(iter(["nobody"]))
    bank.of("else").count_shown(["r0"])  # only the tenant's own are counted
    with closing(plain(bank.path, read_only=True)) as frozen:
        frozen.count_shown(["r0"])
        assert counters(frozen) == counters(bank) == (0, 0, None)
    assert bank.history.seq() == before


def test_a_paper_bank_writes_nothing_by_itself(bank):
    before = bank.history.seq()
    bank.retrieve("@0", top_k=3)
    bank.learn_from(EpisodeFeedback(index=0, label="success", used=("r0",), new=(("r1", None),)))
    assert (bank.history.seq(), counters(bank)) == (before, (0, 0, None))


@pytest.mark.parametrize("life", [None, Consolidator(), Consolidator(confidence=Confidence())])
def test_a_use_that_was_counted_when_shown_is_not_counted_again(subtests, bank, life):
    bank.consolidate = life
    for id, label, successes in (("r0", "success", 1), ("r1", "failure", 0), ("r2", None, 0)):
        with subtests.test(label=label):
            bank.count_shown([id])
            bank.learn_from(EpisodeFeedback(label=label, used=(id,), counted=True))
            assert counters(bank, id)[:2] == (1, successes)


def test_a_success_with_what_nobody_saw_being_shown_counts_as_a_showing(bank):
    for label in ("success", "success", "failure"):
        bank.learn_from(EpisodeFeedback(label=label, used=("r0",), counted=True))
    assert counters(bank)[:2] == (2, 2)


def test_shown_and_judged_apart_is_what_both_at_once_is(tmp_path):
    kept = []
    for counted in (True, False):
        with closing(open_life_bank(tmp_path / f"{counted}.sqlite", confidence=Confidence())) as bank:
            bank.add(record("a", item(0), confidence=0.8))
            bank.add(record("now", item(90), tick=45))
            if counted:
                bank.count_shown(["a"])
                assert bank.get("a").confidence == pytest.approx(0.8 / 2**0.5)
            bank.learn_from(EpisodeFeedback(label="success", used=("a",), counted=counted))
            made = bank.get("a")
            kept.append((made.n_used, made.n_used_success, made.last_used, made.confidence))
    assert kept[0] == kept[1] and kept[0][:3] == (1, 1, 45)


def test_voting_elects_the_lesson_that_was_shown_most(tmp_path):
    with closing(open_life_bank(tmp_path / "b.sqlite", merge=Merge(author=Voting()))) as bank:
        for k in range(3):
            bank.add(record(f"r{k}", item(k * 10, f"word{k}"), tick=k))
        for _ in range(2):
            bank.count_shown(["r1"])
            bank.learn_from(EpisodeFeedback(label="success", used=("r1",), counted=True))
        bank.consolidate.consolidate(bank)
        merged = bank.records()[-1]
        assert merged.items == bank.get("r1").items and merged.n_used == 2


# While others write


def shown_meanwhile(bank, caplog):
    """A retrieval while the bank is locked: it does not wait, nothing is counted, and one warning says so."""
    caplog.clear()
    began = time.monotonic()
    hits = bank.retrieve("@0", top_k=2)
    bank.count_shown(hit.record.id for hit in hits)
    assert time.monotonic() - began < 25  # the lock is held for 30 s or more
    assert len(hits) == 2 and counters(bank) == (0, 0, None)
    [warning] = caplog.records
    assert "not counted: others are writing" in warning.message


@contextmanager
def another_program(bank):
    with closing(sqlite3.connect(bank.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


@contextmanager
def another_process(bank):
    line = [sys.executable, "-c", LOCK, bank.path]
    with forkserver.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"locked\n"
        yield
        other.stdin.close()


@contextmanager
def another_thread(bank):
    inside, over = threading.Event(), threading.Event()

    def write():
        with bank.change("slow"):
            inside.set()
            assert over.wait(30)

    other = threading.Thread(target=write)
    other.start()
    assert inside.wait(30)
    yield
    over.set()
    other.join()


@pytest.mark.parametrize("writer", [another_program, another_process, another_thread])
def test_a_writer_is_not_waited_for(bank, caplog, writer):
    with writer(bank):
        shown_meanwhile(bank, caplog)
    usual_again(bank)


@on_both_stores
def test_a_short_writer_is_waited_for(bank):
    def write():
        with bank.change("short") as change:
            inside.set()
            time.sleep(0.05)
            change.update("r1", n_helpful=1)

    inside = threading.Event()
    other = threading.Thread(target=write)
    other.start()
    assert inside.wait(30)
    bank.count_shown(["r0"])
    other.join()
    assert counters(bank)[0] == 1


def usual_again(bank):
    """Afterwards writers wait, and wait for the disk, as before."""
    db = bank._store._db
    assert db.execute("PRAGMA busy_timeout").fetchone() == (60_000,)
    assert db.execute("PRAGMA synchronous").fetchone() == (2,)
    bank.count_shown(["r0"])
    assert db.execute("PRAGMA synchronous").fetchone() == (2,)
    assert counters(bank)[0] == 1


def test_a_change_may_be_given_its_patience(bank):
    with closing(sqlite3.connect(bank.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Busy), bank.change("hasty", wait_s=0.05) as change:
            change.update("r0", n_used=9)
    assert counters(bank) == (0, 0, None)


@on_both_stores
@pytest.mark.parametrize("find", ["retrieve", "lexical"])
def test_a_task_whose_id_has_a_nul_byte_does_not_get_back_what_was_merged_from_it(bank, find):
    merged = record("m", item(0), parents=("x",), provenance={"tasks": ["odd\0one", "other"]})
    bank.add(merged)
    found = getattr(bank, find)
    assert "m" in {hit.record.id for hit in found(merged.original_query, 9, "task r0")}
    assert "m" not in {hit.record.id for hit in found(merged.original_query, 9, "odd\0one")}


@on_both_stores
def test_a_domain_with_a_nul_byte_is_no_other_domain(bank):
    bank.add(record("d", item(50), domain="odd"))
    query = bank.get("d").original_query
    for domain, ids in (("odd", ["d"]), ("odd\0one", []), (("odd\0one", "odd"), ["d"])):
        where = Filter(domain=domain)
        assert [hit.record.id for hit in bank.lexical(query, 9, where=where)] == ids
        assert [hit.record.id for hit in bank.nearest(query, 9, where=where)] == ids
