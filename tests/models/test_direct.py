"""llm.client=openai beside litellm: the same requests, replies, errors, retries, usage and costs."""

from __future__ import annotations

import os
import sys

import forkserver
import pytest
from conftest import REPO, TOY, read_json, read_rows
from provider import completion, embedding

from core.errors import AttemptOver, InfraError, StopRun, UserError
from core.models.base import Request
from core.models.direct import OWN_SERVER, PROVIDERS
from core.models.embedding import OpenAIEmbedder
from core.models.prices import expected_cost
from core.models.remote import LiteLLMModel
from core.models.token_counts import Counts

HELLO = [{"role": "user", "content": "hello"}]
PRICE = {"prompt": 1.0, "cached": 0.25, "completion": 2.0}


def choice(message=None, **changes):
    body = completion("")
    body["choices"] = [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}]
    body["choices"][0]["message"] |= message or {}
    body["choices"][0] |= changes
    return body


USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 40,
    "total_tokens": 140,
    "prompt_tokens_details": {"cached_tokens": 60},
    "completion_tokens_details": {"reasoning_tokens": 30},
}
CALL = {"id": "1", "type": "function", "function": {"name": "act", "arguments": '{"a": 1}'}}
ANSWERS = {
    "plain": (200, completion("hi")),
    "usage": (200, completion("hi", usage=USAGE)),
    "no usage": (200, completion("hi", usage=None)),
    "details null": (200, completion("hi", usage=USAGE | {"prompt_tokens_details": None})),
    "route": (200, completion("hi", provider="there", system_fingerprint="fp_1")),
    "no model": (200, completion("hi", model=None)),
    "reasoning_content": (200, choice({"reasoning_content": "hm"})),
    "reasoning": (200, choice({"reasoning": "hm"})),
    "reasoning null": (200, choice({"reasoning_content": None})),
    "thought": (200, choice({"content": "<think>\nhm</think>\nhi"})),
    "half a thought": (200, choice({"content": "<think>\nhm"})),
    "tool call": (200, choice({"content": None, "tool_calls": [CALL]})),
    "tool call beside text": (200, choice({"tool_calls": [CALL]})),
    "no tool calls": (200, choice({"tool_calls": []})),
    "nothing said": (200, choice({"content": None})),
    "refusal": (200, choice({"content": None, "refusal": "I will not."})),
    "length": (200, choice(finish_reason="length")),
    "filtered": (200, choice({"content": ""}, finish_reason="content_filter")),
    "no reason": (200, choice(finish_reason=None)),
    **{
        f"ends by {reason}": (200, choice(finish_reason=reason))
        for reason in ("eos", "max_tokens", "error", "network_error", "abort", "sensitive", "tool_calls", "tool_use")
    },
    "broke within": (200, choice(error={"code": 502, "message": "upstream"})),
    "error in the answer": (200, {"error": {"code": 429, "message": "slow down"}}),
    "a word for a code": (200, {"error": {"message": "the engine is overloaded", "code": "rate_limit_exceeded"}}),
    "error without a code": (200, {"error": {"message": "oh"}}),
    "error as text": (200, {"error": "oh"}),
    "empty error": (200, completion("hi", error={})),
    "no choices": (200, completion("", choices=[])),
    "choices null": (200, completion("", choices=None)),
    "no JSON": (200, "<html>busy</html>"),
    "half a JSON": (200, '{"choices": [{"ind'),
    **{
        f"status {status}": (status, {"error": {"message": "no", "code": status}})
        for status in (400, 401, 402, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 529)
    },
    "too long": (400, {"error": {"message": "This model's maximum context length is 10 tokens", "code": 400}}),
    "policy": (400, {"error": {"message": "content management policy", "code": "content_filter"}}),
    "no credit": (429, {"error": {"message": "pay", "code": "insufficient_quota", "type": "insufficient_quota"}}),
    "gateway": (502, "<html>bad gateway</html>"),
}


KEY = "sk-of-a-test-0123456789abcdef"
MODELS = ["hosted_vllm/m", "openai/gpt-4o-mini", "dashscope/qwen-turbo", "deepseek/deepseek-reasoner", "openrouter/a/b"]
CLIENTS = ("litellm", "openai")


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr("core.models.retry._wait_s", lambda error, number: 0.0)
    monkeypatch.setenv("SOME_KEY", KEY)


def outcome(server, client, model="hosted_vllm/m", messages=HELLO, price=PRICE, **call):
    """(what came of a call, what was sent): the Reply's fields, or the error's class, kind and retries."""
    where = {"api_base": server.url, "api_key_env": "SOME_KEY", "timeout_s": 5.0}
    model = LiteLLMModel(model=model, client=client, attempts=2, price_per_mtok=price, **where)
    try:
        got = vars(model.chat(Request(messages=messages, **{"role": "agent"} | call)))
    except (StopRun, InfraError, AttemptOver) as error:
        got = type(error).__name__, getattr(error, "kind", ""), getattr(error, "retries", 0)
    finally:
        model.close()
    assert all(headers["Authorization"] == f"Bearer {KEY}" for headers in server.headers)
    return got, server.requests


@pytest.fixture
def by_both(serve):
    """`outcome` by litellm, and by the direct client, of a server that gives this answer: by_both(answer, ...)."""
    server = serve(lambda request, n: server.now)

    def asked(answer, *given, **call):
        found = []
        for client in CLIENTS:
            server.now, server.requests, server.headers = answer, [], []
            found.append(outcome(server, client, *given, **call))
        return found

    return asked


@pytest.mark.parametrize("model", MODELS)
def test_every_providers_answer_is_read_as_litellm_reads_it(by_both, model, subtests):
    for name, answer in ANSWERS.items():
        with subtests.test(name):
            theirs, ours = by_both(answer, model)
            assert theirs == ours


SYSTEM_FIRST = [
    {"role": role, "content": f"{role} — 意 \U0001f600"} for role in ("system", "user", "assistant", "user")
]


CALLS = (
    {"temperature": 0.3, "max_tokens": 99, "seed": 5},
    {"temperature": None, "max_tokens": 50, "messages": SYSTEM_FIRST},
    {"schema": {"type": "object", "properties": {"a": {"type": "string"}}}},
    {"more": {"top_p": 0.9, "stop": ["END"]}},
    {"temperature": None, "more": {"reasoning_effort": "low"}},
    {"more": {"extra_body": {"top_k": 5, "chat_template_kwargs": {"enable_thinking": False}}}},
    {"temperature": None, "more": {"thinking_tokens": 2048}},
    {"temperature": None, "more": {"thinking_tokens": 9}},
)


@pytest.mark.parametrize("model", [*MODELS, "openai/o3", "openai/gpt-5", "openai/gpt-5-chat-latest", "deepseek/m"])
def test_the_same_is_sent(by_both, model, subtests):
    for call in CALLS:
        if model == "openai/o3" and "messages" in call:
            call = call | {"messages": SYSTEM_FIRST[1:]}  # litellm's table does not know that it takes a system message
        with subtests.test(str(call)):
            (theirs, sent), ours = by_both((200, completion("hi")), model, **call)
            if theirs == ("StopRun", "", 0) and not sent:  # litellm knows that this model takes no such parameter
                assert model.startswith(("openai/", "dashscope/"))
            else:
                assert (theirs, sent) == ours


def test_a_model_of_deepseek_that_thinks_gets_its_own_turns_with_some_thinking(by_both):
    call = {"messages": SYSTEM_FIRST, "more": {"reasoning_effort": "high"}}
    theirs, ours = by_both((200, completion("hi")), "deepseek/deepseek-reasoner", **call)
    assert theirs == ours and ours[1][0]["messages"][2]["reasoning_content"] == " "


@pytest.mark.parametrize("param", ["temperature", "top_p", "max_tokens"])
def test_a_parameter_that_a_model_does_not_take_ends_the_run_at_the_first_call(by_both, param):
    said = {"message": f"Unsupported: '{param}'", "param": param, "code": "unsupported_value"}
    for found in by_both((400, {"error": said}), "openai/gpt-4o-mini"):
        assert found[0] == ("StopRun", "", 0)
    other = said | {"param": "messages[0].role"}
    assert by_both((400, {"error": other}), "openai/gpt-4o-mini")[1][0][0] == "InfraError"


def test_what_it_takes_is_known_before_the_run(serve):
    import litellm

    names = {"top_p", "stop", "reasoning_effort", "thinking_tokens"}
    for model in ("hosted_vllm/m", "dashscope/m", "deepseek/m", "openrouter/m", "openai/gpt-4o", "openai/o3"):
        known = set(litellm.get_supported_openai_params(model=model))
        direct = LiteLLMModel(model=model, api_base="http://127.0.0.1:9/v1", client="openai")
        for name in names:
            taken = direct.unsupported({name: 5}) is None
            assert taken == (name.replace("_tokens", "") in known), (model, name)
        assert direct.unsupported({"extra_body": {"a": 1}}) is None


@pytest.mark.parametrize(
    "model", [f"{name}/e" for name in PROVIDERS if name != "deepseek"] + ["text-embedding-3-small"]
)
def test_embeddings_are_the_same(serve, model):
    two = embedding([0.1, 0.2, 0.3]) | {"usage": {"prompt_tokens": 5, "total_tokens": 5}}
    two["data"] = [two["data"][0] | {"index": n, "embedding": [0.1 * n, 0.2, 0.3]} for n in (1, 0)]
    for answer in (
        (200, two),
        (200, two | {"data": []}),
        (200, two | {"usage": None}),
        (429, ""),
        (401, ""),
        (200, "x"),
    ):
        found = []
        for client in CLIENTS:
            server = serve(lambda request, n, answer=answer: answer)
            keys = {"client": client, "api_base": server.url, "api_key_env": "SOME_KEY", "attempts": 2, "batch": 2}
            embedder = OpenAIEmbedder(model=model, **keys)
            try:
                vectors, usage, retries = embedder.measure(["one", "zwei — 二"])
                got = vectors.round(6).tolist(), usage, retries
            except (StopRun, InfraError) as error:
                got = type(error).__name__, getattr(error, "kind", ""), getattr(error, "retries", 0)
            embedder.close()
            found.append((got, server.requests))
        assert found[0] == found[1]


def test_costs_are_those_of_litellms_table():
    import litellm
    from litellm.types.utils import Usage

    known = litellm.model_cost
    rows = [
        name for name, row in known.items() if row.get("litellm_provider") in PROVIDERS and row.get("mode") == "chat"
    ]
    flat = [name for name in rows if "off_peak_pricing" not in known[name] and "_audio_" not in str(known[name])]
    assert len(flat) > 100
    for name in flat:
        provider = known[name]["litellm_provider"]
        for prompt, completion_tokens, cached, reasoning in ((100, 40, 60, 30), (300_000, 9, 0, 0), (129_000, 7, 1, 7)):
            details = {"prompt_tokens_details": {"cached_tokens": cached}}
            details["completion_tokens_details"] = {"reasoning_tokens": reasoning}
            used = Usage(prompt_tokens=prompt, completion_tokens=completion_tokens, **details)
            model = name.removeprefix(f"{provider}/")
            theirs = sum(litellm.cost_per_token(model=model, custom_llm_provider=provider, usage_object=used))
            counts = Counts(prompt=prompt, completion=completion_tokens, cached=cached, reasoning=reasoning)
            ours = expected_cost(f"{provider}/{model}", None, counts)
            assert ours == pytest.approx(theirs, rel=1e-9) or (not theirs and not ours), (name, prompt)


def test_a_cost_is_the_configurations_else_the_providers_own_else_the_tables(by_both):
    told = completion("hi", usage=USAGE | {"cost": 0.25})
    for model, price, wanted in (
        ("openrouter/a/b", PRICE, (40 * 1.0 + 60 * 0.25 + 40 * 2.0) / 1e6),
        ("openrouter/a/b", None, 0.25),
        ("openai/gpt-4o-mini", None, (40 * 0.15 + 60 * 0.075 + 40 * 0.6) / 1e6),
        ("hosted_vllm/gpt-4o-mini", None, None),  # somebody else's server
    ):
        answer = told if model.startswith("openrouter") else completion("hi", usage=USAGE)
        theirs, ours = by_both((200, answer), model, price=price)
        assert ours[0]["usage"].cost_usd == pytest.approx(wanted) if wanted else ours[0]["usage"].cost_usd is None
        if wanted:
            assert theirs[0]["usage"].cost_usd == pytest.approx(wanted)


@pytest.mark.parametrize(
    "where", [{"model": "anthropic/m"}, {"model": "m"}, {"model": "hosted_vllm/m", "api_base": None}]
)
def test_it_is_for_servers_with_openais_api(where):
    with pytest.raises(UserError, match=r"llm\.client=openai"):
        LiteLLMModel(**{"api_base": "http://127.0.0.1:9/v1", "client": "openai"} | where)
    assert LiteLLMModel(**{"api_base": "http://127.0.0.1:9/v1"} | where).client == "litellm"


def test_it_is_the_default_where_there_is_this_api(serve, monkeypatch):
    for provider, address in PROVIDERS.items():
        assert LiteLLMModel(model=f"{provider}/m", api_base="http://127.0.0.1:9/v1").client == "openai"
        if address is None:
            assert provider == OWN_SERVER
            continue
        monkeypatch.delenv(f"{provider}_API_KEY".upper(), raising=False)
        model = LiteLLMModel(model=f"{provider}/m", attempts=1)
        assert model.client == "openai" and f"{provider}_API_KEY".upper() in model.problem()
        monkeypatch.setenv(f"{provider}_API_KEY".upper(), KEY)
        assert model.problem() is None
        server = serve(lambda request, n: (200, completion("hi")))
        monkeypatch.setenv(f"{provider}_API_BASE".upper(), server.url)
        assert model.chat(Request(messages=HELLO, role="agent")).text == "hi"
        assert server.headers[0]["Authorization"] == f"Bearer {KEY}" and server.requests[0]["model"] == "m"
        model.close()
        elsewhere = LiteLLMModel(
            model=f"{provider}/m", api_base=server.url
        )  # the provider's key is none of its business
        elsewhere.chat(Request(messages=HELLO, role="agent"))
        assert "Authorization" not in server.headers[1]
        elsewhere.close()


@pytest.mark.parametrize("body", ["[1]", '{"choices": [{}]}', '{"choices": [7]}', '{"choices": [{"message": null}]}'])
def test_an_answer_of_another_shape_is_asked_for_again(by_both, body):
    found = [each[0] for each in by_both((200, body))]
    # litellm takes some of them for broken connections.
    assert found[1] == ("TransientError", "server", 1) and found[0][::2] == found[1][::2]


def test_a_server_that_is_gone_or_hangs_up_is_the_same_error(serve):
    gone = serve(lambda request, n: (200, completion("hi")))
    gone.close()

    def hang_up(request, number):
        raise ConnectionError

    for server in (gone, serve(hang_up)):
        found = [outcome(server, client)[0] for client in ("litellm", "openai")]
        assert found[0] == found[1] and found[0][0] in ("StopRun", "TransientError")


WITHOUT = (
    "import runpy, sys; sys.modules['litellm'] = sys.modules['openai'] = None\n"
    "runpy.run_path('main.py', run_name='__main__')"
)


def run_without(*words):
    """`python main.py` where neither litellm nor the openai SDK is installed."""
    environment = os.environ | {"OPENAI_API_KEY": KEY}
    command = [sys.executable, "-c", WITHOUT, *words]
    return forkserver.run(command, cwd=REPO, env=environment, capture_output=True, text=True, timeout=120)


def test_a_run_has_the_same_records_and_either_client_goes_on_with_it(here, serve, tmp_path):
    server = serve(lambda request, n: (200, completion("Action: open box 1\nStatus: success")), models=["m"])
    words = [*TOY[:1], *TOY[2:], "llm=vllm", f"llm.api_base={server.url}"]
    runs = [here(*words, "limit=4", f"llm.client={client}", run_dir=tmp_path / client)[0] for client in CLIENTS]
    assert read_rows(runs[0]) == read_rows(runs[1])
    for run, by, other in zip(runs, CLIENTS, ("null", "litellm")):
        assert read_json(run / "manifest.json")["config"]["llm"]["client"] == by
        here(*words, "limit=6", f"llm.client={other}", run_dir=run)
    assert read_rows(runs[0]) == read_rows(runs[1]) and len(read_rows(runs[0])) == 6


def test_a_run_needs_no_litellm_and_says_what_it_does_not_know(serve, tmp_path):
    def answer(request, n):
        return 200, embedding([0.6, 0.8]) if "input" in request else completion("Action: open box 1\nStatus: success")

    url = serve(answer, models=["gpt-4o-mini"]).url
    words = ("env=toy", "limit=2", "llm=openai", f"llm.api_base={url}", "embedder=openai", "embedder.path=null")
    words += (f"embedder.inner.api_base={url}", f"run_dir={tmp_path / 'run'}")
    done = run_without(*words)
    assert done.returncode == 0, done.stderr
    assert "openai/gpt-4o-mini: what it costs is unknown" in done.stdout + done.stderr
    assert len(read_rows(tmp_path / "run")) == 2
    done = run_without(*words[:-1], f"run_dir={tmp_path / 'limited'}", "budget.run.usd=1")
    assert done.returncode and "give llm.price_per_mtok" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("llm=anthropic", "llm.api_key_env=OPENAI_API_KEY"),
        ("llm=openai", "llm.client=litellm"),
        ("llm=free", "embedder=openai", "embedder.inner.model=gemini/m"),
    ],
)
def test_without_litellm_a_run_says_what_to_install(words, tmp_path):
    done = run_without("env=toy", *words, f"run_dir={tmp_path / 'run'}")
    assert done.returncode and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: ") and "reasoningbank-harness[providers]" in done.stderr


def test_a_plan_needs_no_litellm(tmp_path):
    done = run_without("env=toy", "llm=openai", "dry_run=true", f"run_dir={tmp_path / 'run'}")
    assert done.returncode == 0 and "unknown" in done.stdout, done.stderr
