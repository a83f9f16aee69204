"""What happens when a record arrives: duplicates at once, a merge with the third alike, and nobody waits for it."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, closing

import pytest
from memory_kit import Teller, item, merged_reply, open_life_bank, record, statuses

from core.errors import UserError
from core.memory import by_hand
from core.memory.consolidation.confidence import Confidence
from core.memory.consolidation.context import ConsolidationContext
from core.memory.consolidation.deduplicate import Deduplicate
from core.memory.consolidation.merge import LLMAuthor, Merge, Voting
from core.memory.records import EpisodeFeedback


@pytest.fixture
def open_bank(tmp_path):
    with ExitStack() as banks:
        yield lambda **policies: banks.enter_context(closing(open_life_bank(tmp_path / "bank.sqlite", **policies)))


def live(bank, made, index=None, **changes):
    bank.add(made)
    bank.learn_from(EpisodeFeedback(index=index, label="success", new=((made.id, None),), **changes))


def reasons(bank):
    return [entry["reason"] for entry in bank.history.journal()]


def alike(k, **changes):
    """Records that are alike, not the same: 12 degrees apart."""
    return record(f"r{k}", item(12 * k, f"word{k}"), tick=k, **changes)


# Deduplication on add


def test_a_duplicate_is_superseded_as_soon_as_it_is_learned(open_bank):
    bank = open_bank(deduplicate=Deduplicate(on_add=True))
    live(bank, record("a", item(0)))
    live(bank, record("other", item(90, "else")))
    before = bank.history.seq()
    live(bank, record("b", item(0), tick=1))
    assert statuses(bank) == {"a": "active", "other": "active", "b": "superseded"}
    assert bank.links() == [("b", "duplicate_of", "a", "cosine 1.000")]
    assert reasons(bank)[before:] == ["add", "learn: episode None", "deduplicate on add: b duplicate_of a"]
    assert [hit.record.id for hit in bank.retrieve("@200", top_k=5)] == ["a", "other"]
    bank.history.rollback(bank.history.seq() - 1)
    assert statuses(bank)["b"] == "active"


def test_which_one_stays_is_the_rules_business(open_bank):
    bank = open_bank(deduplicate=Deduplicate(on_add=True), confidence=Confidence())
    live(bank, record("old", item(0), outcome="failure"))
    by_hand.mark_record(bank, "old", helpful=False)
    live(bank, record("new", item(0), outcome="failure", tick=9))
    assert statuses(bank) == {"old": "superseded", "new": "active"}


def test_on_the_wall_clock_the_older_one_stays(open_bank):
    bank = open_bank(deduplicate=Deduplicate(on_add=True))
    bank.clock = "wall"
    live(bank, record("z", item(0), created_at="2026-01-01T00:00:00+00:00"))
    live(bank, record("a", item(0), created_at="2026-01-01T00:00:01+00:00"))
    assert statuses(bank) == {"z": "active", "a": "superseded"}


def test_it_says_what_a_round_would_say(open_bank, tmp_path):
    made = [record(f"m{k}", item(7 * k % 60, f"w{k % 5}"), tick=k, confidence=0.5 + 0.1 * (k % 3)) for k in range(12)]
    at_once = open_bank(deduplicate=Deduplicate(on_add=True))
    with closing(open_life_bank(tmp_path / "later.sqlite", every=1, deduplicate=Deduplicate())) as later:
        for one in made:
            live(at_once, one)
            live(later, one)
        assert statuses(at_once) == statuses(later)
        assert at_once.links() == later.links()
        assert "superseded" in statuses(later).values() and "active" in statuses(later).values()


def test_without_the_key_nothing_happens_before_a_round_and_progress_is_stored_as_before(open_bank):
    bank = open_bank(deduplicate=Deduplicate())
    live(bank, record("a", item(0)))
    live(bank, record("b", item(0)))
    assert set(statuses(bank).values()) == {"active"}
    assert "arrived" not in bank.fact("consolidate::default")


def test_no_more_than_the_candidates_are_looked_at(open_bank):
    bank = open_bank()
    for number, angle in enumerate((0, 20, 50)):
        bank.add(record(str(number), item(angle)))
    for candidates in (1, 2):
        bank.consolidate.candidates = candidates
        ctx = ConsolidationContext(bank=bank, settings=bank.consolidate, fresh=("1", "0"))
        near = ctx.near(lambda lessons, cosines: cosines >= 0.7)  # cos 50 = 0.64
        assert {id: [other.id for other in others] for id, others in near.items()} == {
            "1": ["0", "2"][:candidates],
            "0": ["1"],
        }
        assert [other.id for other in ctx.similar(bank.get("0"), -1.0)] == ["1", "2"][:candidates]


def test_two_processes_that_compare_the_same_record_do_it_once(open_bank):
    one, other = (open_bank(deduplicate=Deduplicate(on_add=True)) for _ in range(2))
    live(one, record("a", item(0)), index=0)
    plan = one.consolidate.deduplicate.plan

    def slow(ctx):
        found = plan(ctx)
        other.learn(None)
        return found

    one.consolidate.deduplicate.plan = slow
    live(one, record("b", item(0), tick=1), index=1)
    assert statuses(one) == {"a": "active", "b": "superseded"}
    assert sum("duplicate_of" in reason for reason in reasons(one)) == 1


# A merge with the third alike


@pytest.mark.parametrize("background", [False, True])
def test_with_every_1_the_third_alike_begins_a_merge(open_bank, background):
    same = Deduplicate(title_distance=0, min_score=0.99, on_add=True)
    bank = open_bank(every=1, background=background, deduplicate=same, merge=Merge(author=Voting()))
    for k in range(3):
        bank.consolidate.close()
        assert not any(r.parents for r in bank.records())
        live(bank, alike(2 * k % 3))
    bank.consolidate.close()
    [merged] = [r for r in bank.records() if r.parents]
    assert set(merged.parents) == {"r0", "r1", "r2"}
    assert [r.id for r in bank.records(status="active")] == [merged.id]


def held(open_bank, **changes):
    """A bank whose merges wait for an event, in the background."""
    go, began = threading.Event(), threading.Event()

    def answer(prompt):
        began.set()
        assert go.wait(30)
        return merged_reply(12)

    policies = {"every": 1, "background": True, "merge": Merge(author=LLMAuthor()), "role": Teller(answer).role}
    return open_bank(**policies | changes), go, began


def test_nobody_waits_for_a_merge_in_the_background(open_bank):
    bank, go, began = held(open_bank, confidence=Confidence())
    for k in range(3):
        live(bank, alike(k))
    assert began.wait(30)
    started = time.monotonic()
    live(bank, record("next", item(180)))
    assert [hit.record.id for hit in bank.retrieve("@200", top_k=9)] == ["r0", "r1", "r2", "next"]
    before = bank.get("r0").confidence
    bank.count_shown(["r0"])
    assert bank.get("r0").confidence < before
    assert time.monotonic() - started < 25 and not go.is_set()  # the merge waits for 30 s
    go.set()
    bank.consolidate.close()
    assert sorted(r.id[:2] for r in bank.records(status="active") if not r.parents) == ["ne"]
    assert bank.get("r0").status == "archived"  # that it was shown meanwhile did not undo the merge


def test_a_mark_that_comes_while_a_merge_is_written_keeps_it_from_being_made(open_bank):
    bank, go, began = held(open_bank)
    bank.add_many([alike(0), alike(1)])  # not learned from: a round of theirs might come after the mark
    live(bank, alike(2))
    assert began.wait(30)
    by_hand.mark_record(bank, "r1", helpful=False)
    go.set()
    bank.consolidate.close()
    assert set(statuses(bank).values()) == {"active"}


def test_a_tenant_whose_round_falls_due_during_anothers_gets_it(open_bank):
    bank, go, began = held(open_bank)
    ann, bob = bank.of("ann"), bank.of("bob")
    for k in range(3):
        live(ann, alike(k))
    assert began.wait(30)
    for k in range(3):
        live(bob, alike(k))
    go.set()
    bank.consolidate.close()
    for one in (ann, bob):
        assert one.statuses() == {"active": 1, "archived": 3}
        assert one.consolidate.progress(one).round == ()


def test_an_error_in_the_background_is_raised_when_the_bank_is_closed(open_bank):
    bank = open_bank(every=1, background=True, merge=Merge(author=LLMAuthor()))  # and no model
    with pytest.raises(UserError, match="asks a model"):  # at the next episode, or at the end
        try:
            for k in range(3):
                live(bank, alike(k))
        finally:
            bank.consolidate.close()
