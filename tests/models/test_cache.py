"""The caches: the same question is asked once, k samples stay k, replay asks nobody, a text is embedded once."""

from __future__ import annotations

import itertools
import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from conftest import TOY, read_json

from core.errors import StopRun, UserError
from core.models.base import Request
from core.models.cache import CachedEmbedder, CachedModel, KeyValueFile, cached, recorded_by
from core.models.embedding import HashingEmbedder
from core.models.offline import ScriptedModel

HELLO = [{"role": "user", "content": "hello"}]
CALL = Request(messages=HELLO, role="agent", seed=1, temperature=0.5, max_tokens=9)


def counting(tmp_path, mode="read_write", name="scripted"):
    numbers = itertools.count(1)
    inner = ScriptedModel(script=lambda messages, role, sample: f"answer {next(numbers)} \\frac \ud83d", name=name)
    return CachedModel(inner=inner, path=str(tmp_path / "replies.sqlite"), mode=mode)


def test_the_same_request_is_answered_from_the_cache_exactly(tmp_path):
    model = counting(tmp_path)
    first, second = model.chat(CALL), model.chat(CALL)
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
    assert model.chat(CALL).text != model.chat(replace(CALL, **change)).text


def test_another_model_has_other_answers(tmp_path):
    one, two = counting(tmp_path), counting(tmp_path, name="other")
    one.chat(CALL)
    assert not two.chat(CALL).from_cache


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
            assert model.chat(CALL).text == said
    assert model.chat(CALL).from_cache


def test_k_samples_stay_k_also_when_read_again(tmp_path):
    texts = [counting(tmp_path).chat(replace(CALL, sample=n)).text for n in (0, 0, 0)]
    assert len(set(texts)) == 1
    model = counting(tmp_path)
    first = [model.chat(replace(CALL, sample=n)).text for n in range(1, 6)]
    assert len(set(first)) == 5
    assert [counting(tmp_path).chat(replace(CALL, sample=n)).text for n in range(1, 6)] == first


def test_a_miss_in_replay_stops_and_calls_nobody(tmp_path):
    counting(tmp_path).chat(CALL)
    replay = counting(tmp_path, "replay")
    assert replay.chat(CALL).from_cache
    with pytest.raises(StopRun, match="holds no answer"):
        replay.chat(replace(CALL, seed=3))


def test_a_file_says_whose_replies_it_holds_and_of_which_day(tmp_path):
    with closing(counting(tmp_path)) as model:
        model.chat(CALL)
    path = str(tmp_path / "replies.sqlite")
    assert recorded_by(path) == ("scripted", datetime.now(UTC).date().isoformat())
    (tmp_path / "replies.sqlite").chmod(0o400)
    assert counting(tmp_path, "replay").chat(CALL).from_cache
    assert sorted(file.name for file in tmp_path.iterdir()) == ["replies.sqlite"]


def test_an_embedder_in_replay_embeds_nothing(tmp_path):
    path = str(tmp_path / "e.sqlite")
    with closing(CachedEmbedder(inner=HashingEmbedder(dim=2), path=path)) as embedder:
        known = embedder.embed(["a text"])
    replay = CachedEmbedder(inner=HashingEmbedder(dim=2), path=path, mode="replay")
    assert (replay.embed(["a text"]) == known).all()
    with pytest.raises(StopRun, match="holds no vector of this text: 'another'"):
        replay.embed(["another"])
    with pytest.raises(UserError, match="embedder.mode=on: choose off, read_write or replay"):
        CachedEmbedder(inner=HashingEmbedder(dim=2), path=path, mode="on")


def test_a_mode_that_is_none_and_a_replay_of_nothing_are_refused(tmp_path):
    with pytest.raises(UserError, match="choose off"):
        cached(ScriptedModel(script=lambda *_: "", cache="on"))
    with pytest.raises(UserError, match="does not exist"):
        counting(tmp_path, "replay")


def test_a_damaged_cache_is_named(tmp_path):
    (tmp_path / "replies.sqlite").write_bytes(b"not a database, but long enough to look like one" * 50)
    with pytest.raises(UserError, match="cannot be used"):
        counting(tmp_path).chat(CALL)


def make(path, statement, *row):
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"CREATE TABLE {statement}")
        db.execute(f"INSERT INTO {statement.split()[0]} VALUES ({', '.join('?' * len(row))})", row)


FULL = Request(messages=HELLO, role="judge", sample=2, temperature=None, schema={"type": "object"}, more={"top_p": 0.9})
OLD_KEYS = {  # of these requests to `aye`
    "1906988484542b0d936b0dfe3283636b6a1abaf6c0e49c8e7bf40f54e39fb3b2": CALL,
    "0ea6ac40e6109e3ae281a07f3b0e4a2bbc0aa7442a7749a4d6610987eb6941ca": FULL,
}


@pytest.mark.parametrize("key", OLD_KEYS)
def test_a_file_of_the_first_version_still_answers_and_takes_new_answers(tmp_path, key):
    usage = {"calls": 1, "prompt_tokens": 1, "completion_tokens": 1, "cached_tokens": 0, "reasoning_tokens": 0}
    kept = {"text": "of old", "usage": usage | {"cost_usd": 0.0}, "finish_reason": "stop", "model": "scripted"}
    columns = "key TEXT PRIMARY KEY, model TEXT NOT NULL, role TEXT NOT NULL, reply TEXT NOT NULL"
    row = (key, "scripted", "agent", json.dumps(kept | {"sent": {}, "reasoning": ""}))
    make(tmp_path / "replies.sqlite", f"replies ({columns})", *row)
    model = CachedModel(inner=ScriptedModel(script=aye), path=str(tmp_path / "replies.sqlite"), mode="read_write")
    asked, another = OLD_KEYS[key], replace(OLD_KEYS[key], sample=1)
    assert (model.chat(asked).text, model.chat(another).text) == ("of old", "aye")
    assert model.chat(another).from_cache


class Counting(HashingEmbedder):
    asked = 0

    def measure(self, texts):
        self.asked += len(texts)
        return super().measure(texts)


def test_embeddings_of_the_first_version_are_read_and_each_text_is_embedded_once(tmp_path):
    key = "373d66be646c0558cbeb7f675facfee5e24040c60a8d2ab6588d938c795d30c9"  # "old text" by hashing-2
    columns = "key TEXT PRIMARY KEY, vector BLOB NOT NULL"
    make(tmp_path / "e.sqlite", f"embeddings ({columns})", key, np.array([0.6, 0.8], dtype=np.float32).tobytes())
    for asked in (1, 0):  # the second time both come out of the file
        inner = Counting(dim=2)
        cache = CachedEmbedder(inner=inner, path=str(tmp_path / "e.sqlite"))
        vectors = cache.embed(["old text", "new text", "new text"])
        assert np.allclose(vectors[0], [0.6, 0.8])
        assert inner.asked == asked
        assert np.array_equal(vectors[1], inner.embed(["new text"])[0])
        cache.close()


def test_what_a_cache_holds_already_stays(tmp_path):
    file = KeyValueFile(path=str(tmp_path / "new" / "kv"), what="a", table="t", columns="key TEXT PRIMARY KEY, value")
    file.put("k", "first")
    file.put("k", "second")
    assert (file.get("k"), file.get("none")) == ("first", None)
    file.close()
    assert file.get("k") == "first"  # opened again


def test_a_disk_that_refuses_stops_the_run(tmp_path):
    (tmp_path / "a file").write_text("")
    for path in (tmp_path, tmp_path / "a file" / "replies.sqlite"):  # a folder, a folder that cannot be made
        with pytest.raises(StopRun, match="cannot be read or written"):
            CachedModel(inner=ScriptedModel(script=aye), path=str(path), mode="read_write").chat(CALL)
    full = counting(tmp_path)
    full.chat(CALL)
    pages = full._file._db.execute("PRAGMA page_count").fetchone()[0]
    full._file._db.execute(f"PRAGMA max_page_count = {pages}")  # as a full disk: no page can be added
    with pytest.raises(StopRun, match="full"):
        for sample in range(1, 999):
            full.chat(replace(CALL, sample=sample))


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
