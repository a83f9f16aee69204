"""The response cache: the same question is asked once, k samples stay k, replay asks nobody."""

from __future__ import annotations

import itertools

import pytest
from conftest import TOY, read_json

from core.errors import StopRun, UserError
from core.models.reply_cache import CachedModel, cached
from core.models.scripted import ScriptedModel

HELLO = [{"role": "user", "content": "hello"}]
CALL = {"role": "agent", "sample": 0, "seed": 1, "temperature": 0.5, "max_tokens": 9, "schema": None}


def counting(tmp_path, mode="read_write", name="scripted"):
    numbers = itertools.count(1)
    inner = ScriptedModel(script=lambda messages, role, sample: f"answer {next(numbers)} \\frac \ud83d", name=name)
    return CachedModel(inner=inner, path=str(tmp_path / "replies.sqlite"), mode=mode)


def test_the_same_request_is_answered_from_the_cache_exactly(tmp_path):
    model = counting(tmp_path)
    first, second = model.chat(HELLO, **CALL), model.chat(HELLO, **CALL)
    assert (first.from_cache, second.from_cache) == (False, True)
    assert (first.text, first.usage, first.sent) == (second.text, second.usage, second.sent)


@pytest.mark.parametrize(
    "change",
    [
        {"role": "judge"},
        {"sample": 1},
        {"seed": 2},
        {"seed": None},
        {"temperature": 0.6},
        {"max_tokens": 10},
        {"schema": {"type": "object"}},
    ],
    ids=str,
)
def test_whatever_differs_in_the_request_is_another_answer(tmp_path, change):
    model = counting(tmp_path)
    assert model.chat(HELLO, **CALL).text != model.chat(HELLO, **CALL | change).text


def test_another_model_has_other_answers(tmp_path):
    one, two = counting(tmp_path), counting(tmp_path, name="other")
    one.chat(HELLO, **CALL)
    assert not two.chat(HELLO, **CALL).from_cache


def aye(messages, role, sample):
    return "aye"


class Nay:
    def __call__(self, messages, role, sample):
        return "nay"


def test_another_script_has_other_answers(tmp_path):
    for _ in range(2):  # the second time out of the cache
        for script, said in ((aye, "aye"), (Nay(), "nay")):
            inner = ScriptedModel(script=script)
            model = CachedModel(inner=inner, path=str(tmp_path / "replies.sqlite"), mode="read_write")
            assert model.chat(HELLO, **CALL).text == said
    assert model.chat(HELLO, **CALL).from_cache


def test_k_samples_stay_k_also_when_read_again(tmp_path):
    texts = [counting(tmp_path).chat(HELLO, **CALL | {"sample": n}).text for n in (0, 0, 0)]
    assert len(set(texts)) == 1
    model = counting(tmp_path)
    first = [model.chat(HELLO, **CALL | {"sample": n}).text for n in range(1, 6)]
    assert len(set(first)) == 5
    assert [counting(tmp_path).chat(HELLO, **CALL | {"sample": n}).text for n in range(1, 6)] == first


def test_a_miss_in_replay_stops_and_calls_nobody(tmp_path):
    counting(tmp_path).chat(HELLO, **CALL)
    replay = counting(tmp_path, "replay")
    assert replay.chat(HELLO, **CALL).from_cache
    with pytest.raises(StopRun, match="holds no answer"):
        replay.chat(HELLO, **CALL | {"seed": 3})


def test_a_mode_that_is_none_and_a_replay_of_nothing_are_refused(tmp_path):
    with pytest.raises(UserError, match="choose off"):
        cached(ScriptedModel(script=lambda *_: "", cache="on"))
    with pytest.raises(UserError, match="does not exist"):
        counting(tmp_path, "replay")


def test_a_damaged_cache_is_named(tmp_path):
    (tmp_path / "replies.sqlite").write_bytes(b"not a database, but long enough to look like one" * 50)
    with pytest.raises(UserError, match="cannot be used"):
        counting(tmp_path).chat(HELLO, **CALL)


def test_a_finished_run_replayed_makes_no_call_and_gives_the_same_bytes(here, tmp_path):
    path = f"llm.cache_path={tmp_path / 'replies.sqlite'}"
    first, _ = here(*TOY, "llm.cache=read_write", path, run_dir=tmp_path / "first")
    second, _ = here(*TOY, "llm.cache=replay", path, run_dir=tmp_path / "second")
    assert (second / "episodes.jsonl").read_bytes() == (first / "episodes.jsonl").read_bytes()
    calls = read_json(second / "summary.json")["calls"]
    assert {name: calls[name]["calls"] for name in ("agent", "judge", "extractor")} == dict.fromkeys(
        ("agent", "judge", "extractor"), 0
    )
    assert calls["agent"]["from_cache"] == 40
    assert calls["agent"]["prompt_tokens"] == 0
    with pytest.raises(StopRun, match="holds no answer"):
        here(*TOY, "llm.cache=replay", path, "seed=1", run_dir=tmp_path / "third")


def test_a_replay_ends_its_episodes_at_the_same_budget(here, tmp_path):
    more = (*TOY, f"llm.cache_path={tmp_path / 'replies.sqlite'}", "budget.episode.tokens=300", "limit=6")
    more += ("llm.script.path=test_calls.mumble", "max_steps=9")
    first, _ = here(*more, "llm.cache=read_write", run_dir=tmp_path / "first")
    second, _ = here(*more, "llm.cache=replay", run_dir=tmp_path / "second")
    assert (second / "episodes.jsonl").read_bytes() == (first / "episodes.jsonl").read_bytes()
    assert b"budget.episode.tokens=300" in (first / "episodes.jsonl").read_bytes()
