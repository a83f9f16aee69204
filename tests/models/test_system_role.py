"""Models without a system role: the refusal is known in any words, and the instructions go to the user's message."""

from __future__ import annotations

import json
from contextlib import closing

import pytest
from conftest import read_json, read_rows
from provider import completion

from core.errors import InfraError, StopRun
from core.models import retry
from core.models.base import Request
from core.models.remote import LiteLLMModel
from core.models.system_role import refuses_system, without_system

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
OTHERS = {
    "too long": (400, "The system message is too long: this model's maximum context length is 4096 tokens"),
    "a policy": (400, "The system message is not allowed by our content policy"),
    "busy": (503, "System is overloaded, the request was not accepted"),
    "a bad key": (401, "Invalid key; system role not supported"),
    "a limit": (429, "Too many requests: system limit of unsupported tiers"),
    "a parameter": (400, "Unsupported parameter: 'temperature' is not supported with this model."),
    "a schema": (400, "Invalid schema for response_format 'judge': not a valid object"),
    "another role": (400, "Invalid value: 'tool'. This role is not allowed here"),
    "an internal error": (500, "Internal system error"),
    "memory": (500, "The operating system could not allocate memory"),
    "a model": (404, "The model `m` does not exist in this system"),
}


IN_OTHER_WORDS = (
    "System messages are not supported by this model",
    "system role is unsupported",
    "Role 'system' is not supported for model gemma-2b",
    "The model does not support a system prompt.",
    "Error: system prompts not supported",
    "messages.0.role: unexpected value; permitted: 'user', 'assistant'",
    "Only 'user' and 'assistant' roles are allowed",
    "Roles must be one of: user, assistant",
    "Chat template error: System role is not supported by this template",
    "developer messages are not supported with this model",
    "Unsupported role: developer",
    "This model does not allow system instructions",
    "`system` role is not permitted for deepseek-r1-zero",
    "Invalid 'messages[0].role': must be 'user' or 'assistant'",
    "messages must alternate between user and assistant",
    "Expected role 'user' but got 'system'",
    "The first message should have role user",
    "System instruction is not enabled for this model",
    "roles must alternate between 'user' and 'assistant'",
    "After the optional system message, conversation roles must alternate user/assistant/user/assistant/...",
    "System role not supported by chat template: raise_exception",
    "role `system` is not recognized",
    "Invalid role 'system' in message 0",
    "TemplateError: Conversations must start with a user prompt",
    "invalid message role: system",
    "input validation error: `system` is not a valid role",
    "no system role in the chat template",
    "Message role must be user or assistant",
    "Gemma does not have a system role",
    "Model cannot take system messages",
    "System prompts aren't available for this model",
)
ELSE = (
    "System error: invalid request",
    "The system is unavailable",
    "Unsupported system architecture",
    "invalid api key for system user",
    "System prompt exceeds 2048 characters",
    "The system fingerprint is unknown",
    "prompt is too long: 5000 tokens",
    "invalid model: not available on this system",
    "stop is not supported",
    "response_format json_schema is not supported with this model",
    "You must provide at least one user message",
    "tool role not supported",
    "unexpected end of JSON input",
    "the user is not allowed to use this model",
    "Unknown parameter: 'seed'",
    "max_tokens must be at least 1",
    "Invalid 'user': string too long",
    "Your organization must be verified to use this model",
    "logprobs not supported for role assistant",
    "Content flagged: system prompt injection is not allowed (safety)",
    "n must be 1: multiple choices are not supported by the system",
    "template not found: chat",
    "Only one user may use this model at a time",
    "user and assistant names must differ",
    "Invalid value: 'tool'. Supported values are: 'system', 'user', 'assistant'",
    "role must be one of 'user', 'assistant', 'system'",
    "valid roles are user and assistant and system",
)


def test_a_refusal_is_known_by_its_sense(subtests):
    for words in (*IN_OTHER_WORDS, *ELSE):
        with subtests.test(words):
            assert refuses_system(Exception(words)) == (words in IN_OTHER_WORDS)


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
