"""llm.client=openai beside litellm: the same replies, errors and retries for whatever a server answers."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from conftest import REPO, TOY, read_rows
from provider import completion

from core.errors import AttemptOver, InfraError, StopRun, UserError
from core.models.base import EXTRA_SAMPLING, Request
from core.models.direct import TAKEN
from core.models.remote import LiteLLMModel, _as_sent

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


def outcome(server, client, **call):
    """(what came of a call, what was sent): the Reply's fields, or the error's class, kind and retries."""
    model = LiteLLMModel(
        model="hosted_vllm/m", api_base=server.url, client=client, attempts=2, timeout_s=5.0, price_per_mtok=PRICE
    )
    try:
        got = vars(model.chat(Request(messages=HELLO, **{"role": "agent"} | call)))
    except (StopRun, InfraError, AttemptOver) as error:
        got = type(error).__name__, getattr(error, "kind", ""), getattr(error, "retries", 0)
    finally:
        model.close()
    return got, server.requests


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_read_as_litellm_reads_it(serve, name, monkeypatch):
    monkeypatch.setattr("core.models.retry._wait", lambda state: 0.0)
    found = [outcome(serve(lambda request, n: ANSWERS[name]), client) for client in ("litellm", "openai")]
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "call",
    [
        {"temperature": 0.3, "max_tokens": 99, "seed": 5},
        {"temperature": None},
        {"schema": {"type": "object", "properties": {"a": {"type": "string"}}}},
        {"more": {"top_p": 0.9, "stop": ["END"], "reasoning_effort": "low"}},
        {"more": {"extra_body": {"top_k": 5, "chat_template_kwargs": {"enable_thinking": False}}}},
    ],
)
def test_the_same_is_sent(serve, call):
    found = [
        outcome(serve(lambda request, n: (200, completion("hi"))), client, **call) for client in ("litellm", "openai")
    ]
    assert found[0] == found[1]


def test_what_it_takes_is_what_litellm_takes_for_such_a_server():
    import litellm

    known = set(litellm.get_supported_openai_params(model="hosted_vllm/m"))
    ours = {"temperature", "seed", "max_tokens", "response_format", *EXTRA_SAMPLING} - {"thinking_tokens", "extra_body"}
    assert ours == TAKEN <= known
    model = LiteLLMModel(model="hosted_vllm/m", api_base="http://127.0.0.1:9/v1", client="openai")
    assert "thinking" in model.unsupported({"thinking_tokens": 100})
    assert "thinking" in _as_sent({"thinking_tokens": 100})
    assert model.unsupported({"top_p": 0.5, "extra_body": {"a": 1}}) is None


@pytest.mark.parametrize("where", [{"model": "openai/gpt-4o-mini"}, {"model": "hosted_vllm/m", "api_base": None}])
def test_it_is_for_servers_of_ones_own(where):
    with pytest.raises(UserError, match=r"llm\.client=openai"):
        LiteLLMModel(**{"api_base": "http://127.0.0.1:9/v1", "client": "openai"} | where)


@pytest.mark.parametrize("body", ["[1]", '{"choices": [{}]}', '{"choices": [7]}', '{"choices": [{"message": null}]}'])
def test_an_answer_of_another_shape_is_asked_for_again(serve, body, monkeypatch):
    monkeypatch.setattr("core.models.retry._wait", lambda state: 0.0)
    found = [outcome(serve(lambda request, n: (200, body)), client)[0] for client in ("litellm", "openai")]
    # litellm takes some of them for broken connections.
    assert found[1] == ("TransientError", "server", 1) and found[0][::2] == found[1][::2]


def test_a_server_that_is_gone_or_hangs_up_is_the_same_error(serve, monkeypatch):
    monkeypatch.setattr("core.models.retry._wait", lambda state: 0.0)
    gone = serve(lambda request, n: (200, completion("hi")))
    gone.close()

    def hang_up(request, number):
        raise ConnectionError

    for server in (gone, serve(hang_up)):
        found = [outcome(server, client)[0] for client in ("litellm", "openai")]
        assert found[0] == found[1] and found[0][0] in ("StopRun", "TransientError")


def test_a_run_has_the_same_records_and_never_loads_litellm(here, serve, tmp_path):
    server = serve(lambda request, n: (200, completion("Action: open box 1\nStatus: success")), models=["m"])
    words = [*TOY[:1], *TOY[2:], "llm=vllm", f"llm.api_base={server.url}", "limit=4"]
    runs = [here(*words, f"llm.client={client}", run_dir=tmp_path / client)[0] for client in ("litellm", "openai")]
    assert read_rows(runs[0]) == read_rows(runs[1])
    code = (
        "import runpy, sys; sys.argv = ['main.py', *sys.argv[1:]]\n"
        "try: runpy.run_path('main.py', run_name='__main__')\n"
        "finally: print('litellm' in sys.modules)"
    )
    line = [sys.executable, "-c", code, *words, "llm.client=openai", f"run_dir={tmp_path / 'other'}"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, cwd=REPO)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "False"


@pytest.mark.parametrize(
    ("library", "make"),
    [
        ("litellm", lambda: LiteLLMModel(model="openai/gpt-4o-mini")),
        ("litellm", lambda: LiteLLMModel(model="hosted_vllm/m", api_base="http://127.0.0.1:9/v1")),
        ("openai", lambda: LiteLLMModel(model="hosted_vllm/m", api_base="http://127.0.0.1:9/v1", client="openai")),
    ],
)
def test_a_library_that_is_missing_is_one_sentence_before_the_first_call(library, make, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    problem = make().problem()
    assert f"needs the package {library}: `pip install 'reasoningbank-harness[providers]'`" in problem


@pytest.mark.parametrize("words", [("llm=openai", "dry_run=true"), ("llm=openai",), ("llm=free", "embedder=openai")])
def test_without_litellm_a_run_says_what_to_install(words, tmp_path):
    without = "import runpy, sys; sys.modules['litellm'] = None; runpy.run_path('main.py', run_name='__main__')"
    given = [sys.executable, "-c", without, "env=toy", *words, f"run_dir={tmp_path / 'run'}"]
    done = subprocess.run(given, cwd=REPO, env=os.environ | {"OPENAI_API_KEY": "x"}, capture_output=True, text=True)
    assert done.returncode and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: ") and "reasoningbank-harness[providers]" in done.stderr
