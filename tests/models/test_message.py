"""Messages as servers send them: parts, fields of other names, the text in the field for reasoning."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from conftest import read_json, read_rows
from provider import completion

from core.errors import TransientError, UserError
from core.models import retry
from core.models.base import Request
from core.models.message import canonical, canonical_body, misplaced_text
from core.models.remote import LiteLLMModel
from envs.toy_script import play

ASK = Request(messages=[{"role": "user", "content": "hello"}], role="agent")
SCHEMA = {"type": "object", "required": ["thoughts", "status"]}
VERDICT = '{"thoughts": "It is open.", "status": "success"}'


def body(finish="stop", **message):
    made = completion("")
    made["choices"] = [{"index": 0, "finish_reason": finish, "message": {"role": "assistant"} | message}]
    return made


def text(value, kind="text"):
    return {"type": kind, kind if kind != "output_text" else "text": value}


SHAPES = {
    "a text": ({"content": "42"}, "42", None),
    "one part": ({"content": [text("42")]}, "42", None),
    "parts of a sentence": ({"content": [text("The answer is "), text("42"), text(".")]}, "The answer is 42.", None),
    "parts that are lines": (
        {"content": [text("Thought: I look."), text("Action: look")]},
        "Thought: I look.\nAction: look",
        None,
    ),
    "output_text": ({"content": [text("42", "output_text")]}, "42", None),
    "texts alone": ({"content": ["4", "2"]}, "42", None),
    "an image beside it": ({"content": [text("42"), {"type": "image_url", "image_url": {"url": "x"}}]}, "42", None),
    "an unknown part": ({"content": [{"type": "reference", "reference_ids": [1]}, text("42")]}, "42", None),
    "text as an object": ({"content": [{"type": "text", "text": {"value": "42", "annotations": []}}]}, "42", None),
    "Mistral's thinking": ({"content": [{"type": "thinking", "thinking": [text("hm")]}, text("42")]}, "42", "hm"),
    "Anthropic's thinking": ({"content": [text("hm", "thinking"), text("42")]}, "42", "hm"),
    "a reasoning part": ({"content": [{"type": "reasoning", "text": "hm"}, text("42")]}, "42", "hm"),
    "Gemini's thought": ({"content": [{"text": "hm", "thought": True}, {"text": "42"}]}, "42", "hm"),
    "Gemini's parts": ({"content": {"parts": [{"text": "42"}], "role": "model"}}, "42", None),
    "one part, no list": ({"content": text("42")}, "42", None),
    "an object": ({"content": {"status": "success"}}, '{"status": "success"}', None),
    "a number": ({"content": 42}, "42", None),
    "reasoning_content": ({"content": "42", "reasoning_content": "hm"}, "42", "hm"),
    "reasoning": ({"content": "42", "reasoning": "hm"}, "42", "hm"),
    "an empty one first": ({"content": "42", "reasoning_content": "", "reasoning": "hm"}, "42", "hm"),
    "reasoning_details": (
        {"content": "42", "reasoning_details": [{"type": "reasoning.text", "text": "hm"}]},
        "42",
        "hm",
    ),
    "a summary": ({"content": "42", "reasoning_details": [{"type": "reasoning.summary", "summary": "hm"}]}, "42", "hm"),
    "thinking_blocks": ({"content": "42", "thinking_blocks": [text("hm", "thinking")]}, "42", "hm"),
    "no role": ({"content": "42", "role": None}, "42", None),
    "<think>": ({"content": "<think>hm</think>42"}, "42", "hm"),
    "nothing but thoughts": ({"content": "<think>hm</think>"}, "<think>hm</think>", None),
    "a refusal": ({"content": None, "refusal": "I will not."}, "I will not.", None),
    "a refusal as a part": ({"content": [text("I will not.", "refusal")]}, "I will not.", None),
    "function_call": (
        {"content": None, "function_call": {"name": "act", "arguments": '{"a": 1}'}},
        '{"name": "act", "arguments": "{\\"a\\": 1}"}',
        None,
    ),
    "arguments as an object": (
        {"content": None, "tool_calls": [{"function": {"name": "act", "arguments": {"a": 1}}}]},
        '{"name": "act", "arguments": "{\\"a\\": 1}"}',
        None,
    ),
}


# Those that litellm is asked for as well: one of each kind.
BY_LITELLM = (
    "a text; parts of a sentence; an image beside it; text as an object; Anthropic's thinking; Gemini's parts; "
    "an object; a number; reasoning_content; reasoning_details; thinking_blocks; no role; <think>; "
    "nothing but thoughts; a refusal; function_call; arguments as an object"
).split("; ")


@pytest.mark.parametrize("client", ["litellm", "openai"])
def test_a_message_of_any_shape_is_read_alike_by_both_clients(serve, client, subtests):
    server = serve(lambda request, n: (200, body(**message)))
    model = LiteLLMModel(model="hosted_vllm/m", api_base=server.url, client=client, attempts=1)
    for shape in SHAPES if client == "openai" else BY_LITELLM:
        message, said, thought = SHAPES[shape]
        end = "refusal" if "refusal" in shape else "tool_calls" if "act" in said else "stop"
        with subtests.test(shape):
            reply = model.chat(ASK)
            assert (reply.text, reply.reasoning or None) == (said, thought)
            assert reply.finish_reason == end
    model.close()


@pytest.mark.parametrize(
    "given",
    [
        {"id": "x", "usage": {}},
        {"choices": []},
        {"choices": None},
        {"choices": ["a"]},
        {"choices": [{"index": 0}]},
        {"choices": [{"message": {"role": "assistant", "content": "a", "tool_calls": []}}]},
        {"choices": [{"message": {"role": "assistant", "content": None, "reasoning_content": None}}]},
        {"data": [{"embedding": [1.0]}]},
        ["choices"],
        None,
    ],
)
def test_what_is_well_formed_or_no_completion_is_not_touched(given):
    assert canonical(given) is given
    sent = json.dumps(given).encode()
    assert canonical_body(sent) == (sent, given)


@pytest.mark.parametrize("sent", [b"", b'{"choices": [', b'<html>"choices"</html>', b'\xff"choices"'])
def test_what_is_no_json_is_left_to_the_client(sent):
    with pytest.raises(ValueError):
        canonical_body(sent)


@pytest.mark.parametrize("place", ["text", "delta"])
def test_a_choice_without_a_message_has_its_text_elsewhere(place):
    choice = {"text": "42"} if place == "text" else {"delta": {"content": "42"}}
    [read] = canonical({"choices": [choice]})["choices"]
    assert read["message"] == {"role": "assistant", "content": "42"}


@pytest.mark.parametrize("text", ["Okay, the user wants a product. Let me think.", "Action: look", "\\boxed{42}"])
def test_text_in_the_field_for_reasoning_alone_is_no_reply(text):
    with pytest.raises(TransientError, match="reasoning-parser") as caught:
        misplaced_text(text, None)
    assert caught.value.tries == 2


@pytest.mark.parametrize(
    "mark", ["</think>", "</thought>", "[/THINK]", "<|end_of_thought|>", "◁/think▷", "</seed:think>"]
)
def test_what_stands_behind_the_end_of_thoughts_is_the_reply(mark):
    said, thoughts = misplaced_text(f"Is it 41? Let me see.{mark}\n\nIt is forty-two.", None)
    assert (said.strip(), thoughts) == ("It is forty-two.", f"Is it 41? Let me see.{mark}")


@pytest.mark.parametrize(
    ("said", "read"),
    [
        (VERDICT, True),
        (f"Let me see.\n{VERDICT}", False),
        ('{"thoughts": "a", "status": "success"', False),
        ('{"status": "success"}', False),
        ('{"a": "b"}', False),
        ("It is a success.", False),
        ("Status: success", False),
    ],
)
def test_with_a_schema_an_object_is_read_and_nothing_else(said, read):
    if read:
        assert misplaced_text(said, SCHEMA) == (said, "")
    else:
        with pytest.raises(TransientError):
            misplaced_text(said, SCHEMA)


TOY = ("env=toy", "llm=vllm", "embedder=hashing", "limit=4", "llm.json_schema=false", "llm.attempts=3")


def toy(request):
    messages = request["messages"]
    role = "agent" if len(messages) > 1 else "judge" if "Status:" in messages[0]["content"] else "extractor"
    return play(messages, role, 0)


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(retry, "FIRST_WAIT_S", 0.01)


DECLARED = {"open": "<inner>", "close": "</inner>"}


@pytest.mark.parametrize(
    ("sent", "said", "thought"),
    [
        ("<inner>41?</inner>42", "42", "41?"),
        ("41?</inner>42", "42", "41?"),
        ("<inner>41? And", "", "<inner>41? And"),
        ("42", "42", ""),
        ("The tag <inner> is mine.", "The tag <inner> is mine.", ""),
    ],
)
def test_declared_marks_set_thoughts_apart(serve, sent, said, thought):
    server = serve(lambda request, n: (200, completion(sent)))
    model = LiteLLMModel(model="hosted_vllm/m", api_base=server.url, reasoning=DECLARED)
    reply = model.chat(ASK)
    assert (reply.text, reply.reasoning) == (said, thought)
    model.close()


@pytest.mark.parametrize("marks", [{}, {"open": "<a>"}, {"open": "<a>", "close": ""}])
def test_marks_are_declared_in_pairs(marks):
    with pytest.raises(UserError, match="llm.reasoning=.*give both marks"):
        LiteLLMModel(model="hosted_vllm/m", api_base="http://127.0.0.1:9/v1", reasoning=marks)


def test_a_run_whose_server_sends_nothing_but_thoughts_counts_no_failure(serve, main_here, tmp_path, quick):
    server = serve(lambda request, n: (200, body(content="", reasoning_content="Let me think about the box.")))
    more = (*TOY, "limit=2", f"llm.api_base={server.url}", f"run_dir={tmp_path / 'run'}", "workflow=vanilla")
    code, said, complained = main_here(*more)
    assert code == 1 and "2 by bad_reply" in complained
    assert "reasoning-parser" in said
    summary = read_json(tmp_path / "run/summary.json")
    assert (summary["n"], summary["infra_errors"]) == (0, {"bad_reply": 2})
    per_task = Counter(str(request["messages"]) for request in server.requests)
    assert set(per_task.values()) == {6}  # each call was tried again once, and each broken task twice


def test_thoughts_cut_off_at_the_length_are_a_reply_cut_off(serve, here):
    server = serve(lambda request, n: (200, body("length", content=None, reasoning_content="Let me see.\n\\boxed{4}")))
    run, _ = here(*TOY, "limit=1", f"llm.api_base={server.url}", "workflow=vanilla", "max_steps=1")
    assert (read_json(run / "summary.json")["n_truncated"], read_rows(run)[0]["status"]) == (1, "failure")


TOKENS = ["<|im_end|>", "</s>", "<|eot_id|>\n<|start_header_id|>user<|end_header_id|>\n\nGo on."]


@pytest.mark.parametrize("token", TOKENS)
def test_a_run_whose_server_leaves_its_tokens_in_acts_and_learns_as_any_other(serve, here, tmp_path, token):
    marked = serve(lambda request, n: (200, body(content=f"<thought>say cat</thought>\n{toy(request)}{token}")))
    clean = serve(lambda request, n: (200, body(content=toy(request))))
    run, _ = here(*TOY, f"llm.api_base={marked.url}", run_dir=tmp_path / "marked")
    other, _ = here(*TOY, f"llm.api_base={clean.url}", run_dir=tmp_path / "clean")
    rows, others = read_rows(run), read_rows(other)
    assert [(row["status"], row["lessons"]) for row in rows] == [(row["status"], row["lessons"]) for row in others]
    steps = [step for row in rows for step in row["trajectories"][0]["steps"]]
    assert all(step["text"].endswith(token) for step in steps)  # what was sent is recorded
    assert not any(token[:6] in str(request["messages"]) for request in marked.requests)
