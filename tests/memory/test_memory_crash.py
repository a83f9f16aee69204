"""kill -9 while lessons are merged: whatever statement it hits, the bank holds one whole state and then goes on."""

from __future__ import annotations

import itertools
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

import forkserver
import pytest
from conftest import WITH_KITS
from memory_kit import item, open_life_bank, record

from core.memory.consolidation.confidence import Confidence
from core.memory.consolidation.deduplicate import Deduplicate
from core.memory.consolidation.merge import Merge, Voting
from core.memory.records import EpisodeFeedback


def open_bank(path, *, on_add=False):
    policies = {"deduplicate": Deduplicate(min_score=None, on_add=on_add), "merge": Merge(author=Voting())}
    return open_life_bank(path, every=4, confidence=Confidence(), **policies)


def episodes(n):
    """Each fourth record repeats the one before, the others are alike: every round drops one and merges three."""
    for index in range(n):
        place = index % 4 - (index % 4 == 3)
        angle, words = 90 * (index // 4 % 4) + 10 * place, f"words {'abc'[place]} of {'abcdefgh'[index // 4 % 8]}"
        made = record(f"r{index}", item(angle, words), query=f"@{index * 7 % 360} q{index}", tick=index)
        used = (f"r{index - 1}",) if index else ()
        yield made, EpisodeFeedback(index=index, label="success", used=used, new=((made.id, None),))


def live(bank, made, seen):
    bank.add(made)
    bank.learn_from(seen)


def content(bank):
    records = [(r.id, r.status, r.confidence, r.n_used, r.parents, len(r.query_embedding)) for r in bank.records()]
    return records, bank.links(), bank.consolidate.progress(bank), len(bank.history.journal())


@pytest.mark.parametrize("how", [{}, {"on_add": True}])
def test_a_copy_of_the_files_at_any_statement_is_one_whole_state(tmp_path, how):
    """A kill leaves behind the files as they are at that moment: here they are copied before every other statement."""
    bank = open_bank(tmp_path / "bank" / "bank.sqlite", **how)
    *before, last = episodes(8)
    for one in before:
        live(bank, *one)
    copies, states, numbers = [], [content(bank)], itertools.count(len(how))  # those that the other kind leaves out

    def copy(statement):
        if next(numbers) % 2:
            return
        copies.append(tmp_path / f"copy {len(copies)}")
        copies[-1].mkdir()
        for path in (tmp_path / "bank").iterdir():
            if not path.name.endswith("-shm"):  # SQLite makes it again
                shutil.copy(path, copies[-1])

    plain = bank.change

    def change(reason):
        states.append(content(bank))
        return plain(reason)

    bank.change = change
    bank._store._db.set_trace_callback(copy)
    live(bank, *last)
    bank._store._db.set_trace_callback(None)
    bank.change = plain
    states.append(content(bank))
    assert len(copies) > 25
    reached = 0
    for folder in copies:
        left = open_bank(folder / "bank.sqlite", **how)
        assert left._store.rows("PRAGMA integrity_check") == [("ok",)]
        found = states.index(content(left))  # one of the states between two transactions, whole
        assert found >= reached
        reached = found
        live(left, *last)  # and from there it goes on to the same end
        assert content(left) == states[-1]
        left.close()
    bank.close()
    assert reached >= len(states) - 3


def forget(bank):
    bank.history.forget(id="secret")


def roll_back(bank):
    bank.history.rollback(2)


def all_of(bank):
    return bank.records(), bank.links(), bank.fact("folded")


@pytest.mark.parametrize("act", [forget, roll_back])
def test_a_change_that_is_cut_off_anywhere_is_whole_in_the_journals_file_too(tmp_path, act):
    """As above, but afterwards the database is lost: at once, or when the next change has been written."""
    bank = open_life_bank(tmp_path / "bank" / "bank.sqlite")
    for name in ("r0", "secret", "r1"):
        bank.add(record(name, item(0, f"words of {name}")))
    with bank.change("edit") as change:
        change.update("secret", n_used=3)
        change.link("secret", "supersedes", "r0")
        change.fact("folded", "1")
    copies, before = [], all_of(bank)

    def copy(statement):
        if not statement.startswith(("--", "SELECT")):  # the first is what a trigger does
            copies.append(tmp_path / f"copy {len(copies)}")
            shutil.copytree(tmp_path / "bank", copies[-1], ignore=shutil.ignore_patterns("*-shm"))

    bank._store._db.set_trace_callback(copy)
    act(bank)
    bank._store._db.set_trace_callback(None)
    after = all_of(bank)
    bank.close()
    assert len(copies) > 5
    for folder in copies:
        shutil.copytree(folder, folder / "lost")
        for path in (folder / "lost").glob("bank.sqlite*"):
            if not path.name.endswith(".journal"):
                path.unlink()
        lost = open_life_bank(folder / "lost" / "bank.sqlite")
        assert all_of(lost) in (before, after)
        lost.close()
        shutil.rmtree(folder / "lost")
        left = open_life_bank(folder / "bank.sqlite")
        done = all_of(left) == after
        assert done or all_of(left) == before
        left.add(record("later", item(90)))
        then = all_of(left)
        left.close()
        if done and act is forget:
            assert b"words of secret" not in b"".join(path.read_bytes() for path in folder.iterdir())
        (folder / "bank.sqlite").unlink()
        left = open_life_bank(folder / "bank.sqlite")
        assert all_of(left) == then
        left.close()
    assert done  # at the last statement, the commit, the change is in the journal: it is made, though it was never said


CHILD = """
import sys
from core.memory.consolidation import deduplicate, merge
from memory_kit import different, may_correct
from test_memory_crash import episodes, live, open_bank
deduplicate.difference, merge.may_correct = different, may_correct
bank = open_bank(sys.argv[1])
start = bank.consolidate.progress(bank).folded
bank.learn(None)
for made, seen in list(episodes(400))[start:]:
    live(bank, made, seen)
    print(made.id, flush=True)
"""


def test_killed_at_random_moments_no_acknowledged_lesson_is_lost_and_none_is_half_merged(tmp_path):
    path, rng, acknowledged = tmp_path / "bank.sqlite", random.Random(1), []
    for _ in range(3):
        words = [sys.executable, "-c", CHILD, str(path)]
        with forkserver.Popen(words, stdout=subprocess.PIPE, text=True, env=WITH_KITS) as child:
            acknowledged += [child.stdout.readline().strip() for _ in range(rng.randint(1, 25))]
            time.sleep(rng.random() / 50)
            child.send_signal(signal.SIGKILL)
            acknowledged += child.stdout.read().split()
        bank = open_bank(path)
        records = {r.id: r for r in bank.records()}
        assert set(acknowledged) - {""} <= set(records) and records
        for merged in (r for r in records.values() if r.parents):
            assert {records[parent].status for parent in merged.parents} == {"archived"}
            assert {t for s, relation, t, _ in bank.links(merged.id) if relation == "supersedes"} == set(merged.parents)
        assert sum(r.status == "archived" for r in records.values()) == sum(len(r.parents) for r in records.values())
        bank.close()
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    undisturbed, killed = open_bank(tmp_path / "calm.sqlite"), open_bank(path)
    killed.learn(None)
    done = killed.consolidate.progress(killed).folded
    for made, seen in list(episodes(400))[:done]:
        live(undisturbed, made, seen)
    added = {made.id for made, _ in list(episodes(400))[:done]}  # a record may be in whose episode is not learned yet
    found = [r for r in content(killed)[0] if r[0] in added or r[4]]
    assert found == content(undisturbed)[0]
    assert content(killed)[1:3] == content(undisturbed)[1:3]
    assert any(r[4] for r in found)
    undisturbed.close()
    killed.close()
