"""What a merge leaves behind: its originals where the guard stops it, its confidence, its tasks in an export."""

from __future__ import annotations

from contextlib import ExitStack, closing
from itertools import count

import pytest
from memory_kit import Teller, item, merged_reply, open_life_bank, record, statuses

from core.memory import by_hand, formats
from core.memory.__main__ import main
from core.memory.consolidation.confidence import Confidence
from core.memory.consolidation.merge import Merge, Voting
from core.memory.filter import Filter
from core.memory.hygiene.guard import Guard
from core.models.embedding import HashingEmbedder

ORIGINALS = ("r0", "r1", "r2")


@pytest.fixture
def open_bank(tmp_path):
    with ExitStack() as banks:
        numbers = count()

        def build(hygiene=None, **policies):
            bank = banks.enter_context(closing(open_life_bank(tmp_path / f"{next(numbers)}.sqlite", **policies)))
            bank.hygiene = hygiene
            return bank

        yield build


def alike(words="word", **changes):
    """Three records that are alike; changes: what each of them has, in their order."""
    own = [{name: values[k] for name, values in changes.items()} for k in range(3)]
    return [record(f"r{k}", item(10 * k, f"{words}{k}"), **own[k]) for k in range(3)]


def merge_of(bank):
    """Go over the bank; the record that it has made, None where it has made none."""
    bank.consolidate.consolidate(bank)
    made = [kept for kept in bank.records() if kept.id not in ORIGINALS]
    return made[0] if made else None


@pytest.mark.parametrize("text", ["run `pip install requests` word0", "run `evilctl join`"])
def test_a_merge_that_the_guard_stops_leaves_its_originals(open_bank, text, monkeypatch):
    bank = open_bank(merge=Merge(author=Voting()))
    for made in alike("run `pip install requests` word"):
        bank.add(made, shown=())
    bank.hygiene = Guard(review=True)  # of a merged record only if its text is new
    monkeypatch.setattr(Voting, "write", lambda self, ctx, group: (item(0, text),))
    merged = merge_of(bank)
    known = text.endswith("word0")
    assert (merged is not None) is known
    made = {merged.id: "active"} if known else {}
    assert statuses(bank) == dict.fromkeys(ORIGINALS, "archived" if known else "active") | made


def test_what_is_released_from_quarantine_can_be_merged(open_bank):
    bank = open_bank(Guard(), merge=Merge(), role=Teller(merged_reply()).role)
    for made in alike(trust=[1.0, 0.0, 0.4]):
        bank.add(made, shown=())
    assert statuses(bank) == {"r0": "active", "r1": "quarantined", "r2": "active"}
    by_hand.set_status(bank, "r2", "quarantined")
    assert [by_hand.set_status(bank, id, "active").trust for id in ("r1", "r2")] == [1.0, 0.4]
    merged = merge_of(bank)
    assert (merged.status, merged.trust, merged.parents) == ("active", 0.4, ORIGINALS)


@pytest.mark.parametrize(
    ("kept", "own", "merged"),
    [
        (None, [None, None, None], None),
        (None, [0.9, None, 0.5], 0.7),  # one without has its prior, 0.7
        (Confidence(), [None, None, None], 0.408333333),  # 0.7 (1/4 + 1/2 + 1) / 3, with a half-life of 90
    ],
)
def test_a_merge_has_a_faded_confidence_only_where_confidence_fades(open_bank, kept, own, merged):
    bank = open_bank(merge=Merge(author=Voting()), confidence=kept)
    for made in alike(tick=[0, 90, 180], confidence=own):
        bank.add(made)
    made = merge_of(bank)
    assert made.confidence == (merged if merged is None else pytest.approx(merged, abs=1e-9))
    found = bank.retrieve("@200", where=Filter(min_confidence=0.5))
    assert [hit.record.id for hit in found] == ([] if kept else [made.id])


@pytest.mark.parametrize(("own", "merged"), [(None, None), (0.8, 0.466666667)])
def test_a_round_by_hand_gives_a_confidence_only_where_the_bank_keeps_one(open_bank, tmp_path, own, merged):
    path, embedder = tmp_path / "by_hand.sqlite", HashingEmbedder()
    with closing(open_life_bank(path, embedder=embedder)) as bank:
        for k in range(3):
            bank.add(record(f"r{k}", item(0), tick=90 * k, confidence=own))
    assert main(["consolidate", str(path), "--only", "merge"]) == 0
    with closing(open_life_bank(path, embedder=embedder)) as again:
        [made] = [kept for kept in again.records() if kept.parents]
        assert made.confidence == (merged if merged is None else pytest.approx(merged, abs=1e-9))
        found = [hit.record.id for hit in again.retrieve("task", where=Filter(min_confidence=0.6))]
        assert found == ([made.id] if own is None else [])


def test_no_task_behind_a_merge_retrieves_it_after_an_export_and_an_import(open_bank, tmp_path):
    bank = open_bank(merge=Merge(author=Voting()))
    for made in alike():
        bank.add(made)
    merged = merge_of(bank)
    formats.export(bank, tmp_path / "out", "mcp")
    other = open_bank()
    assert formats.load(other, tmp_path / "out", "mcp") == (4, 0)
    assert [hit.record.id for hit in other.retrieve("@200", exclude_task="a new task")] == [merged.id]
    for id in ORIGINALS:
        assert other.retrieve("@200", top_k=5, exclude_task=f"task {id}") == []
