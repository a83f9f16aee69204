"""A lesson that corrects another one is no duplicate of it: both stay, linked, and the newer one is retrieved first."""

from __future__ import annotations

from contextlib import ExitStack, closing
from itertools import count

import pytest
from memory_kit import Teller, merged_reply
from test_memory import record as made_of

from benchmarks.recall import REPETITION, pairs
from core.memory import formats
from core.memory.bank import MemoryBank
from core.memory.consolidation.consolidator import Consolidator
from core.memory.consolidation.contradict import Contradict
from core.memory.consolidation.deduplicate import Deduplicate
from core.memory.consolidation.differences import difference, may_correct
from core.memory.consolidation.merge import Merge
from core.memory.policies.cosine import Cosine
from core.memory.policies.rrf import RRF
from core.memory.policies.trust import Trust
from core.memory.ports import CORRECTS, REVISES
from core.memory.records import EpisodeFeedback
from core.models.embedding import HashingEmbedder
from core.types import Lesson


def lesson(text, title="A lesson"):
    return Lesson(title=title, description="", content=text)


def record(id, text, title="A lesson", query=None, **changes):
    about = {"task": f"task {id}", "id": id, "items": (lesson(text, title),)}
    return made_of(query or title.lower(), **about | changes)


OLD = "In staging the billing service listens on port 8443."
NEW = OLD.replace("8443", "8444")


# Texts


def test_their_words_differ(subtests):
    cases = [
        ("Wait 30 seconds between two calls.", "Wait 30 minutes between two calls."),
        ("Use Python 3.11 for the build.", "The build should use Python 3.12."),
        ("Set the limit to -1 for all rows.", "Set the limit to 1 for all rows."),
        ("Run the linter with --fix.", "Run the linter with --check."),
        ("Call grep with -r.", "Call grep with -R."),
        ("Settings are in conf/a.yaml.", "The settings stand in conf/b.yaml."),
        ('Click on "Save" first.', 'Click on "Submit" first.'),
        ("It holds where x > 5 here.", "It holds where x < 5 here."),
        ("Expand it to a + b + c.", "Expand it to a - b + c."),
        ("The client is thread-safe.", "The client is not thread-safe."),
        ("The coupon can be combined.", "It isn't possible to combine the coupon."),
        ("Enable the retry of the call.", "Disable the retry of the call."),
        ("Copy it from the replica to the primary.", "Copy it from the primary to the replica."),
        ("Take the account lock before the ledger lock.", "Take the ledger lock before the account lock."),
        ("在测试环境中端口是 8443。", "在测试环境中端口是 8444。"),
        ("上传之前清除缓存。", "上传之前不清除缓存。"),
        ("Run the tests.", "Run the tests in parallel on Windows."),
        ("Wait 5 s.", "Wait 5 ms."),
        ("Compute n! first.", "Compute n first."),
        ("Only admins may read it.", "Admins may read it."),
        ("Deploy on 2024-11-05.", "Deploy on 2024-11-06."),
        ("The lease ends at most 5 s later.", "The lease ends at least 5 s later."),
        ("Der Dienst ist bereit.", "Der Dienst ist nicht bereit."),
        ("Порт сервиса 80.", "Порт сервиса 90."),
    ]
    for one, other in cases:
        with subtests.test(one=one, other=other):
            assert difference(lesson(one), lesson(other)) and difference(lesson(other), lesson(one))


def test_a_number_in_the_title_alone_counts():
    text = "Use that endpoint for uploads."
    assert difference(lesson(text, "Upgrade to v2"), lesson(text, "Upgrade to v3")) == "v2, v3"
    assert difference(lesson(text, "Upgrade it"), lesson(text, "How to upgrade")) is None


def test_their_words_are_the_same(subtests):
    cases = [
        ("Close the cursor when the query is done.", "close a cursor when queries are done"),
        ("Wait 30 seconds.", "Wait **30 seconds**."),
        ('Click on "Save" first.', "Clicked on Save first"),
        ("Check the users' rights; then open it.", "Check the user's right, then open it."),
        ("Using caches, retry.", "Use the cache; retry."),
        ("在测试环境中端口是 8443。", "在测试环境中端口是 8443"),
    ]
    for one, other in cases:
        with subtests.test(one=one, other=other):
            assert difference(lesson(one), lesson(other)) is None
            assert not may_correct(lesson(one), lesson(other))


def test_no_correction_of_the_bench_is_taken_for_a_repetition_or_merged():
    corrections = [(pair.one, pair.other) for pair in pairs() if pair.kind != REPETITION]
    assert [pair for pair in corrections if difference(*pair) is None] == []
    assert [pair for pair in corrections if not may_correct(*pair)] == []


# Banks


@pytest.fixture
def open_bank(tmp_path):
    with ExitStack() as banks:
        numbers = count()

        def build(*records, policy=None, **parts):
            bank = MemoryBank(
                path=str(tmp_path / f"bank{next(numbers)}.sqlite"),
                embedder=HashingEmbedder(dim=512),
                policy=policy or Cosine(corrections_first=True),
                consolidate=Consolidator(every=1_000, **{"deduplicate": Deduplicate()} | parts),
            )
            for made in records:
                bank.add(made)
            return banks.enter_context(closing(bank))

        yield build


def go_over(bank):
    bank.consolidate.consolidate(bank)
    return {made.id: made.status for made in bank.records()}


def ids(hits):
    return [hit.record.id for hit in hits]


TITLE = "Port of the billing service in staging"


def corrected(open_bank, **changes):
    bank = open_bank(record("old", OLD, TITLE), record("new", NEW, TITLE, tick=1), **changes)
    assert set(ids(bank.retrieve(TITLE.lower(), 2))) == {"old", "new"}  # asked before it holds a correction
    assert go_over(bank) == {"old": "active", "new": "active"}
    return bank


def test_both_stay_and_the_newer_is_linked_with_its_reason(open_bank):
    bank = corrected(open_bank)
    [(source, relation, target, note)] = bank.links()
    assert (source, relation, target) == ("new", REVISES, "old")
    assert note.startswith(f"{CORRECTS}8443, 8444, cosine 0.9")
    reasons = [entry["reason"] for entry in bank.history.journal()]
    assert reasons[-2:] == ["deduplicate: new revises old", "consolidate: the round is over"]
    go_over(bank)  # another round adds nothing
    assert len(bank.links()) == 1 and sum("revises" in each["reason"] for each in bank.history.journal()) == 1


def test_the_newer_is_retrieved_first(subtests, open_bank):
    for policy in (Cosine, Trust, RRF):
        bank = corrected(open_bank, policy=policy(corrections_first=True))
        for top_k in (1, 2, 5):
            with subtests.test(policy=policy, top_k=top_k):
                assert ids(bank.retrieve(TITLE.lower(), top_k)) == ["new", "old"][:top_k]


def test_the_newer_is_found_where_its_own_query_is_far_from_the_task(open_bank):
    numbers = range(60)
    others = [record(f"x{n}", f"word{n} thing{n}", f"title{n}", query=f"billing port number{n}") for n in numbers]
    old, new = record("old", OLD, TITLE, query="billing port"), record("new", NEW, TITLE, query="health check", tick=1)
    bank = open_bank(old, new, *others)
    go_over(bank)
    assert ids(bank.retrieve("billing port", 1)) == ["new"]
    assert ids(bank.retrieve("billing port", 3))[:2] == ["new", "old"]


def test_a_task_does_not_get_back_its_own_correction(open_bank):
    bank = corrected(open_bank)
    assert ids(bank.retrieve(TITLE.lower(), 1, exclude_task="task new")) == ["old"]
    assert ids(bank.retrieve(TITLE.lower(), 1, exclude_task="task old")) == ["new"]


def test_a_correction_that_was_taken_out_corrects_nothing(open_bank):
    bank = corrected(open_bank)
    for status in ("superseded", "archived", "quarantined"):
        with bank.change("out") as change:
            change.update("new", status=status)
        assert ids(bank.retrieve(TITLE.lower(), 2)) == ["old"]


def test_the_last_of_several_corrections_comes_first(open_bank):
    texts = [f"In staging the billing service listens on port {port}." for port in (8443, 8444, 8445)]
    bank = open_bank(*(record(str(n), text, TITLE, tick=n) for n, text in enumerate(texts)))
    go_over(bank)
    assert {(source, target) for source, _, target, _ in bank.links()} == {("1", "0"), ("2", "0"), ("2", "1")}
    assert ids(bank.retrieve(TITLE.lower(), 1)) == ["2"]
    assert ids(bank.retrieve(TITLE.lower(), 3)) == ["2", "1", "0"]


def test_a_round_that_was_cut_off_makes_each_link_once(open_bank, monkeypatch):
    bank = open_bank(record("old", OLD, TITLE), record("new", NEW, TITLE, tick=1))
    with monkeypatch.context() as patch:
        patch.setattr(type(bank.consolidate), "_make", lambda *given: (_ for _ in ()).throw(OSError("cut off")))
        with pytest.raises(OSError):
            go_over(bank)
    assert bank.links() == []
    bank.learn_from(None)
    assert len(bank.links()) == 1
    assert ids(bank.retrieve(TITLE.lower(), 1)) == ["new"]


def test_it_is_seen_as_soon_as_it_is_learned(open_bank):
    bank = open_bank(deduplicate=Deduplicate(on_add=True))
    for n, text in enumerate((OLD, NEW, OLD)):
        bank.add(record(str(n), text, TITLE, tick=n))
        bank.learn_from(EpisodeFeedback(index=n, label="success", new=((str(n), None),)))
    assert {made.id: made.status for made in bank.records()} == {"0": "active", "1": "active", "2": "superseded"}
    assert ids(bank.retrieve(TITLE.lower(), 1)) == ["1"]


def test_a_merge_does_not_swallow_a_correction(open_bank):
    texts = [f"In staging the billing service listens on port {port} for checks." for port in (1, 2, 3, 4)]
    teller = Teller(merged_reply())
    made = [record(str(n), text, TITLE, tick=n) for n, text in enumerate(texts)]
    bank = open_bank(*made, merge=Merge(min_score=0.5), role=teller.role)
    assert set(go_over(bank).values()) == {"active"} and teller.prompts == []


def test_of_two_that_contradict_each_other_the_newer_is_not_the_weaker(open_bank):
    teller = Teller('{"thoughts": "", "relation": "contradicts"}')
    made = [record("old", OLD, TITLE), record("new", NEW, TITLE, tick=1)]
    bank = open_bank(*made, deduplicate=None, contradict=Contradict(action="quarantine", high=1.0), role=teller.role)
    assert go_over(bank) == {"old": "quarantined", "new": "active"}


@pytest.mark.parametrize(("relation", "status"), [("entails", "superseded"), ("unrelated", "active")])
def test_a_model_decides_where_one_is_configured(open_bank, relation, status):
    teller = Teller(f'{{"thoughts": "", "relation": "{relation}"}}')
    made = [record("old", OLD, TITLE), record("new", NEW.replace("8444", "port 8443"), TITLE, tick=1)]
    contradict = Contradict(low=0.2, high=0.3)  # the pair is above `high`, but its words differ
    bank = open_bank(*made, contradict=contradict, role=teller.role)
    assert go_over(bank) == {"old": "active", "new": status}
    assert len(teller.prompts) == 1


def test_lessons_of_another_outcome_or_domain_are_not_linked(open_bank):
    for changes in ({"outcome": "failure"}, {"domain": "another"}):
        bank = open_bank(record("old", OLD, TITLE), record("new", NEW, TITLE, tick=1, **changes))
        assert set(go_over(bank).values()) == {"active"} and bank.links() == []


def test_a_bank_without_consolidation_and_its_copy_know_the_order(open_bank, tmp_path):
    bank = corrected(open_bank)
    formats.export(bank, tmp_path / "out.jsonl", "jsonl")
    other = open_bank()
    formats.load(other, tmp_path / "out.jsonl", "jsonl")
    other.consolidate = None
    assert ids(other.retrieve(TITLE.lower(), 1)) == ["new"]


def test_lessons_on_two_things_under_one_title_are_not_linked(open_bank):
    near = Deduplicate(min_score=0.99, title_min_score=0.1)
    one, two = "Check the limit before every upload of a file.", "Read the last line of the traceback before a fix."
    bank = open_bank(record("a", one, "Check first"), record("b", two, "Check first", tick=1), deduplicate=near)
    assert go_over(bank) == {"a": "active", "b": "active"} and bank.links() == []
    bank.add_many([record("c", one.replace("before", "after"), "Check first", tick=2)])
    go_over(bank)
    assert [link[:3] for link in bank.links()] == [("c", REVISES, "a")]


def test_a_repetition_is_still_superseded(open_bank):
    other = "In staging, billing services are listening on the port 8443"
    bank = open_bank(record("a", OLD, TITLE), record("b", other, TITLE, tick=1))
    assert go_over(bank) == {"a": "active", "b": "superseded"}
    assert [link[:3] for link in bank.links()] == [("b", "duplicate_of", "a")]
