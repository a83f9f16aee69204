"""Answers that are none: failures inside a 200, what a filter took away, an account without credit."""

from __future__ import annotations

import pytest
from conftest import read_rows
from provider import completion
from test_remote import HELLO, model

from core.errors import InfraError, StopRun, TransientError
from core.models import retry
from core.models.reply_cache import cached


def ended(reason, content, **choice):
    message = {"role": "assistant", "content": content}
    return completion("", choices=[{"index": 0, "finish_reason": reason, "message": message} | choice])


@pytest.mark.parametrize("provider", ["hosted_vllm", "openai", "openrouter", "deepseek"])
@pytest.mark.parametrize("failed", [{"error": {"code": 502, "message": "upstream died"}}, {}], ids=["told", "untold"])
@pytest.mark.parametrize("content", ["", "half an ans"], ids=["empty", "cut"])
def test_a_failure_within_an_answer_is_tried_again_and_never_kept(
    serve, tmp_path, monkeypatch, provider, failed, content
):
    monkeypatch.setattr(retry, "FIRST_WAIT_S", 0.02)
    server = serve(lambda request, n: (200, ended("error", content, **failed) if n < 4 else completion("at last")))
    more = {"cache": "read_write", "cache_path": str(tmp_path / "replies.sqlite"), "attempts": 2}
    remote = cached(model(server, model=f"{provider}/m", **more))
    with pytest.raises(TransientError, match="upstream died" if failed else "within its answer") as caught:
        remote.chat(HELLO, role="agent")
    assert (caught.value.kind, len(server.requests)) == ("server", 2)
    reply = remote.chat(HELLO, role="agent")  # asked again, not read from the cache
    assert (reply.text, reply.retries, reply.from_cache, len(server.requests)) == ("at last", 1, False, 4)
    assert remote.chat(HELLO, role="agent").from_cache


def test_an_error_that_is_null_is_none(serve):
    server = serve(lambda request, n: (200, ended("stop", "fine", error=None, native_finish_reason="STOP")))
    assert model(server).chat(HELLO, role="agent").text == "fine"


@pytest.mark.parametrize("content", [None, "", " \n"])
def test_an_answer_that_a_filter_took_away_fails_at_once(serve, content):
    server = serve(lambda request, n: (200, ended("content_filter", content)))
    with pytest.raises(InfraError, match="filter") as caught:
        model(server).chat(HELLO, role="agent")
    assert (caught.value.kind, isinstance(caught.value, TransientError)) == ("content_filter", False)
    assert len(server.requests) == 1


def test_what_a_filter_left_is_an_answer(serve):
    server = serve(lambda request, n: (200, ended("content_filter", "the first half")))
    reply = model(server).chat(HELLO, role="agent")
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


@pytest.mark.parametrize("provider", ["hosted_vllm", "openai", "openrouter", "deepseek"])
@pytest.mark.parametrize("said", POOR)
def test_an_account_without_credit_stops_the_run_at_once(serve, provider, said):
    server = serve(lambda request, n: POOR[said])
    with pytest.raises(StopRun, match="no credit left") as caught:
        model(server, model=f"{provider}/m").chat(HELLO, role="agent")
    assert "same command" in str(caught.value)
    assert len(server.requests) == 1


def test_anthropics_own_api_without_credit_stops_the_run_too(serve, monkeypatch):
    monkeypatch.setenv("SOME_KEY", "sk-test-123")
    server = serve(lambda request, n: POOR["anthropic"])
    with pytest.raises(StopRun, match="no credit left"):
        model(server, model="anthropic/claude-sonnet-4-5", api_key_env="SOME_KEY").chat(HELLO, role="agent")
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
    assert model(server).chat(HELLO, role="agent").text == "at last"
