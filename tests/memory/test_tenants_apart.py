"""What one tenant reads from a shared bank is the same, to the byte, before and after another acts; on both stores."""

from __future__ import annotations

from test_memory import lesson, open_bank, record  # noqa: F401 - open_bank is a fixture

from core.memory.policies.cosine import Cosine
from core.memory.policies.hybrid import Hybrid
from core.memory.policies.lexical import Lexical
from core.memory.policies.points import Points
from core.memory.policies.random import Random
from core.memory.policies.rrf import RRF
from core.memory.ranking import ranked
from core.models.embedding import HashingEmbedder

WORDS = ("zebra", "postgres", "zebra postgres the", "task 2", "quokka", "任务 2")
POLICIES = (Cosine, Lexical, RRF, Hybrid, Points, Random)


def filled(view, n=12):
    texts = ("the zebra waits", "postgres needs an index", "the lid is stuck", "zebra and postgres")
    made = [
        record(f"task {n}", task=f"t{n}", id=f"r{n}", items=(lesson(texts[n % 4]),), created_at="2026-01-01")
        for n in range(n)
    ]
    view.add_many(made)


def everything(view):
    """Every answer of one tenant."""
    found = {}
    for policy in POLICIES:
        for words in WORDS:
            hits = ranked(view, policy(top_k=9), words, 9, "t1", None)
            found[policy.__name__, words] = [(hit.record.id, hit.score, hit.similarity) for hit in hits]
    for words in WORDS:
        found["lexical", words] = [(hit.record.id, hit.score) for hit in view.lexical(words, 20)]
    found["contents"] = view.records(view.namespace), view.statuses(), view.titles(), sorted(view.ids()), view.links()
    return repr(found)


def act(view):
    """What another tenant may do: add many lessons of the same and other words, change, remove and forget them."""
    made = [record(f"zebra {n}", task=f"z{n}", id=f"z{n}", items=(lesson("zebra quokka"),)) for n in range(40)]
    view.add_many(made)
    filled(view)
    with view.change("edit") as change:
        change.update("z1", items=(lesson("postgres postgres"),))
        change.update("z2", status="archived")
        change.remove("z3")
    view.history.forget(id="z4")


def test_the_index_of_one_follows_each_of_its_changes(open_bank):  # noqa: F811
    alone, shared = open_bank("alone.sqlite").of("bob"), open_bank("shared.sqlite").of("bob")
    act(shared.of("ann"))

    def same():
        assert everything(alone) == everything(shared)

    for view in (alone, shared):
        filled(view)
    same()
    starts = [view.history.seq() for view in (alone, shared)]
    for view in (alone, shared):
        view.add(record("task 99", id="new", items=(lesson("a quokka on the index"),), created_at="2026"))
        with view.change("edit") as change:
            change.update("r2", items=(lesson("quokka"),))
            change.update("r3", status="quarantined")
            change.remove("r4")
    same()
    for view, start in zip((alone, shared), starts):
        view.history.rollback(start)
    same()
    for view in (alone, shared):
        view.history.forget(id="r5")
    same()


def test_the_last_digit_of_a_score_does_not_depend_on_how_many_others_there_are(open_bank):  # noqa: F811
    alone = open_bank("alone.sqlite", embedder=HashingEmbedder(dim=384)).of("bob")
    shared = open_bank("shared.sqlite", embedder=HashingEmbedder(dim=384)).of("bob")
    others = [record(f"zebra {n} of {n * 7}", task=f"z{n}", id=f"z{n}") for n in range(1000)]
    for view, more in ((alone, 0), (shared, 1)):
        view.of("ann").add_many(others[: 500 * more])
        filled(view, 120)
        view.of("ann").add_many(others[500 * more :] if more else [])
    assert everything(alone) == everything(shared)
