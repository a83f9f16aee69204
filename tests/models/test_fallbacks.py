"""llm.fallbacks: another model answers where the first one fails for good, and every table says so."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from dataclasses import replace

import forkserver
import pytest
from conftest import REPO, read_json
from provider import completion

from analysis.load import load_runs
from analysis.tables import build_tables, load_episodes
from core.build import expand_fallbacks, fallbacks_of
from core.errors import AttemptOver, InfraError, StopRun, UserError
from core.jsonl import JsonLines
from core.models.base import Request
from core.models.cache import CachedModel
from core.models.fallback import FallbackModel
from core.models.meter import Meter
from core.models.remote import LiteLLMModel
from envs import toy_script

HELLO = [{"role": "user", "content": "hello"}]
ASK = Request(messages=HELLO, role="agent")
TOY = ("env=toy", "embedder=hashing", "limit=4", "workflow=vanilla", "llm=vllm", "llm.attempts=1")
NO_CREDIT = (402, {"error": {"message": "credit balance is too low"}})
BAD = (400, {"error": {"message": "no such thing"}})


def plays(request, n):
    """A model that plays env=toy."""
    return 200, completion(toy_script.play(request["messages"], "agent", 0), model="second-model")


def model(server, name="hosted_vllm/one", **changes):
    return LiteLLMModel(**{"model": name, "api_base": server.url, "timeout_s": 5.0, "attempts": 1} | changes)


def chain(*models):
    return FallbackModel(models=list(models))


def entry(server, *more):
    return f"llm.fallbacks=[{{{','.join(['option:vllm', 'model:hosted_vllm/two', f'api_base:{server.url}', *more])}}}]"


def calls_of(run_dir):
    return [json.loads(line) for line in (run_dir / "calls.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("answer", "tries", "said"),
    [(BAD, 1, "no such thing"), (NO_CREDIT, 1, "no credit left"), ((503, {"error": {"message": "busy"}}), 2, "busy")],
)
def test_the_next_one_answers_once_the_first_one_failed_for_good(serve, answer, tries, said):
    first, second = serve(lambda request, n: answer), serve(lambda request, n: (200, completion("from two")))
    reply = chain(model(first, attempts=2), model(second, "hosted_vllm/two")).chat(replace(ASK, seed=4))
    assert (reply.text, reply.fallback) == ("from two", "hosted_vllm/two")
    [failed] = reply.failed
    assert failed["model"] == "hosted_vllm/one" and said in failed["error"]
    assert (len(first.requests), len(second.requests)) == (tries, 1)  # its own retries first
    assert second.requests[0]["seed"] == 4


def test_one_that_answers_is_the_only_one_asked(serve):
    first, second = serve(lambda request, n: (200, completion("from one"))), serve(plays)
    reply = chain(model(first), model(second)).chat(ASK)
    assert (reply.text, reply.fallback, reply.failed) == ("from one", "", [])
    assert second.requests == []


def test_what_the_agent_ran_into_itself_asks_nobody_else(serve):
    long = {"error": {"message": "this model's maximum context length is 10 tokens"}}
    first, second = serve(lambda request, n: (400, long)), serve(plays)
    with pytest.raises(AttemptOver):
        chain(model(first), model(second)).chat(ASK)
    assert second.requests == []


@pytest.mark.parametrize(
    ("answers", "raised"),
    [((NO_CREDIT, NO_CREDIT), StopRun), ((NO_CREDIT, BAD), InfraError), ((BAD, NO_CREDIT), InfraError)],
)
def test_the_run_stops_only_where_no_model_can_answer_any_call(serve, answers, raised):
    servers = [serve(lambda request, n, answer=answer: answer) for answer in answers]
    with pytest.raises(raised, match="Then its fallback: ") as caught:
        chain(*map(model, servers)).chat(ASK)
    assert isinstance(caught.value, StopRun) == (raised is StopRun)


def test_a_schema_is_for_the_models_that_take_one(serve):
    first, second = serve(lambda request, n: BAD), serve(lambda request, n: (200, completion("{}")))
    both = chain(model(first, json_schema=True), model(second, json_schema=False))
    both.chat(Request(messages=HELLO, role="judge", schema={"type": "object"}))
    assert "response_format" in first.requests[0] and "response_format" not in second.requests[0]


def test_each_model_has_its_own_cached_answers(serve, tmp_path):
    """A fallback's answer is kept as its own: once the first model is back, it is asked."""
    down = [True]
    first = serve(lambda request, n: BAD if down[0] else (200, completion("from one")))
    second = serve(lambda request, n: (200, completion("from two")))
    path = str(tmp_path / "replies.sqlite")

    def both(mode):
        models = (model(first), model(second, "hosted_vllm/two"))
        return chain(*(CachedModel(inner=each, path=path, mode=mode) for each in models))

    texts = [(reply.text, reply.fallback, reply.from_cache) for reply in (ask(both) for _ in range(2))]
    assert texts == [("from two", "hosted_vllm/two", False), ("from two", "hosted_vllm/two", True)]
    replayed = ask(both, "replay")
    assert (replayed.text, replayed.fallback, replayed.from_cache) == ("from two", "hosted_vllm/two", True)
    down[0] = False
    back = ask(both)
    assert (back.text, back.fallback, back.from_cache, back.failed) == ("from one", "", False, [])
    with sqlite3.connect(path) as file:
        kept = dict(file.execute("SELECT model, reply FROM replies"))
    assert {name: json.loads(reply)["text"] for name, reply in kept.items()} == {
        "hosted_vllm/one": "from one",
        "hosted_vllm/two": "from two",
    }
    assert not any("fallback" in json.loads(reply) for reply in kept.values())


def test_what_a_refused_answer_took_is_paid_once_and_replayed_with_its_fallbacks(serve, tmp_path):
    first = serve(lambda request, n: (200, completion("", choices=[])))  # 18 tokens, without an answer
    second = serve(lambda request, n: (200, completion("from two")))
    log, seen = tmp_path / "calls.jsonl", []
    facts = {"role": "agent", "task": "t", "sample": 0, "requested": "one", "messages": HELLO}
    for mode in ("read_write", "read_write", "replay"):
        models = (model(first), model(second, "hosted_vllm/two"))
        path = str(tmp_path / "replies.sqlite")
        both = chain(*(CachedModel(inner=each, path=path, mode=mode) for each in models))
        log.unlink(missing_ok=True)
        with closing(Meter(log=JsonLines(log))) as meter, meter.call(facts) as answered:
            answered(reply := both.chat(replace(ASK, seed=1)))
        read_again = Meter(log=JsonLines(log)).totals()["total"]
        assert read_again == meter.totals()["total"]
        seen.append((reply.from_cache, reply.usage.tokens, read_again["prompt_tokens"]))
        both.close()
    # What the episode is charged, as it was recorded; and what the run really paid, of which 11 are the prompts.
    assert seen == [(False, 36, 22), (True, 36, 11), (True, 36, 0)]
    assert (len(first.requests), len(second.requests)) == (2, 1)


def ask(both, mode="read_write"):
    return both(mode).chat(replace(ASK, seed=1))


def test_replay_calls_nobody_also_not_a_fallback(serve):
    first = model(serve(plays), cache="replay", fallbacks=[model(serve(plays))])
    with pytest.raises(UserError, match="llm.cache=replay calls no model"):
        fallbacks_of(first)


@pytest.fixture
def broken_run(here, serve, tmp_path, capsys):
    """A run whose first model has no credit from the third call on."""
    first = serve(lambda request, n: plays(request, n) if n < 3 else NO_CREDIT)
    second = serve(plays)
    run_dir, _ = here(*TOY, f"llm.api_base={first.url}", entry(second), run_dir=tmp_path / "mixed")
    (tmp_path / "said").write_text(capsys.readouterr().out)
    return run_dir, first, second


def test_a_run_records_who_answered_and_who_failed(broken_run, tmp_path):
    run_dir, first, second = broken_run
    calls, summary = calls_of(run_dir), read_json(run_dir / "summary.json")
    n = len(calls) - 2
    assert summary["complete"] and n > 0
    assert [call.get("fallback") for call in calls] == [None, None] + ["hosted_vllm/two"] * n
    assert all("failed" not in call for call in calls[:2])
    for call in calls[2:]:
        assert (call["requested"], call["model"]) == ("hosted_vllm/default", "second-model")
        assert [each["model"] for each in call["failed"]] == ["hosted_vllm/default"]
        assert "no credit left" in call["failed"][0]["error"]
    assert summary["fallbacks"] == {"hosted_vllm/two": n}
    assert summary["drift"] == {}  # another model was asked: that is no drift
    assert len(second.requests) == n and len(first.requests) == n + 2
    said = " ".join((tmp_path / "said").read_text().split())
    assert f"hosted_vllm/two: {n} calls" in said
    assert said.count("calls are answered by the fallback hosted_vllm/two") == 1


def test_every_table_says_how_many_calls_another_model_answered(broken_run, here, serve, tmp_path):
    run_dir, _, second = broken_run
    alone, _ = here(*TOY, f"llm.api_base={second.url}", run_dir=tmp_path / "alone")
    n = len(calls_of(run_dir))
    note = f": {n - 2} of {n} calls were answered by a fallback: hosted_vllm/two."
    notes = build_tables(load_episodes([str(run_dir)]), "all")[0].notes
    assert [each for each in notes if "fallback" in each] == [f"no_memory{note}"]
    assert load_runs([alone])["n_calls"].isna().all()
    words = [sys.executable, "-m", "scripts.compare", alone, run_dir]
    done = forkserver.run(words, cwd=REPO, capture_output=True, text=True, timeout=120, check=True)
    assert f"\nB{note}\n" in done.stdout and "\nA: " not in done.stdout
    (run_dir / "calls.jsonl").unlink()
    assert f"no_memory{note}" in build_tables(load_episodes([str(run_dir)]), "all")[0].notes


def test_they_are_a_part_of_what_a_run_is(broken_run, here, serve, tmp_path):
    run_dir, first, second = broken_run
    begun = read_json(run_dir / "manifest.json")["fingerprint"]["config"]["llm"]["fallbacks"]
    assert [(each["_target_"], each["model"]) for each in begun] == [("LiteLLMModel", "hosted_vllm/two")]
    assert "timeout_s" not in begun[0]
    before = (run_dir / "episodes.jsonl").read_bytes()
    here(*TOY, f"llm.api_base={first.url}", entry(second, "timeout_s:9"), run_dir=run_dir)  # changes no result
    assert (run_dir / "episodes.jsonl").read_bytes() == before
    with pytest.raises(UserError, match="made with another configuration"):
        here(*TOY, f"llm.api_base={first.url}", run_dir=run_dir)


def test_a_key_of_a_fallback_reaches_no_file(here, serve, tmp_path, monkeypatch):
    secret = "sk-fallback-1234567890abcdef"
    monkeypatch.setenv("SECOND_KEY", secret)
    first, second = serve(lambda request, n: BAD), serve(lambda request, n: (401, {"error": {"message": secret}}))
    words = (*TOY, f"llm.api_base={first.url}", entry(second, "api_key_env:SECOND_KEY"), "retry_broken=0")
    with pytest.raises(StopRun):
        here(*words, run_dir=tmp_path / "run")
    assert second.headers[0]["Authorization"] == f"Bearer {secret}"
    assert "hosted_vllm/two refused the key" in (tmp_path / "run" / "calls.jsonl").read_text()
    written = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert not any(secret in path.read_text(errors="replace") for path in written)


def test_an_option_is_written_out_with_what_it_builds_on(compose):
    cfg = compose("llm=openai", "llm.cache=read_write", "llm.fallbacks=[anthropic,local]")
    expand_fallbacks(cfg)
    first, second = cfg.llm.fallbacks
    assert (first.model, first.api_key_env, first.attempts) == ("anthropic/claude-sonnet-4-5", "ANTHROPIC_API_KEY", 4)
    assert (first.cache, second.cache) == ("read_write", "read_write")  # a replay needs them all
    assert second._target_ == "core.models.local.LocalModel"
    whole = [dict(each) for each in cfg.llm.fallbacks]
    expand_fallbacks(cfg)
    assert [dict(each) for each in cfg.llm.fallbacks] == whole


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("llm.fallbacks=vllm", "give a list"),
        ("llm.fallbacks=[nowhere]", "there is no option nowhere of llm: choose anthropic"),
        ("llm.fallbacks=[remote]", "the option remote needs model"),
        ("llm.fallbacks=[3]", "names no option"),
        ("llm.fallbacks=[{model:a}]", "names no option"),
        ("llm.fallbacks=[{option:vllm,modle:a}]", "modle"),
        ("llm.fallbacks=[{option:vllm,attempts:many}]", "attempts='many'"),
        ("llm.fallbacks=[openai]", "OPENAI_API_KEY"),
        ("llm.fallbacks=[{option:vllm,fallbacks:[vllm]}]", "fallbacks of its own"),
    ],
)
def test_a_mistake_in_them_is_one_sentence(here, monkeypatch, word, said):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(UserError) as caught:
        here("env=toy", "embedder=hashing", "llm=scripted", "limit=1", word)
    assert said in str(caught.value)
