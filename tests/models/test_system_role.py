"""Models without a system role: the first refusal is tried again with the instructions in the user's message."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from conftest import read_json, read_rows
from provider import completion

from core.errors import InfraError, StopRun
from core.models import retry
from core.models.base import Request
from core.models.remote import LiteLLMModel
from core.models.system_role import without_system

ASK = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello."}]
TURNS = "Conversation roles must alternate user/assistant/user/assistant/..."
# {who says it: (status, its words)}
REFUSALS = {
    "Gemma on vLLM": (400, "System role not supported"),
    "Gemma 3": (400, f"{TURNS} {TURNS}"),
    "o1": (400, "Unsupported value: 'messages[0].role' does not support 'system' with this model."),
    "o1, developer": (400, "Unsupported value: 'messages[0].role' does not support 'developer' with this model."),
    "Mistral": (400, "jinja2.exceptions.TemplateError: Only user and assistant roles are supported!"),
    "llama-server": (500, "Value is not callable: raise_exception: System role not supported"),
    "TGI": (422, "Template error: invalid operation: System role not supported (in <string>:1)"),
    "TGI, turns": (422, f"Template error: syntax error: {TURNS} (in <string>:1)"),
    "mistral.rs": (500, f"invalid operation: {TURNS} (in chat_template:1)"),
    "LM Studio": (400, f'Error rendering prompt with jinja template: "{TURNS}". This is usually an issue with it.'),
    "Gemini": (400, "Developer instruction is not enabled for models/gemma-3-27b-it"),
    "Gemini, roles": (400, "Please use a valid role: user, model."),
    "a proxy": (400, "This model doesn't support system messages."),
    "Bedrock": (400, "This model doesn't support the system role. Try again without system prompts."),
    "Bedrock, schema": (400, "Malformed input request: #/messages/0/role: system is not a valid enum value"),
    "pydantic": (422, "body.messages.0.role: Input should be 'user' or 'assistant'"),
    "Anthropic": (400, 'messages: Unexpected role "system". The Messages API accepts a top-level `system` parameter'),
    "an enum": (400, "Invalid value: 'system'. Supported values are: 'assistant' and 'user'."),
    "a list": (400, "'system' is not one of ['user', 'assistant'] - 'messages.0.role'"),
    "Groq": (400, "messages[0].role: system role is not allowed for this model"),
    "a word": (400, "Unknown role: system"),
    "first": (400, "The first message must be from the user"),
    "Llama 2": (400, "Conversation must start with a user message"),
}
OTHERS = {  # what is not looked into: (status, its words)
    "busy": (503, "System is overloaded, the request was not accepted"),
    "a bad key": (401, "Invalid key; system role not supported"),
    "a limit": (429, "Too many requests: system limit of unsupported tiers"),
    "memory": (500, "CUDA out of memory"),
    "a model": (404, "The model `m` does not exist in this system"),
}


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(retry, "FIRST_WAIT_S", 0.0)


def refusing(status, words, text=lambda request: "hi"):
    """A server that takes no system message, and says so."""

    def answer(request, n):
        if any(each["role"] not in ("user", "assistant") for each in request["messages"]):
            return status, {"error": {"message": words, "type": "BadRequestError", "code": status}}
        return 200, completion(text(request))

    return answer


def model(server, client="litellm", **changes):
    return LiteLLMModel(model="hosted_vllm/m", api_base=server.url, client=client, **{"attempts": 2} | changes)


# Those that litellm is asked about as well: one of each status, and of each kind of words.
BY_LITELLM = (
    "Gemma on vLLM; Gemma 3; o1; Mistral; llama-server; TGI; LM Studio; Gemini; Bedrock, schema; pydantic; Anthropic; "
    "an enum; Llama 2"
).split("; ")


@pytest.mark.parametrize("client", ["litellm", "openai"])
def test_a_refused_system_message_goes_to_the_users(serve, client, caplog, subtests):
    server, one = serve(lambda request, n: refuse(request, n)), {"role": "user", "content": "Be brief.\n\nHello."}
    for name in REFUSALS if client == "openai" else BY_LITELLM:
        refuse = refusing(*REFUSALS[name])
        server.requests.clear()
        caplog.clear()
        with subtests.test(name), closing(model(server, client)) as made:
            replies = [made.chat(Request(messages=ASK, role=role)) for role in ("agent", "judge", "agent")]
            assert len(server.requests) == 4  # refused once, and remembered
            assert all(each["messages"] == [one] for each in server.requests[1:])
            assert [reply.sent["inject"] for reply in replies] == ["user"] * 3
            assert [reply.retries for reply in replies] == [0, 0, 0]
            said = [record.getMessage() for record in caplog.records if record.name == "run.notices"]
            assert len(said) == 1 and "agent.inject=user" in said[0]


@pytest.mark.parametrize("client", ["litellm", "openai"])
def test_another_refusal_is_not_tried_without_it(serve, client, subtests):
    server = serve(lambda request, n: (OTHERS[name][0], {"error": {"message": OTHERS[name][1]}}))
    for name in OTHERS:
        server.requests.clear()
        with subtests.test(name), closing(model(server, client, attempts=1)) as made:
            with pytest.raises((InfraError, StopRun)):
                made.chat(Request(messages=ASK, role="agent"))
            assert len(server.requests) == 1


def test_where_it_does_not_help_it_is_tried_once_in_all(serve):
    server = serve(lambda request, n: (400, {"error": {"message": TURNS}}))
    made = model(server)
    for _ in range(3):
        with pytest.raises(InfraError, match="must alternate"):
            made.chat(Request(messages=ASK, role="agent"))
    assert len(server.requests) == 4


def test_a_server_that_took_it_once_is_never_asked_without_it(serve):
    server = serve(lambda request, n: (200, completion("hi")) if n == 1 else (400, {"error": {"message": "no"}}))
    made = model(server)
    assert made.chat(Request(messages=ASK, role="agent")).text == "hi"
    with pytest.raises(InfraError):
        made.chat(Request(messages=ASK, role="agent"))
    assert [request["messages"] for request in server.requests] == [ASK, ASK]


def test_a_second_try_that_fails_for_another_reason_settles_nothing(serve):
    """Its error is not the one that is told, and the next call may find out."""

    def answer(request, n):
        refused = request["messages"][0]["role"] == "system"
        return (400, {"error": {"message": TURNS}}) if refused else (503, {}) if n == 2 else (200, completion("hi"))

    made = model(serve(answer), attempts=1)
    with pytest.raises(InfraError, match="must alternate"):
        made.chat(Request(messages=ASK, role="agent"))
    assert made.chat(Request(messages=ASK, role="agent")).sent["inject"] == "user"


def test_calls_that_are_refused_side_by_side_all_find_out(serve):
    meeting = threading.Barrier(4, timeout=20)

    def answer(request, n):
        if request["messages"][0]["role"] == "system":
            meeting.wait()
            return 400, {"error": {"message": TURNS}}
        return 200, completion("hi")

    made = model(serve(answer), client="openai", attempts=1)
    with ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(lambda n: made.chat(Request(messages=ASK, role="agent", sample=n)).text, range(4)))
    assert replies == ["hi"] * 4


def test_a_refusal_beside_a_call_that_is_taken_is_none_of_the_system_message(serve):
    """The answer to the other comes later."""

    def answer(request, n):
        if "refuse" in str(request["messages"]):
            return 400, {"error": {"message": "Bad request"}}
        time.sleep(0.3)
        return 200, completion("hi")

    def ask(said):
        messages = [ASK[0], {"role": "user", "content": said}]
        try:
            return made.chat(Request(messages=messages, role="agent")).text
        except InfraError as error:
            return error.kind

    server = serve(answer)
    made = model(server, client="openai", attempts=1)
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(ask, ("hello", "refuse"))) == ["hi", "bad_request"]
    assert len(server.requests) == 2


def test_a_server_that_takes_it_gets_it(serve):
    server = serve(lambda request, n: (200, completion("hi")))
    assert "inject" not in model(server).chat(Request(messages=ASK, role="agent")).sent
    assert server.requests[0]["messages"] == ASK


def test_roles_alternate_without_a_system_message():
    def each(*pairs):
        return [{"role": role, "content": text} for role, text in pairs]

    talk = each(("system", "A"), ("developer", "B"), ("user", "C"), ("assistant", "D"), ("user", "E"), ("user", "F"))
    assert without_system(talk) == each(("user", "A\n\nB\n\nC"), ("assistant", "D"), ("user", "E\n\nF"))
    assert without_system(each(("user", "A"), ("assistant", "B"))) == each(("user", "A"), ("assistant", "B"))
    assert without_system(each(("user", "A"), ("system", "B"))) == each(("user", "A\n\nB"))
    assert talk[0] == {"role": "system", "content": "A"}


LESSON = '{"items": [{"title": "Add the two", "description": "sums", "content": "Write the sum."}]}'


def play(request):
    schema = json.dumps(request.get("response_format") or "")
    return (
        '{"thoughts": "x", "status": "success"}'
        if "status" in schema
        else LESSON
        if "items" in schema
        else "\\boxed{4}"
    )


@pytest.fixture
def sums(tmp_path):
    rows = [{"id": f"q{n}", "question": f"What is {n}+{n}?", "answer": str(2 * n)} for n in range(1, 4)]
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return ("env=gsm8k", f"env.path={tmp_path / 'sums.jsonl'}", "embedder=hashing", "llm=vllm", "llm.attempts=1")


@pytest.mark.parametrize(
    ("name", "words"), [("Gemma on vLLM", ()), ("llama-server", ()), ("TGI", ()), ("Gemma 3", ("agent.inject=user",))]
)
def test_a_run_on_a_model_without_a_system_role(serve, here, sums, name, words):
    server = serve(refusing(*REFUSALS[name], play))
    run_dir, _ = here(*sums, f"llm.api_base={server.url}", *words)
    rows, summary = read_rows(run_dir), read_json(run_dir / "summary.json")
    assert (summary["n"], summary["n_infra_error"], summary["n_lessons"]) == (3, 0, 3)
    refused = sum(each["messages"][0]["role"] == "system" for each in server.requests)
    assert refused == (0 if words else 1)
    last = next(each for each in reversed(server.requests) if not each.get("response_format"))  # the agent's
    system, user = (each["content"] for each in rows[-1]["trajectories"][0]["opening"])
    assert last["messages"] == [{"role": "user", "content": f"{system}\n\n{user}"}]
    assert "Write the sum." in last["messages"][0]["content"]  # the lesson is among what was sent
    assert read_json(run_dir / "manifest.json")["models"]["agent"]["sent"]["inject"] == "user"
    calls = [json.loads(line) for line in (run_dir / "calls.jsonl").read_text().splitlines()]
    assert {call["sent"].get("inject") for call in calls if call["role"] == "agent"} == {"user"}


def test_the_stand_in_plays_without_a_system_message_as_with_it(here, tmp_path):
    words = ("env=toy", "llm=scripted", "embedder=hashing", "limit=8")
    plain, moved = here(*words, run_dir=tmp_path / "a"), here(*words, "agent.inject=user", run_dir=tmp_path / "b")
    assert plain[1] == moved[1]


def test_another_value_is_refused(here):
    with pytest.raises(Exception, match="inject=tool"):
        here("env=toy", "llm=scripted", "embedder=hashing", "agent.inject=tool")
