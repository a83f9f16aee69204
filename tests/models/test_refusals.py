"""Answers that are none: failures inside a 200, what a filter took away, an account without credit."""

from __future__ import annotations

from itertools import product

import pytest
from conftest import read_json, read_rows
from provider import completion
from test_remote import ASK, HELLO, model

from core.errors import AttemptOver, InfraError, OverBudget, StopRun, TransientError
from core.jsonl import JsonLines
from core.models import retry
from core.models.base import Role
from core.models.cache import cached
from core.models.fallback import FallbackModel
from core.models.meter import Budget, Meter


def ended(reason, content, **choice):
    message = {"role": "assistant", "content": content}
    return completion("", choices=[{"index": 0, "finish_reason": reason, "message": message} | choice])


PROVIDERS = ("hosted_vllm", "openai", "openrouter", "deepseek")


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_failure_within_an_answer_is_tried_again_and_never_kept(serve, tmp_path, monkeypatch, provider, subtests):
    monkeypatch.setattr(retry, "FIRST_WAIT_S", 0.02)
    server = serve(lambda request, n: (200, ended("error", content, **failed) if n < 4 else completion("at last")))
    told = {"error": {"code": 502, "message": "upstream died"}}
    for number, (failed, content) in enumerate(product((told, {}), ("", "half an ans"))):
        server.requests.clear()
        more = {"cache": "read_write", "cache_path": str(tmp_path / f"replies{number}.sqlite"), "attempts": 2}
        with subtests.test(f"{'told' if failed else 'untold'}, {'cut' if content else 'empty'}"):
            remote = cached(model(server, model=f"{provider}/m", **more))
            with pytest.raises(TransientError, match="upstream died" if failed else "within its answer") as caught:
                remote.chat(ASK)
            assert (caught.value.kind, len(server.requests)) == ("server", 2)
            reply = remote.chat(ASK)  # asked again, not read from the cache
            assert (reply.text, reply.retries, reply.from_cache, len(server.requests)) == ("at last", 1, False, 4)
            assert remote.chat(ASK).from_cache


PRICE = {"prompt": 1.0, "completion": 2.0}  # 25e-6 USD for 11 and 7 tokens
FAILED = ended("error", "half", error={"code": 502, "message": "upstream died"})


@pytest.fixture
def metered(serve, monkeypatch, tmp_path):
    """(role, meter, lines of its log) over a model whose answers are given, the last one for ever."""
    monkeypatch.setattr(retry, "FIRST_WAIT_S", 0.02)

    def make(*answers, wrap=lambda remote: remote, **changes):
        server = serve(lambda request, n: (200, answers[min(n, len(answers)) - 1]))
        log = JsonLines(tmp_path / "calls.jsonl")
        meter = Meter(log=log, episode=Budget(tokens=1000))
        llm = wrap(model(server, **{"attempts": 2, "price_per_mtok": PRICE} | changes))
        return Role(name="agent", llm=llm, temperature=0.0, max_tokens=9, meter=meter), meter, log

    return make


def test_an_answer_that_was_refused_before_the_good_one_is_paid_for(metered):
    role, meter, _ = metered(FAILED, completion("at last"))
    usage = role.chat(HELLO).usage
    assert (usage.calls, usage.prompt_tokens, usage.completion_tokens) == (1, 22, 14)
    assert usage.cost_usd == pytest.approx(50e-6)
    assert meter.totals()["agent"]["cost_usd"] == pytest.approx(50e-6)


@pytest.mark.parametrize(
    ("answer", "tries", "error"),
    [
        (FAILED, 2, TransientError),
        (completion("", choices=[]), 2, InfraError),
        (ended("content_filter", ""), 1, AttemptOver),
    ],
)
def test_answers_that_were_all_refused_are_paid_for(metered, answer, tries, error):
    role, meter, log = metered(answer)
    meter.begin("t")
    with pytest.raises(error) as caught:
        role.chat(HELLO, task="t")
    assert (caught.value.usage.calls, caught.value.usage.tokens) == (0, 18 * tries)
    [line] = log.read()
    assert line["error"] and line["usage"]["completion_tokens"] == 7 * tries
    totals = Meter(log=log).totals()["agent"]  # read by the next start of the run
    assert totals == meter.totals()["agent"]
    assert (totals["calls"], totals["errors"], totals["prompt_tokens"]) == (0, 1, 11 * tries)
    assert totals["cost_usd"] == pytest.approx(25e-6 * tries)
    meter.episode = Budget(tokens=18 * tries)
    with pytest.raises(OverBudget, match="tokens="):
        role.chat(HELLO, task="t")


def test_an_answer_that_tells_of_no_tokens_costs_nothing_known(metered):
    silent = {key: value for key, value in FAILED.items() if key != "usage"}
    role, meter, _ = metered(silent, completion("at last"))
    assert role.chat(HELLO).usage.cost_usd == pytest.approx(25e-6)
    assert meter.totals()["agent"]["prompt_tokens"] == 11


def test_a_fallback_pays_for_those_before_it(metered, serve):
    second = serve(lambda request, n: (200, completion("from two")))
    models = [model(second, model="hosted_vllm/two", price_per_mtok=PRICE)]
    role, _, _ = metered(FAILED, wrap=lambda first: FallbackModel(models=[first, *models]))
    assert role.chat(HELLO).usage.cost_usd == pytest.approx(75e-6)


def test_a_refusal_out_of_the_cache_counts_for_the_episode_and_costs_nothing(metered, tmp_path):
    keys = {"cache_path": str(tmp_path / "replies.sqlite")}
    for mode in ("read_write", "replay"):
        role, meter, log = metered(ended("content_filter", ""), wrap=cached, cache=mode, **keys)
        keys["api_base"] = role.llm.inner.api_base
        with pytest.raises(AttemptOver) as caught:
            role.chat(HELLO)
        assert caught.value.usage.tokens == 18
        log.close()
    assert [line["usage"] is None for line in log.read()] == [False, True]
    assert meter.totals()["agent"]["prompt_tokens"] == 11


def test_an_attempt_that_a_filter_ended_has_what_was_paid_in_its_record(here, serve):
    def answer(request, n):
        return 200, ended("content_filter", "") if len(request["messages"]) > 3 else completion("Thought: hm")

    server = serve(answer)
    words = ("env=toy", "llm=vllm", "embedder=hashing", f"llm.api_base={server.url}", "llm.json_schema=false")
    run_dir, _ = here(*words, "workflow=vanilla", "limit=1")
    [row] = read_rows(run_dir)
    assert row["trajectories"][0]["ended_by"] == "content_filter"
    assert row["usage"]["agent"]["prompt_tokens"] == 11 * len(server.requests) == 22
    assert read_json(run_dir / "summary.json")["calls"]["agent"]["prompt_tokens"] == 22


def test_an_error_that_is_null_is_none(serve):
    server = serve(lambda request, n: (200, ended("stop", "fine", error=None, native_finish_reason="STOP")))
    assert model(server).chat(ASK).text == "fine"


@pytest.mark.parametrize("content", [None, "", " \n"])
def test_an_answer_that_a_filter_took_away_fails_at_once(serve, content):
    server = serve(lambda request, n: (200, ended("content_filter", content)))
    with pytest.raises(InfraError, match="filter") as caught:
        model(server).chat(ASK)
    assert (caught.value.kind, isinstance(caught.value, TransientError)) == ("content_filter", False)
    assert len(server.requests) == 1


def test_what_a_filter_left_is_an_answer(serve):
    server = serve(lambda request, n: (200, ended("content_filter", "the first half")))
    reply = model(server).chat(ASK)
    assert (reply.text, reply.finish_reason) == ("the first half", "content_filter")


POOR = {  # as DeepSeek, OpenRouter, Anthropic and OpenAI say it
    "balance": (402, {"error": {"message": "Insufficient Balance", "code": "invalid_request_error"}}),
    "credits": (402, {"error": {"message": "This request requires more credits, or fewer max_tokens", "code": 402}}),
    "within": (200, ended("error", "", error={"code": 402, "message": "Insufficient credits"})),
    "whole": (200, {"error": {"message": "Insufficient credits", "code": 402}}),
    "anthropic": (
        400,
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing.",
            },
        },
    ),
    "quota": (
        429,
        {
            "error": {
                "message": "You exceeded your current quota, please check your plan and billing details. "
                + "More. " * 60,
                "type": "insufficient_quota",
                "code": "insufficient_quota",
            }
        },
    ),
}


def test_an_account_without_credit_stops_the_run_at_once(serve, subtests):
    server = serve(lambda request, n: POOR[said])
    for provider, said in product(PROVIDERS, POOR):
        server.requests.clear()
        with subtests.test(f"{provider}: {said}"):
            with pytest.raises(StopRun, match="no credit left") as caught:
                model(server, model=f"{provider}/m").chat(ASK)
            assert "same command" in str(caught.value)
            assert len(server.requests) == 1


def test_anthropics_own_api_without_credit_stops_the_run_too(serve, monkeypatch):
    monkeypatch.setenv("SOME_KEY", "sk-test-123")
    server = serve(lambda request, n: POOR["anthropic"])
    with pytest.raises(StopRun, match="no credit left"):
        model(server, model="anthropic/claude-sonnet-4-5", api_key_env="SOME_KEY").chat(ASK)
    assert len(server.requests) == 1


def test_a_run_that_ran_out_of_credit_loses_nothing_and_resumes(serve, here):
    from envs.toy_script import play as toy

    def answer(request, n):
        if not paid and n > 9:
            return POOR["balance"]
        messages = request["messages"]
        role = "agent" if len(messages) > 1 else "judge" if "Status:" in messages[0]["content"] else "extractor"
        return 200, completion(toy(messages, role, 0))

    paid, server = [], serve(answer)
    words = ("env=toy", "llm=vllm", "embedder=hashing", f"llm.api_base={server.url}", "limit=6")
    words += ("llm.json_schema=false",)
    with pytest.raises(StopRun, match="no credit left"):
        here(*words)
    assert len(server.requests) == 10
    paid.append(True)
    rows = read_rows(here(*words)[0])
    assert [row["index"] for row in rows] == list(range(6))
    assert {row["status"] for row in rows} <= {"success", "failure"}


@pytest.mark.parametrize(
    "message",
    [
        "Rate limit reached for m on tokens per min. Please try again in 20ms.",
        "You exceeded your current quota, please check your plan and billing details. Please retry in 22s.",  # Gemini's
    ],
)
def test_a_rate_limit_is_still_tried_again(serve, message):
    limited = {"error": {"message": message, "type": "tokens", "code": "rate_limit_exceeded"}}
    server = serve(lambda request, n: (429, limited) if n == 1 else (200, completion("at last")))
    assert model(server).chat(ASK).text == "at last"
