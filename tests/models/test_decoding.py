"""Decoding beyond temperature: sent where it is set, by role, recorded, in the cache's key; and who really answered."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from conftest import TOY, read_json
from provider import completion

from core.errors import UserError
from core.models.base import Request
from core.models.cache import CachedModel
from core.models.local import LocalModel
from core.models.remote import LiteLLMModel
from envs.toy_script import play

HELLO = [{"role": "user", "content": "hello"}]
ASK = Request(messages=HELLO, role="agent")
FIELDS = ("top_p", "stop", "reasoning_effort", "thinking", "extra_body")


def answer(request, number, **changes):
    """The toy's players behind a provider's server."""
    messages = request["messages"]
    asked = messages[-1]["content"]
    role = "judge" if "check the work" in asked else "extractor" if "turn an agent's experience" in asked else "agent"
    return 200, completion(play(messages, role, 0), **changes)


@pytest.fixture
def remote(serve, here, tmp_path):
    """Run the toy world against a server: returns (its requests, run directory)."""

    def run(*words, served=lambda number: {}):
        server = serve(lambda request, number: answer(request, number, **served(number)))
        data = ("env=toy", "llm=vllm", "llm.model=hosted_vllm/m", f"llm.api_base={server.url}", "llm.json_schema=false")
        run_dir, _ = here(*data, "embedder=hashing", "limit=2", "env.families=1", *words)
        return server.requests, run_dir

    return run


def calls_of(run_dir):
    return [json.loads(line) for line in (run_dir / "calls.jsonl").read_text().splitlines()]


def test_nothing_is_sent_that_is_not_set(remote):
    requests, run_dir = remote()
    assert requests
    assert not any(name in request for request in requests for name in FIELDS)
    assert not any("top_p" in call["sent"] for call in calls_of(run_dir))
    assert "top_p" not in read_json(run_dir / "manifest.json")["models"]["agent"]


def test_each_role_sends_its_own_and_it_is_recorded(remote):
    requests, run_dir = remote(
        "roles.agent.top_p=0.9",
        "roles.agent.stop=['Observation:']",
        "roles.agent.reasoning_effort=low",
        "roles.agent.extra_body={top_k: 20}",
        "roles.judge.thinking_tokens=256",
    )
    by_role = {"judge": [], "agent": [], "extractor": []}
    for request in requests:
        asked = request["messages"][-1]["content"]
        kind = "judge" if "check the work" in asked else "extractor" if "turn an agent's" in asked else "agent"
        by_role[kind].append(request)
    for request in by_role["agent"]:
        assert (request["top_p"], request["stop"], request["reasoning_effort"]) == (0.9, ["Observation:"], "low")
        assert request["top_k"] == 20  # what extra_body holds is a part of the request
    assert all(name not in request for request in by_role["extractor"] for name in (*FIELDS, "top_k"))
    models = read_json(run_dir / "manifest.json")["models"]
    assert models["agent"]["top_p"] == models["agent"]["sent"]["top_p"] == 0.9
    assert models["agent"]["sent"]["extra_body"] == {"top_k": 20}
    assert models["judge"]["thinking_tokens"] == 256
    assert models["judge"]["sent"]["thinking"] == {"type": "enabled", "budget_tokens": 256}
    sent = [call["sent"] for call in calls_of(run_dir) if call["role"] == "agent"]
    assert sent
    assert all(each["reasoning_effort"] == "low" for each in sent)


def test_it_is_a_part_of_the_cache_key(serve, tmp_path):
    server = serve(lambda request, number: (200, completion(f"answer {number}")))
    inner = LiteLLMModel(model="hosted_vllm/m", api_base=server.url)
    model = CachedModel(inner=inner, path=str(tmp_path / "replies.sqlite"), mode="read_write")
    plain = [model.chat(ASK).text for _ in range(2)]
    hot, cold = ([model.chat(replace(ASK, more={"top_p": p})).text for _ in range(2)] for p in (0.9, 0.1))
    assert (plain, hot, cold) == (["answer 1"] * 2, ["answer 2"] * 2, ["answer 3"] * 2)
    model.close()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*TOY, "roles.agent.top_p=0.9"), "roles.agent: scripted takes no top_p"),
        ((*TOY, "roles.judge.extra_body={a: 1}"), "roles.judge: scripted takes no extra_body"),
        (
            ("env=toy", "llm=openai", "llm.model=openai/o3-mini", "llm.api_key_env=null", "roles.agent.top_p=0.5"),
            "roles.agent: openai/o3-mini takes no top_p",
        ),
    ],
)
def test_what_a_model_does_not_take_is_refused_before_the_run(here, words, message):
    with pytest.raises(UserError, match=message):
        here(*words, "embedder=hashing")


def test_the_local_model_takes_top_p_and_stop():
    pytest.importorskip("xllamacpp", reason="the extra `local` is not installed")
    model = LocalModel()
    assert model.unsupported({"top_p": 0.9, "stop": ["."]}) is None
    assert "takes no reasoning_effort, extra_body" in model.unsupported(
        {"reasoning_effort": "low", "extra_body": {"a": 1}}
    )
    free = model.chat(replace(ASK, seed=1, temperature=0.0, max_tokens=40))
    word = next(part for part in free.text.split() if part.isalpha() and len(part) > 2)
    held = model.chat(replace(ASK, seed=1, temperature=0.0, max_tokens=40, more={"stop": [word]}))
    assert word not in held.text
    assert held.sent["stop"] == [word]
    model.close()


def test_who_answered_is_recorded_and_a_change_is_said(remote, capsys):
    def served(number):
        return {"system_fingerprint": "fp_a" if number < 4 else "fp_b", "provider": "Somewhere"}

    _, run_dir = remote(served=served)
    calls = [call for call in calls_of(run_dir) if call["role"] != "embedder"]
    assert [call["system_fingerprint"] for call in calls] == ["fp_a"] * 3 + ["fp_b"] * (len(calls) - 3)
    assert {call["provider"] for call in calls} == {"Somewhere"}
    name = "served-model-1 Somewhere"
    drift = read_json(run_dir / "summary.json")["drift"]
    assert drift == {"hosted_vllm/m": {f"{name} fp_a": 3, f"{name} fp_b": len(calls) - 3}}
    printed = capsys.readouterr().out
    assert printed.count("warning: hosted_vllm/m is not served by the same model throughout") == 1
    assert "fp_b" in printed


def test_one_model_throughout_is_no_drift(remote, capsys):
    _, run_dir = remote()
    assert read_json(run_dir / "summary.json")["drift"] == {}
    assert "warning" not in capsys.readouterr().out
    assert not any("system_fingerprint" in call or "provider" in call for call in calls_of(run_dir))
