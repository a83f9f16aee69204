"""The controls for what a lesson says: its facts, its truth, the order of an attempt's steps, its type of task."""

from __future__ import annotations

import signal
import subprocess
from contextlib import ExitStack, closing

import forkserver
import pytest
from conftest import TOY, command, read_json, read_rows, wait_for
from test_memory import lesson, record

from core.errors import UserError
from core.learning.transcript import in_order, steps_of, transcript
from core.memory.bank import MemoryBank
from core.memory.policies.corrupt import Corrupt, negated
from core.memory.policies.cosine import Cosine
from core.memory.policies.recent import Recent
from core.memory.policies.shuffle import Shuffle
from core.models.base import Role
from core.models.embedding import HashingEmbedder
from core.models.offline import ScriptedModel
from core.types import Lesson, Step, Trajectory
from envs.toy_script import play


@pytest.fixture
def opened(tmp_path):
    with ExitStack() as banks:

        def build(policy, records, **more):
            bank = MemoryBank(path=str(tmp_path / "b.sqlite"), embedder=HashingEmbedder(), policy=policy, **more)
            bank.add_many(list(records))
            return banks.enter_context(closing(bank))

        yield build


def item(content, title="T"):
    return Lesson(title=title, description="About it.", content=content)


def test_facts_of_other_lessons_stand_in_the_place_of_a_lessons_own(opened):
    """The word "amber" is exchanged for the other one of its length throughout, the code for the only other code."""
    own = item('Say "amber", then run `ls -a`. Only "amber" opens box 12.', 'The "amber" box')
    other = item('Say "birch" or "elderberry", then `pwd`; box 34.')
    made = [record("open the box", id="own", items=(own,)), record("open a door", id="other", task="2", items=(other,))]
    bank = opened(Corrupt(seed=3), made)
    [hit] = bank.retrieve("open the box")
    assert hit.record.id == "own" and hit.rewritten
    [shown] = hit.record.items
    assert shown.content == 'Say "birch", then run `pwd`. Only "birch" opens box 34.'
    assert shown.title == 'The "birch" box' and shown.description == own.description
    assert bank.get("own").items == (own,)


def test_a_lesson_without_facts_is_negated_sentence_by_sentence(opened):
    plain = item("Check the drawer first. The key is never in the sink!")
    bank = opened(Corrupt(), [record("find the key", id="own", items=(plain,))])
    [hit] = bank.retrieve("find the key")
    assert hit.record.items[0].content == "Do not check the drawer first. The key is in the sink!"


def test_negation():
    pairs = {
        "If the box is locked, ask.": "If the box is not locked, ask.",
        "Do not open it.": "Open it.",
        "It wasn't there.": "It was there.",
        "You should look.": "You should not look.",
        "1. Look. 2. Take it.": "1. Do not look. 2. Do not take it.",
        "Öffne die Tür.": "Never: Öffne die Tür.",
        "": "",
    }
    assert {said: negated(said) for said in pairs} == pairs


def attempt(*actions):
    steps = [Step(text=a, thought="", action=a, observation=f"{a} done") for a in actions]
    values = {"id": "t", "sample": 0, "opening": (), "answer": None, "reward": 0.0, "success": False, "gold": ""}
    return Trajectory(**values, steps=tuple(steps), ended_by="step_limit")


def test_the_steps_of_an_attempt_are_taken_apart_and_put_together():
    text = transcript(attempt("a", "b", "c"))
    steps = steps_of(text)
    assert steps == [f"Action: {a}\nObservation: {a} done" for a in "abc"]
    assert in_order(text, steps) == text
    assert in_order(text, steps[::-1]) == transcript(attempt("c", "b", "a"))
    assert in_order("one\ntwo", ["two", "one"]) == "two\none" and steps_of("one\ntwo") == ["one", "two"]


def test_shuffled_steps_are_the_same_steps_in_another_order_by_seed(opened):
    texts = {n: transcript(attempt(*[f"act{step}" for step in range(n)])) for n in (1, 2, 6)}
    made = [record("q", id=str(n), task=str(n), tick=n, items=(item(text),)) for n, text in texts.items()]
    bank = opened(Shuffle(top_k=3, seed=1), made)
    shown = {hit.record.id: hit.record.items[0].content for hit in bank.retrieve("q")}
    assert list(shown) == ["6", "2", "1"]  # as recent finds them
    assert shown["1"] == texts[1]
    for n in (2, 6):
        assert shown[str(n)] != texts[n] and len(shown[str(n)]) == len(texts[n])
        assert sorted(steps_of(shown[str(n)])) == sorted(steps_of(texts[n]))
        assert shown[str(n)].endswith("How it ended: the limit of steps was reached.")
    assert shown == {hit.record.id: hit.record.items[0].content for hit in bank.retrieve("q")}
    bank.policy = Shuffle(top_k=3, seed=2)
    assert {hit.record.id: hit.record.items[0].content for hit in bank.retrieve("q")}["6"] != shown["6"]


def test_the_newest_records_come_first_and_none_of_the_own_task(opened):
    made = [record(f"q{n}", id=str(n), task=f"t{n}", tick=n, items=(lesson(f"L{n}"),)) for n in range(5)]
    bank = opened(Recent(top_k=2), made)
    assert [hit.record.id for hit in bank.retrieve("q0", exclude_task="t4")] == ["3", "2"]


def test_the_nearest_lesson_of_another_type_is_one_of_the_other_domains(opened):
    words = {"a": "heat the egg", "b": "heat the water", "c": "count the keys"}
    made = [record(text, id=id, task=id, domain="cook" if id != "c" else "count") for id, text in words.items()]
    bank = opened(Cosine(domain="other"), made)
    assert [hit.record.id for hit in bank.retrieve("heat the milk", domain="count")][0] in "ab"
    assert [hit.record.id for hit in bank.retrieve("heat the milk", domain="cook")] == ["c"]
    assert len(bank.retrieve("heat the milk")) == 1  # no type is known: all are searched
    bank.policy = Cosine(domain="other", top_k=9)
    assert len(bank.retrieve("heat the milk", domain="wash")) == 3


def test_where_all_lessons_are_of_the_own_type_none_is_shown(here):
    run, rate = here(*TOY, "arm=other_task", "env.families=1", "limit=4")
    assert rate == 0 and not any(row["retrieved"] for row in read_rows(run))


@pytest.mark.parametrize("arm", ["corrupt", "shuffle"])
def test_killed_it_comes_to_the_same_bytes(here, tmp_path, arm):
    words = (*TOY, f"arm={arm}", "llm.delay_s=0.01", "limit=10")
    whole, _ = here(*words, run_dir=tmp_path / "whole")
    lines = tmp_path / "killed" / "episodes.jsonl"
    line = command(*words, f"run_dir={lines.parent}")
    killed = forkserver.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: lines.exists() and lines.read_text().count("\n") >= 4)
    killed.kill()
    assert killed.wait() == -signal.SIGKILL
    here(*words, run_dir=lines.parent)
    assert lines.read_bytes() == (whole / "episodes.jsonl").read_bytes()


def asks(reply):
    """A role whose model says this of whatever it is asked."""
    return Role(name="extractor", llm=ScriptedModel(script=lambda *_: reply), temperature=0.0, max_tokens=None)


FALSE = "# Memory Item 1\n## Title T\n## Description About it.\n## Content {}\n"


BY_RULE = "Do not check the drawer before anywhere else."


@pytest.mark.parametrize(
    ("reply", "shown"),
    [
        (FALSE.format("Look in the sink before anywhere else."), "Look in the sink before anywhere else."),
        (FALSE.format("Check the drawer before anywhere else."), BY_RULE),  # it is the true one
        (FALSE.format("Wait. " * 30), BY_RULE),  # far longer
        ("I will not write false advice.", BY_RULE),
    ],
)
def test_a_model_makes_lessons_false_and_else_the_rule_does(opened, reply, shown):
    made = [record("find the key", id="own", items=(item("Check the drawer before anywhere else."),))]
    [hit] = opened(Corrupt(by="model", role=asks(reply)), made).retrieve("find the key", exclude_task="another")
    assert (hit.record.items[0].content, hit.fell_back) == (shown, shown == BY_RULE)
    assert hit.rewritten and hit.usage.calls == 1 and hit.usage.tokens > 100


def test_a_run_counts_what_the_model_that_makes_lessons_false_spent(here, tmp_path):
    """Each of 36 boxes after its family's first is shown its lesson with the word spelt backwards: none opens."""
    run, rate = here(*TOY, "arm=corrupt", "retrieval.by=model", run_dir=tmp_path / "model")
    rows, summary = read_rows(run), read_json(run / "summary.json")
    assert rate == 0 and [row["usage"].get("corrupter", {}).get("calls") for row in rows] == [None] + [1] * 39
    assert summary["n_fell_back"] == 0 and summary["tokens"]["corrupter"] > 39 * 100
    assert {call["role"] for call in read_rows(run, "calls.jsonl")} >= {"agent", "judge", "extractor", "corrupter"}
    with pytest.raises(UserError, match="retrieval.when=task"):
        here(*TOY, "arm=corrupt", "retrieval.by=model", "retrieval.when=step", run_dir=tmp_path / "step")
    silent = f"llm.script.path={__name__}.silent"
    run, _ = here(*TOY, "arm=corrupt", "retrieval.by=model", silent, "limit=5", run_dir=tmp_path / "silent")
    assert read_json(run / "summary.json")["n_fell_back"] == 4


def silent(messages, role, sample):
    return "No." if role == "corrupter" else play(messages, role, sample)
