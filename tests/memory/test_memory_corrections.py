"""A lesson that corrects another one is no duplicate of it: both stay, linked, and the newer one is retrieved first."""

from __future__ import annotations

import pytest
from memory_kit import Teller, merged_reply

from benchmarks.bench_corrections import REPETITION, pairs
from core.memory import formats
from core.memory.bank import MemoryBank
from core.memory.consolidation.consolidator import Consolidator
from core.memory.consolidation.contradict import Contradict
from core.memory.consolidation.deduplicate import Deduplicate
from core.memory.consolidation.differences import CONTRADICTS, REFINES, difference
from core.memory.consolidation.merge import Merge
from core.memory.policies.cosine import Cosine
from core.memory.policies.rrf import RRF
from core.memory.policies.trust import Trust
from core.memory.ports import CORRECTS
from core.memory.records import EpisodeFeedback
from core.models.embedding import HashingEmbedder
from core.types import Lesson, MemoryRecord


def lesson(text, title="A lesson"):
    return Lesson(title=title, description="", content=text)


def record(id, text, title="A lesson", query=None, **changes):
    values = {
        "id": id,
        "original_query": query or title.lower(),
        "items": (lesson(text, title),),
        "source_trajectory_id": id,
        "score": 1.0,
        "outcome": "success",
        "label_source": "llm",
        "task_id": f"task {id}",
    }
    return MemoryRecord(**values | changes)


OLD, NEW = (
    "In staging the billing service listens on port 8443.",
    "In staging the billing service listens on port 8444.",
)


# Texts


@pytest.mark.sqlite_file
def test_they_say_different_things(subtests):
    cases = [
        ("Wait 30 seconds between two calls.", "Wait 30 minutes between two calls.", "numbers"),
        ("Retry three times.", "Retry 5 times.", "numbers"),
        ("Use Python 3.11 for the build.", "The build should use Python 3.12.", "numbers"),
        ("Set the limit to -1 for all rows.", "Set the limit to 1 for all rows.", "numbers"),
        ("Upload at most 5,000 rows.", "Upload at most 50,000 rows.", "numbers"),
        ("Keep coverage above 80%.", "Keep the coverage above 85 percent.", "numbers"),
        ("Run the linter with --fix.", "Run the linter with --check.", "names"),
        ("Call grep with -r.", "Call grep with -R.", "names"),
        ("Settings are in conf/a.yaml.", "The settings stand in conf/b.yaml.", "names"),
        ("Ask Anna for access.", "For access, ask Bruno.", "names"),
        ('Click on "Save" first.', 'Click on "Submit" first.', "names"),
        ("The queue is in RabbitMQ.", "The queue is in Kafka.", "names"),
        ("It holds where x > 5 here.", "It holds where x < 5 here.", "signs"),
        ("Expand it to a + b + c.", "Expand it to a - b + c.", "signs"),
        ("The client is thread-safe.", "The client is not thread-safe.", "a negation"),
        ("Always run VACUUM on the table.", "Never run VACUUM on the table.", "a negation"),
        ("The coupon can be combined.", "It isn't possible to combine the coupon.", "a negation"),
        ("Clear the cache before the upload.", "Clear the cache after the upload.", "words"),
        ("Enable the retry of the call.", "Disable the retry of the call.", "words"),
        ("The backups are encrypted.", "The backups are unencrypted.", "words"),
        ("The worker is stateless.", "The worker is stateful.", "words"),
        ("Store the keys in the drawer of the desk.", "Store the keys in the cabinet of the desk.", "words"),
        ("Delete all rows of the table.", "Delete some rows of the table.", "words"),
        ("Copy it from the replica to the primary.", "Copy it from the primary to the replica.", "order"),
        ("Take the account lock before the ledger lock.", "Take the ledger lock before the account lock.", "order"),
        ("Install the plugin, then edit the settings.", "Edit the settings, then install the plugin.", "order"),
        ("Billing may import the core.", "The core may import billing.", "order"),
        ("Do not rebase but merge.", "Do not merge but rebase.", "order"),
        ("在测试环境中端口是 8443。", "在测试环境中端口是 8444。", "numbers"),
        ("上传之前清除缓存。", "上传之前不清除缓存。", "a negation"),
    ]
    for one, other, what in cases:
        with subtests.test(one=one, other=other):
            for a, b in ((one, other), (other, one)):
                relation, why = difference(lesson(a), lesson(b))
                assert relation == CONTRADICTS and why.startswith(what)


@pytest.mark.sqlite_file
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Run the tests.", "Run the tests in parallel on Windows."),
        ("Upload the file.", "Upload the file, which may have 5 MB."),
        ("Read the settings first.", "Read the settings in conf/worker.yaml first."),
        ("Vacuum the table.", "Vacuum the table before the nightly export."),
    ],
)
def test_one_says_more_than_the_other(one, other):
    assert difference(lesson(one), lesson(other))[0] == difference(lesson(other), lesson(one))[0] == REFINES


@pytest.mark.sqlite_file
def test_they_say_the_same_in_other_words(subtests):
    cases = [
        ("Close the cursor when the query is done.", "Make sure to close the cursor once the query is done."),
        ("Wait 30 seconds.", "Wait for 30 s."),
        ("Upload at most 5,000 rows.", "At most 5000 rows should be uploaded."),
        ("Retry three times.", "Retry it 3 times."),
        ("Prefer X to Y; do not use Y.", "Don't use Y: prefer X to Y."),
        ("Never catch an error without logging it.", "Do not catch an error unless you log it."),
        ("Compare with a tolerance, not for equality.", "Compare with a tolerance rather than for equality."),
        ("Do not merge before the tests are green.", "Merge only after the tests are green."),
        ("Before you add fractions, find a common denominator.", "Find a common denominator before adding fractions."),
        ("Use tabs and spaces consistently.", "Use spaces and tabs consistently."),
        ("Ask Anna for access.", "For access, ask Anna."),
        ("The repo has its settings in conf/a.yaml.", "In the repository the settings are in conf/a.yaml."),
    ]
    for one, other in cases:
        with subtests.test(one=one, other=other):
            assert difference(lesson(one), lesson(other)) is None


@pytest.mark.sqlite_file
def test_no_correction_of_the_bench_is_taken_for_a_repetition():
    found = {(pair.kind == REPETITION, difference(pair.one, pair.other) is None) for pair in pairs()}
    assert (False, True) not in found
    repeated = [difference(pair.one, pair.other) is None for pair in pairs() if pair.kind == REPETITION]
    assert sum(repeated) > 0.85 * len(repeated)


# Banks


@pytest.fixture
def open_bank(tmp_path):
    banks = []

    def build(*records, policy=None, **parts):
        life = Consolidator(every=1_000, **{"deduplicate": Deduplicate()} | parts)
        embedder = HashingEmbedder(dim=512)
        path = tmp_path / f"bank{len(banks)}.sqlite"
        bank = MemoryBank(path=str(path), embedder=embedder, policy=policy or Cosine(), consolidate=life)
        banks.append(bank)
        for made in records:
            bank.add_many([made])
        return bank

    yield build
    for bank in banks:
        bank.close()


def go_over(bank):
    bank.consolidate.consolidate(bank)
    return {made.id: made.status for made in bank.records()}


def ids(hits):
    return [hit.record.id for hit in hits]


TITLE = "Port of the billing service in staging"


def corrected(open_bank, **changes):
    bank = open_bank(record("old", OLD, TITLE), record("new", NEW, TITLE, tick=1), **changes)
    assert go_over(bank) == {"old": "active", "new": "active"}
    return bank


def test_both_stay_and_the_newer_is_linked_with_its_reason(open_bank):
    bank = corrected(open_bank)
    [(source, relation, target, note)] = bank.links()
    assert (source, relation, target) == ("new", CONTRADICTS, "old")
    assert note.startswith(f"{CORRECTS}numbers: 8443, 8444, cosine 0.9")
    assert [entry["reason"] for entry in bank.history.journal()][-2:] == [
        "deduplicate: new contradicts old",
        "consolidate: the round is over",
    ]


def test_the_newer_is_retrieved_first(subtests, open_bank):
    for policy in (Cosine(), Trust(), RRF()):
        bank = corrected(open_bank, policy=policy)
        for top_k in (1, 2, 5):
            with subtests.test(policy=policy, top_k=top_k):
                assert ids(bank.retrieve(TITLE.lower(), top_k)) == ["new", "old"][:top_k]


@pytest.mark.parametrize("n_nearer", [12, 120])
def test_the_newer_is_found_where_its_own_query_is_far_from_the_task(open_bank, n_nearer):
    numbers = range(n_nearer)
    others = [record(f"x{n}", f"word{n} thing{n}", f"title{n}", query=f"billing port number{n}") for n in numbers]
    old, new = record("old", OLD, TITLE, query="billing port"), record("new", NEW, TITLE, query="health check", tick=1)
    bank = open_bank(old, new, *others)
    go_over(bank)
    assert ids(bank.retrieve("billing port", 1)) == ["new"]
    assert ids(bank.retrieve("billing port", 3))[:2] == ["new", "old"]


def test_a_bank_that_held_no_correction_sees_the_first(open_bank):
    bank = open_bank(record("old", OLD, TITLE), record("new", NEW, TITLE, tick=1))
    assert set(ids(bank.retrieve(TITLE.lower(), 2))) == {"old", "new"}
    go_over(bank)
    assert ids(bank.retrieve(TITLE.lower(), 2)) == ["new", "old"]


def test_a_task_does_not_get_back_its_own_correction(open_bank):
    bank = corrected(open_bank)
    assert ids(bank.retrieve(TITLE.lower(), 1, exclude_task="task new")) == ["old"]
    assert ids(bank.retrieve(TITLE.lower(), 1, exclude_task="task old")) == ["new"]


@pytest.mark.parametrize("status", ["superseded", "archived", "quarantined"])
def test_a_correction_that_was_taken_out_corrects_nothing(open_bank, status):
    bank = corrected(open_bank)
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


def test_another_round_adds_nothing(open_bank):
    bank = corrected(open_bank)
    before = bank.links()
    go_over(bank)
    assert bank.links() == before
    assert sum("contradicts" in entry["reason"] for entry in bank.history.journal()) == 1


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


@pytest.mark.parametrize("changes", [{"outcome": "failure"}, {"domain": "another"}])
def test_lessons_of_another_outcome_or_domain_are_not_linked(open_bank, changes):
    bank = open_bank(record("old", OLD, TITLE), record("new", NEW, TITLE, tick=1, **changes))
    assert set(go_over(bank).values()) == {"active"} and bank.links() == []


def test_a_bank_without_consolidation_and_its_copy_know_the_order(open_bank, tmp_path):
    bank = corrected(open_bank)
    formats.export(bank, tmp_path / "out.jsonl", "jsonl")
    other = open_bank()
    formats.load(other, tmp_path / "out.jsonl", "jsonl")
    other.consolidate = None
    assert ids(other.retrieve(TITLE.lower(), 1)) == ["new"]


def test_a_repetition_is_still_superseded(open_bank):
    other = "The billing service of staging listens on port 8443."
    bank = open_bank(record("a", OLD, TITLE), record("b", other, TITLE, tick=1))
    assert go_over(bank) == {"a": "active", "b": "superseded"}
    assert [link[:3] for link in bank.links()] == [("b", "duplicate_of", "a")]
