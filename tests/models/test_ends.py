"""Why a reply ended and why a request was refused, in every server's words (wordings.py): what a run makes of it."""

from __future__ import annotations

import json
import time
from contextlib import closing
from itertools import product

import pytest
from conftest import read_json, read_rows
from provider import Provider, completion
from wordings import CONTEXT, ENDS, FILTERED, MORE_CONTEXT, MORE_FILTERED, MORE_OTHERS, OTHERS, said

from core.errors import AttemptOver, InfraError, StopRun
from core.models import retry
from core.models.base import Request, reply_limit
from core.models.faults import end_of, refused_for
from core.models.remote import LiteLLMModel

HELLO = [{"role": "user", "content": "hello"}]
ASK = Request(messages=HELLO, role="agent")
CLIENTS = ("openai", "litellm")


@pytest.fixture(autouse=True)
def test_a_short_limit_is_the_agents_and_does_not_cut_what_is_learned():
    def limit(role, own, of_role=None):
        return reply_limit(Request(messages=HELLO, role=role, max_tokens=of_role), own)

    assert [limit(role, 100) for role in ("agent", "judge", "extractor", "selector")] == [100, 1024, 1024, 1024]
    assert (limit("judge", 4096), limit("judge", None), limit("judge", 100, of_role=50)) == (4096, None, 50)


def quickly(monkeypatch):
    monkeypatch.setattr(retry, "_wait_s", lambda error, number: 0.0)


@pytest.fixture(scope="module")
def outcome():
    """(class and kind of the error, or the reply; number of tries) of one call, to a server that answers so."""
    answers, models = [], {}
    server = Provider(lambda request, n: answers[-1])

    def ask(answer, client="openai", request=ASK, model="hosted_vllm/m", **keys):
        answers.append(answer)
        kept = models.get((client, model))  # a model that has no memory of earlier calls, with its connections
        if kept is None:
            kept = LiteLLMModel(model=model, client=client, api_base=server.url, timeout_s=30.0, attempts=2, **keys)
            models[client, model] = kept
        kept._worked, kept._blocked, kept._longest = False, 0, 0
        server.requests.clear()
        try:
            reply = kept.chat(request)
            got = f"{reply.finish_reason}: {reply.text}"
        except (InfraError, StopRun) as error:
            got = f"{type(error).__name__} {getattr(error, 'kind', '')}".strip()
        return got, sum("messages" in asked for asked in server.requests)  # litellm asks Ollama about the model, too

    yield ask
    for model in models.values():
        model.close()
    server.close()


# The names that litellm is asked about as well: one of each status and form of a body, and of each kind of words.
BY_LITELLM = {
    "context": "OpenAI; OpenAI, code alone; vLLM, nothing left; llama.cpp, while it writes; Ollama, input; TGI; "
    "Anthropic; Cerebras, without a text; nginx; Zhipu, Chinese; escaped; OpenRouter, within; DeepInfra; Cloudflare; "
    "MiniMax, in a 200; in a 200",
    "filtered": "Azure; Azure, code alone; Zhipu, escaped; OpenRouter; Mistral; Gemini; Gemini, no choices at all; "
    "Gemini, a choice without a message; MiniMax; by law; unprocessable; Cloudflare; ModSecurity; F5, as a 200; "
    "inside a reply",
    "others": "tokens per minute; Groq's 413 for a minute; day's tokens; reply limit, OpenAI; "
    "reply limit alone fills it; temperature; turns; Go's context; queue; filter is down; outage page; wrong key; "
    "no permission; bare page; location; no credit; policy about data",
}


def asked_about(table, kind, client):
    """The rows of a table that a client is asked about."""
    return table if client == "openai" else {name: table[name] for name in BY_LITELLM[kind].split("; ")}


@pytest.mark.parametrize("client", ["openai", "litellm"])
def test_a_prompt_that_is_too_long_ends_the_attempt(outcome, client, subtests):
    for name, answer in asked_about(CONTEXT, "context", client).items():
        with subtests.test(name):
            assert outcome(answer, client) == ("AttemptOver context", 1)


@pytest.mark.parametrize("client", CLIENTS)
def test_what_a_filter_refuses_ends_the_attempt(outcome, client, subtests):
    for name, answer in asked_about(FILTERED, "filtered", client).items():
        with subtests.test(name):
            assert outcome(answer, client) == ("AttemptOver content_filter", 1)


@pytest.mark.parametrize("client", CLIENTS)
def test_other_refusals_are_neither(outcome, client, subtests):
    for name, (*answer, wanted) in asked_about(OTHERS, "others", client).items():
        tries, limit = 2 if wanted.startswith("Transient") else 1, "reply limit alone fills it"
        request = Request(messages=HELLO, role="agent", max_tokens=9000) if name == limit else ASK
        with subtests.test(name):
            assert outcome(tuple(answer), client, request) == (wanted, tries)


@pytest.mark.parametrize(
    ("kinds", "sentences"),
    [
        (("context",), MORE_CONTEXT),
        (("content_filter",), MORE_FILTERED),
        ((None, "rate_limit"), MORE_OTHERS),
    ],
)
def test_further_sentences(kinds, sentences):
    for sentence in sentences:
        for body in (json.dumps(said(sentence, type="invalid_request_error")), sentence):
            assert refused_for(400, body) in kinds, sentence


def test_providers_of_litellms_own_are_read_alike(outcome, monkeypatch):
    monkeypatch.setenv("SOME_KEY", "sk-test-123")
    for provider in ("openai", "anthropic"):
        keys = {"model": f"{provider}/m", "api_key_env": "SOME_KEY"}
        for table, kind in ((CONTEXT, "context"), (FILTERED, "content_filter")):
            for name in ("Anthropic", "DashScope"):
                got = outcome(table[name], "litellm", **keys)
                assert got == (f"AttemptOver {kind}", 1), (provider, name)


def ended(reason, text="The answer is 4.", **message):
    message = {"role": "assistant", "content": text} | message
    return 200, completion("", choices=[{"index": 0, "finish_reason": reason, "message": message}])


@pytest.mark.parametrize("client", CLIENTS)
def test_every_servers_word_for_a_replys_end(outcome, client, subtests):
    wanted = {"context": ("AttemptOver context", 1), "broken": ("TransientError server", 2)}
    for meaning, words in ENDS.items():
        for word in words.split()[: None if client == "openai" else 4]:
            with subtests.test(f"{meaning}: {word}"):
                assert end_of(word) == (None if meaning == "broken" else meaning)
                assert outcome(ended(word), client) == wanted.get(meaning, (f"{meaning}: The answer is 4.", 1))


@pytest.mark.parametrize("client", CLIENTS)
def test_a_reply_without_a_reason_is_one_if_it_holds_anything(outcome, client):
    for reason in (None, "", "null"):
        assert outcome(ended(reason), client) == ("stop: The answer is 4.", 1)
        assert outcome(ended(reason, None), client) == ("TransientError server", 2)
    assert outcome(ended("stop", None), client) == ("stop: ", 1)
    assert outcome(ended("SAFETY", ""), client) == ("AttemptOver content_filter", 1)


def test_what_a_router_adds_about_the_end_behind_it_is_not_the_reason(outcome, monkeypatch):
    monkeypatch.setenv("SOME_KEY", "sk-test-123")
    body = ended("stop")[1]
    body["choices"][0]["native_finish_reason"] = "something_new"
    for client in CLIENTS:
        assert outcome((200, body), client) == ("stop: The answer is 4.", 1)
    for provider in ("openrouter", "mistral", "xai", "together_ai"):
        keys = {"model": f"{provider}/m", "api_key_env": "SOME_KEY"}
        assert outcome((200, body), "litellm", **keys) == ("stop: The answer is 4.", 1)
        assert outcome(ended("something_new"), "litellm", **keys) == ("TransientError server", 2)


def test_reasons_of_anthropic_and_ollama_that_litellm_does_not_know(outcome, monkeypatch):
    monkeypatch.setenv("SOME_KEY", "sk-test-123")
    usage = {"input_tokens": 5, "output_tokens": 2}
    reply = {"id": "1", "type": "message", "role": "assistant", "model": "m", "usage": usage}
    reply["content"] = [{"type": "text", "text": "half"}]
    ollama = {"model": "m", "created_at": "2026-01-01T00:00:00Z", "message": {"role": "assistant", "content": "half"}}
    ollama |= {"done": True, "prompt_eval_count": 5, "eval_count": 2}
    for reason, wanted in (
        ("end_turn", ("stop: half", 1)),
        ("max_tokens", ("length: half", 1)),
        ("model_context_window_exceeded", ("AttemptOver context", 1)),
        ("overloaded", ("TransientError server", 2)),
    ):
        keys = {"model": "anthropic/m", "api_key_env": "SOME_KEY"}
        assert outcome((200, reply | {"stop_reason": reason}), "litellm", **keys) == wanted
        answer = 200, ollama | {"done_reason": reason}
        assert outcome(answer, "litellm", model="ollama_chat/m") == wanted


# Words that say nothing


LONG = [{"role": "user", "content": f"Solve it. {'word ' * 2000}"}]  # about 2500 tokens


def listing(server, **facts):
    server.models, server.facts = ["m"], facts
    return server


WINDOWS = (
    {"max_model_len": 2600},
    {"context_length": 2600},
    {"max_context_length": 2600},
    {"loaded_context_length": 2600, "max_context_length": 131072},
    {"meta": {"n_ctx": 2600, "n_ctx_train": 131072}},
    {"context_window": 2600},
)


def test_a_prompt_as_long_as_the_window_that_the_server_lists_was_too_long(serve, subtests):
    server = serve(lambda request, n: (status, {"error": {"message": "Bad request"}}))
    for facts, status in product(WINDOWS, (400, 422, 500)):
        listing(server, **facts).listed = 0
        server.requests.clear()
        model = LiteLLMModel(model="hosted_vllm/m", client="openai", api_base=server.url, attempts=1)
        with subtests.test(f"{status}, {facts}"), closing(model):
            with pytest.raises(AttemptOver, match="window of 2600") as caught:
                model.chat(Request(messages=LONG, role="agent"))
            assert (caught.value.kind, len(server.requests), server.listed) == ("context", 1, 1)
            with pytest.raises(InfraError) as short:
                model.chat(ASK)
            assert short.value.kind in ("bad_request", "server") and server.listed == 1


@pytest.mark.parametrize("client", CLIENTS)
def test_a_refusal_that_vanishes_with_a_shorter_prompt_was_one_for_length(serve, client):
    def answer(request, n):
        size = sum(len(message["content"]) for message in request["messages"])
        return (400, {"error": {"message": "Bad request"}}) if size > 4000 else (200, completion("fine"))

    server = serve(answer)
    model = LiteLLMModel(model="hosted_vllm/m", client=client, api_base=server.url)
    assert model.chat(ASK).text == "fine"
    with pytest.raises(AttemptOver, match="shorter messages") as caught:
        model.chat(Request(messages=LONG, role="agent", max_tokens=50))
    assert (caught.value.kind, caught.value.usage.calls, caught.value.usage.tokens) == ("context", 1, 18)
    assert [len(server.requests), server.requests[2]["max_tokens"]] == [3, 50]
    model.close()


def test_a_refusal_that_stays_is_none_for_length_and_looked_into_once(serve):
    server = serve(lambda request, n: (400, {"error": {"message": "unknown field top_k, request 71"}}))
    model = LiteLLMModel(model="hosted_vllm/m", client="openai", api_base=server.url)
    for _ in range(3):
        with pytest.raises(InfraError, match="top_k") as caught:
            model.chat(Request(messages=LONG, role="agent"))
        assert (type(caught.value), caught.value.kind) == (InfraError, "bad_request")
    assert len(server.requests) == 4
    model.close()


def test_a_prompt_no_longer_than_one_that_was_taken_is_not_cut(serve):
    server = serve(lambda request, n: (200, completion("fine")) if n == 1 else (400, {"error": {"message": "no"}}))
    model = LiteLLMModel(model="hosted_vllm/m", client="openai", api_base=server.url)
    assert model.chat(Request(messages=LONG, role="agent")).text == "fine"
    with pytest.raises(InfraError, match="bad_request|no"):
        model.chat(Request(messages=LONG, role="judge"))
    assert len(server.requests) == 2
    model.close()


# A 403


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("name", ["no permission", "country", "bare page"])
def test_a_403_of_a_key_that_has_worked_breaks_one_task_alone(serve, client, name):
    server = serve(lambda request, n: OTHERS[name][:2] if n == 2 else (200, completion("fine")))
    model = LiteLLMModel(model="hosted_vllm/m", client=client, api_base=server.url)
    assert model.chat(ASK).text == "fine"
    with pytest.raises(InfraError, match="has worked before") as caught:
        model.chat(ASK)
    assert (type(caught.value), caught.value.kind) == (InfraError, "refused")
    assert model.chat(ASK).text == "fine"
    model.close()


def test_a_firewall_that_lets_nothing_through_stops_the_run(serve):
    server = serve(lambda request, n: FILTERED["Cloudflare"])
    model = LiteLLMModel(model="hosted_vllm/m", client="openai", api_base=server.url)
    for _ in range(4):
        with pytest.raises(AttemptOver):
            model.chat(ASK)
    with pytest.raises(StopRun, match="is this machine blocked"):
        model.chat(ASK)
    model.close()


# Whole runs


def asked(request):
    """The number of the sum in a request, and its role."""
    text = "\n".join(str(message["content"]) for message in request["messages"])
    number = int(text.rpartition("What is ")[2].partition("+")[0] or 0) if "What is " in text else 0
    role = "agent" if len(request["messages"]) > 1 else "judge" if "Status:" in text else "extractor"
    return number, role


def right(request):
    number, role = asked(request)
    lesson = {"items": [{"title": "Add", "description": "sums", "content": "Write the sum."}]}
    judged = '{"thoughts": "checked", "status": "success"}'
    texts = {"agent": f"\\boxed{{{2 * number}}}", "judge": judged, "extractor": json.dumps(lesson)}
    return 200, completion(texts[role])


@pytest.fixture
def sums(here, serve, tmp_path):
    """Run main.py on eight sums of our own, against a server that answers so."""

    servers = []

    def run(answer, *words, facts=None):
        rows = [
            {"id": f"q{n}", "question": f"What is {n}+{n}? {'So. ' * 500}", "answer": str(2 * n)} for n in range(1, 9)
        ]
        (tmp_path / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        if not servers:  # a run that goes on is given the same address
            servers.append(listing(serve(answer), **facts or {}))
        data = ("env=gsm8k", f"env.path={tmp_path / 'sums.jsonl'}")
        more = ("llm.client=openai", "llm.json_schema=false", f"llm.api_base={servers[0].url}", "embedder=hashing")
        return here(*data, "llm=vllm", *more, *words)

    return run


EVEN = {
    "context, in unknown words": (400, {"error": {"message": "Bad request"}}, "context"),
    "context, in known words": (*CONTEXT["vLLM, decoder"], "context"),
    "filter": (*FILTERED["DeepSeek"], "content_filter"),
    "firewall": (*FILTERED["Cloudflare"], "content_filter"),
}


@pytest.mark.parametrize("name", EVEN)
def test_a_true_rate_of_one_half_is_measured_where_every_other_task_is_refused(sums, name):
    status, body, ended_by = EVEN[name]

    def answer(request, n):
        number, role = asked(request)
        return (status, body) if role == "agent" and number % 2 == 0 else right(request)

    run_dir, rate = sums(answer, "workflow=vanilla", facts={"max_model_len": 600} if "unknown" in name else {})
    summary, rows = read_json(run_dir / "summary.json"), read_rows(run_dir)
    assert (rate, summary["n"], summary[f"n_{ended_by}"], summary["complete"]) == (0.5, 8, 4, True)
    assert [row["trajectories"][0]["ended_by"] == ended_by for row in rows] == [False, True] * 4


def test_a_reply_that_the_server_breaks_off_is_never_graded(sums):
    def answer(request, n):
        number, role = asked(request)
        return ended("abort", "\\boxed{0}") if role == "agent" and number == 3 else right(request)

    with pytest.raises(StopRun, match="1 of 8 tasks broken"):
        sums(answer, "workflow=vanilla", "retry_broken=0", "llm.attempts=2")


def test_a_403_in_a_later_start_of_the_run_stops_it_neither(sums, tmp_path):
    def answer(request, n):
        number, role = asked(request)
        if role == "agent" and number in hidden:
            time.sleep(0.3)  # eight are asked at once: another has answered by then
            return 403, said("Forbidden")
        return right(request)

    hidden = {5}
    for _ in range(2):  # the second start begins with the task that is refused
        with pytest.raises(StopRun, match="1 of 8 tasks broken"):
            sums(answer, "workflow=vanilla", "retry_broken=0")
    assert [row["status"] for row in read_rows(tmp_path / "run")].count("success") == 7
