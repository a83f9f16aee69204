"""A gateway that streams whatever is asked: what it sends is put together, and half a stream is no reply."""

from __future__ import annotations

import json

import pytest
from provider import completion

from core.errors import InfraError
from core.models.base import Request
from core.models.remote import LiteLLMModel
from core.models.streamed import unstreamed

ASK = Request(messages=[{"role": "user", "content": "hello"}], role="agent")


def chunk(delta, end=None, **more):
    choices = [{"index": 0, "delta": delta, "finish_reason": end}]
    return {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": choices} | more


CHUNKS = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"reasoning_content": "I "}),
    chunk({"reasoning_content": "think."}),
    chunk({"content": "4"}),
    chunk({"content": "2"}),
    chunk({}, "stop"),
    {"object": "chat.completion.chunk", "choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}},
]


def stream(chunks, before="data: ", after="\n\n", end="data: [DONE]\n\n"):
    return "".join(f"{before}{json.dumps(each)}{after}" for each in chunks) + end


FORMS = {
    "events": stream(CHUNKS),
    "without a blank": stream(CHUNKS, "data:"),
    "named, with comments and CRLF": ": ping\r\n\r\n" + stream(CHUNKS, "event: message\r\ndata: ", "\r\n\r\n"),
    "lines of JSON": stream(CHUNKS, "", "\n", ""),
    "with no [DONE]": stream(CHUNKS, end=""),
    "a whole reply as one event": stream([completion("42", usage=CHUNKS[-1]["usage"]) | {"model": "m"}], end=""),
}


@pytest.mark.parametrize("client", ["openai", "litellm"])
@pytest.mark.parametrize("form", FORMS)
def test_it_is_read_like_any_other_reply(serve, form, client):
    kind = {"Content-Type": "application/x-ndjson" if form == "lines of JSON" else "text/event-stream"}
    server = serve(lambda request, n: (200, FORMS[form], kind))
    model = LiteLLMModel(model="hosted_vllm/m", api_base=server.url, attempts=1, client=client)
    reply = model.chat(ASK)
    model.close()
    assert (reply.text, reply.finish_reason, reply.usage.prompt_tokens, reply.usage.completion_tokens) == (
        "42",
        "stop",
        5,
        2,
    )
    assert len(server.requests) == 1
    if "whole" not in form:
        assert reply.reasoning == "I think."


@pytest.mark.parametrize(
    "chunks, said", [(CHUNKS[:4], "a stream that breaks off"), ([{"error": {"message": "no"}}], "no")]
)
def test_half_a_stream_and_an_error_within_are_no_reply(serve, chunks, said):
    server = serve(lambda request, n: (200, stream(chunks, end=""), {"Content-Type": "text/event-stream"}))
    model = LiteLLMModel(model="hosted_vllm/m", api_base=server.url, attempts=1)
    with pytest.raises(InfraError, match=said):
        model.chat(ASK)
    model.close()


def test_tool_calls_grow():
    part = {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "go", "arguments": '{"to":'}}]}
    rest = {"tool_calls": [{"index": 0, "function": {"arguments": ' "x"}'}}, {"index": 1, "function": {"name": "b"}}]}
    body = json.loads(unstreamed(stream([chunk(part), chunk(rest, "tool_calls")]).encode()))
    first, second = body["choices"][0]["message"]["tool_calls"]
    assert first["function"] == {"name": "go", "arguments": '{"to": "x"}'} and second["function"] == {"name": "b"}
    assert body["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("content", [b"", b"<html>", b'{"choices": []}', b'data: {"a"', b'{"x": "delta"}', b"data: {}"])
def test_anything_else_is_left_alone(content):
    assert unstreamed(content) is content
