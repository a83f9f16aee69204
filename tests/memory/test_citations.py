"""Which lessons a reply cites: the rule, the record of it, and what it makes of uses and confidence."""

from __future__ import annotations

from contextlib import closing

import pytest
from conftest import TOY, read_rows
from memory_kit import item, open_life_bank, record

from core.errors import UserError
from core.memory.bank import MemoryBank
from core.memory.citations import cited, n_cited
from core.memory.consolidation.confidence import Confidence
from core.memory.policies.cosine import Cosine
from core.memory.records import feedback_of
from core.models.embedding import HashingEmbedder
from core.types import Scored, Step, Trajectory

LESSONS = [("0123456789abcdef", "Count the legs first"), ("fedcba9876543210", "Check twice"), ("c3", "Look")]


def test_the_rule(subtests):
    cases = [
        ("I will use [1].", {0}),
        ("Thought: [1] and [3] fit here.", {0, 2}),
        ("As lesson 2 says, I look again.", {1}),
        ("Following Memory Item 1 I count.", {0}),
        ("memory items 1, 2 and 3 help", {0, 1, 2}),
        ("Lessons [1] and [2] apply", {0, 1}),
        ("**Lesson #2**: check", {1}),
        ("I count the  LEGS\tfirst", {0}),
        ("The advice “Count the Legs First” fits.", {0}),
        ("see 0123456789abcdef", {0}),
        ("[2] says not to hurry, so I wait", {1}),
        ("I will use [1], not [2].", {0}),
        ("I use lesson 1 but ignore lesson 2", {0}),
        ("[1] does not apply; [2] does.", {1}),
        ("[1] Count the legs first doesn’t fit. I go by [3]", {2}),
        ("None of the memory items [1], [2] and [3] apply.", set()),
        ("I do not need lessons 1 and 2", set()),
        ("Lessons 1 and 2 are irrelevant, lesson 3 is not", set()),
        ("I will not open the door and use [2]", {1}),
        ("[1] (not relevant), [2] (relevant)", {1}),
        ("step 1, then step 2: item 3", set()),
        ("Step 1. Look at x[1] and [2](http://a), f(x)[1], [4], [0], lesson 9, lesson 2.5", set()),
        ("Look. Check twicely. 10123456789abcdef", set()),
        ("lesson 12", set()),
        ("", set()),
    ]
    for reply, places in cases:
        with subtests.test(reply=reply):
            assert cited(reply, LESSONS) == places


def test_numbers_may_mean_something_else():
    assert cited("[1] and lesson 2, Count the legs first", LESSONS, numbered=False) == {0}


def attempt(*texts):
    steps = tuple(Step(text=text, thought="", action="", observation="") for text in texts)
    values = {"id": "t", "sample": 0, "opening": (), "answer": None, "ended_by": "end", "reward": 0.0}
    return Trajectory(**values, steps=steps, success=False, gold="")


def test_numbers_run_over_the_lessons_that_were_shown():
    memories = [Scored(record=record(id, item(1, "a"), item(2, "b")), score=1.0) for id in ("r0", "r1", "r2")]
    assert n_cited(attempt("use [1]", "and [4] and lesson 3"), memories, [2, 2, 0]) == [1, 2, 0]
    assert n_cited(attempt("use [2]", "use [3]"), memories, [1, 1, 0]) == [0, 1, 0]  # the first of each was shown


def row(n_cited, label):
    hit = {"id": "r0", "score": 1.0, "n_items": 1, "n_shown": 1} | ({} if n_cited is None else {"n_cited": n_cited})
    empty = {name: [] for name in ("records", "trajectories", "verdicts")}
    return {"index": 0, "status": label, "verdict": {"label": label}, "retrieved": [hit]} | empty


def test_an_episode_that_says_what_was_cited_uses_only_that():
    assert feedback_of(row(None, "success")).used == ("r0",)
    assert feedback_of(row(1, "success")).used == ("r0",)
    assert feedback_of(row(0, "success")).used == ()


def test_confidence_rises_by_a_citation_in_a_success_and_falls_by_half_as_much_in_a_failure(tmp_path):
    """003 section 10: +eta if cited and success, -0.5 eta if cited and failure, eta 0.05; nothing where not cited."""
    steady = Confidence(half_life_days=None)
    for n, label, after in ((1, "success", 0.75), (1, "failure", 0.675), (0, "success", 0.7), (0, "failure", 0.7)):
        with closing(open_life_bank(tmp_path / f"{n}{label}.sqlite", confidence=steady)) as bank:
            bank.add(record("r0", item(0), confidence=0.7))
            bank.learn(row(n, label))
            kept = bank.get("r0")
            assert (kept.confidence, kept.n_used) == (pytest.approx(after), n)


def test_a_run_records_what_was_cited_and_counts_that(here, tmp_path):
    """The toy world's player cites nothing; told to, it cites the first lesson in every second task."""
    keys = (*TOY, "memory=confidence", "retrieval.top_k=2")
    assert all("n_cited" not in hit for r in read_rows(here(*keys)[0]) for hit in r["retrieved"])
    script = "llm.script.path=test_citations.citing"
    run_dir = here(*keys, "memory.uses=cited", script, run_dir=tmp_path / "cited")[0]
    rows = read_rows(run_dir)
    hits = [(place, hit, r) for r in rows for place, hit in enumerate(r["retrieved"])]
    assert {hit["n_cited"] > 0 for _, hit, _ in hits} == {True, False}
    uses = {}
    for place, hit, r in hits:
        said = "by [1]" in r["trajectories"][0]["steps"][0]["text"]
        assert hit["n_cited"] == int(place == 0 and said)
        uses[hit["id"]] = uses.get(hit["id"], 0) + (place == 0 and said)
    with closing(bank_of(run_dir)) as bank:
        assert {r.id: r.n_used for r in bank.records() if r.id in uses} == uses


def citing(messages, role, sample):
    """The toy world's player, who says in some tasks that it goes by the first lesson."""
    from envs.toy_script import play

    reply = play(messages, role, sample)
    fits = role == "agent" and len(messages[1]["content"]) % 2
    return f"I go by [1].\n{reply}" if fits else reply


def test_another_word_is_refused():
    with pytest.raises(UserError, match=r"memory\.uses"):
        MemoryBank(path="none.sqlite", embedder=None, policy=None, uses="quoted")


def test_uses_are_counted_without_consolidate_and_four_factor_goes_by_them(here, tmp_path):
    keys = (*TOY, "limit=20", "retrieval=four_factor", "retrieval.reliability=usage", "retrieval.top_k=2")

    def uses(run_dir):
        with closing(bank_of(run_dir)) as bank:
            return {r.id: (r.n_used, r.n_used_success) for r in bank.records()}

    off, on = (here(*keys, *more, run_dir=tmp_path / str(len(more)))[0] for more in ((), ("memory.uses=shown",)))
    assert set(uses(off).values()) == {(0, 0)}
    expected = dict.fromkeys(uses(on), (0, 0))
    for r in read_rows(on):
        for hit in r["retrieved"]:
            n, won = expected[hit["id"]]
            expected[hit["id"]] = (n + 1, won + (r["verdict"]["label"] == "success"))
    assert uses(on) == expected and max(expected.values()) > (1, 0)
    assert [r["retrieved"] for r in read_rows(on)] != [r["retrieved"] for r in read_rows(off)]
    again = here(*keys, "memory.uses=shown", run_dir=on)[0]  # resumed: each episode is counted once
    assert uses(again) == expected


def bank_of(run_dir):
    return MemoryBank(path=str(run_dir / "bank.sqlite"), embedder=HashingEmbedder(), policy=Cosine())
