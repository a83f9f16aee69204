"""What an agent runs into by its own doing ends its attempt, which stays in the denominator and is learned from."""

from __future__ import annotations

import pytest
from conftest import TOY, read_json, read_rows
from provider import completion

from core.errors import AttemptOver, InfraError
from core.models.base import Request
from core.models.remote import LiteLLMModel

WINDOW = 2200  # characters of a conversation that the server takes
TOO_LONG = {
    "openai": (400, {"error": {"message": "This model's maximum context length is 99 tokens.", "type": "invalid"}}),
    "code alone": (400, {"error": {"message": "Refused.", "code": "context_length_exceeded"}}),
    "llama.cpp": (400, {"error": {"message": "the request exceeds the available context size", "code": 400}}),
    "anthropic": (400, {"error": {"message": "prompt is too long: 212000 tokens > 200000 maximum"}}),
}


def long_winded(request: dict, number: int) -> tuple[int, dict]:
    """Half of the families are played well and in one step; in the others the agent thinks until it is refused."""
    from envs.toy_script import play

    messages = request["messages"]
    if sum(len(message["content"]) for message in messages) > WINDOW and len(messages) > 1:
        return TOO_LONG["openai"]
    if len(messages) > 1 and any(name in messages[1]["content"] for name in ("amber", "birch")):
        return 200, completion("Thought: " + "I must think about this at length. " * 12)
    if len(messages) > 1:
        from core.seeding import derive_seed
        from envs.toy import SYLLABLES

        family = next(name for name in ("cedar", "dune") if name in messages[1]["content"])
        number = derive_seed(0, family, "word")
        return 200, completion("Action: say " + "".join(SYLLABLES[(number // 12**place) % 12] for place in range(4)))
    role = "judge" if "Status:" in messages[0]["content"] else "extractor"
    return 200, completion(play(messages, role, 0))


def remote(server, *more):
    return ("env=toy", "llm=vllm", "embedder=hashing", f"llm.api_base={server.url}", "llm.json_schema=false", *more)


@pytest.mark.parametrize("workflow", ["vanilla", "reasoningbank", "matts_parallel"])
def test_a_true_rate_of_one_half_is_measured_where_the_failures_outgrow_the_context(here, serve, workflow):
    server = serve(long_winded)
    words = ("env.boxes_per_family=3", "limit=12", "max_steps=40", f"workflow={workflow}")
    run_dir, rate = here(*remote(server, *words))
    rows, summary = read_rows(run_dir), read_json(run_dir / "summary.json")
    assert rate == 0.5
    assert (summary["n"], summary["n_context"], summary["n_infra_error"], summary["complete"]) == (12, 6, 0, True)
    cut = [row for row in rows if row["trajectories"][row["chosen"]]["ended_by"] == "context"]
    assert {row["status"] for row in cut} == {"failure"} and len(cut) == 6
    for attempt in (attempt for row in cut for attempt in row["trajectories"]):
        assert attempt["steps"] and "maximum context length" in attempt["error"]
    if workflow != "vanilla":  # judged and learned from, as it stands
        assert all(row["verdict"]["label"] == "failure" and row["usage"]["extractor"]["calls"] for row in cut)


def test_a_judge_or_distiller_whose_call_overflows_is_a_learning_error(here, serve):
    def answer(request, number):
        return long_winded(request, number) if len(request["messages"]) > 1 else TOO_LONG["openai"]

    run_dir, _ = here(*remote(serve(answer), "limit=4", "max_steps=2"))
    for row in read_rows(run_dir):
        assert row["trajectories"][0]["ended_by"] != "context"
        assert row["learning_errors"][0].startswith("judge: context: ") and row["records"] == []


@pytest.mark.parametrize("what", TOO_LONG)
def test_what_servers_say_of_a_prompt_that_is_too_long(serve, what):
    server = serve(lambda request, number: TOO_LONG[what])
    model = LiteLLMModel(model="hosted_vllm/m", api_base=server.url, timeout_s=5.0)
    with pytest.raises(AttemptOver) as caught:
        model.chat(Request(messages=[{"role": "user", "content": "x"}], role="agent"))
    assert (caught.value.kind, len(server.requests)) == ("context", 1)
    model.close()


def test_a_failure_within_an_answer_may_be_the_conversations_own(serve):
    choice = {"index": 0, "finish_reason": "error", "message": {"role": "assistant", "content": ""}}
    choice["error"] = {"code": "context_length_exceeded", "message": "too many tokens"}
    server = serve(lambda request, number: (200, completion("", choices=[choice])))
    model = LiteLLMModel(model="hosted_vllm/m", api_base=server.url, timeout_s=5.0)
    with pytest.raises(AttemptOver) as caught:
        model.chat(Request(messages=[{"role": "user", "content": "x"}], role="agent"))
    assert caught.value.kind == "context"
    model.close()


def test_other_refusals_stay_the_outsides(serve):
    for body in ("unknown field top_k", "invalid base64"):
        server = serve(lambda request, number, body=body: (400, {"error": {"message": body}}))
        model = LiteLLMModel(model="hosted_vllm/m", api_base=server.url, timeout_s=5.0)
        with pytest.raises(InfraError) as caught:
            model.chat(Request(messages=[{"role": "user", "content": "x"}], role="agent"))
        assert (type(caught.value), caught.value.kind) == (InfraError, "bad_request")
        model.close()


def test_a_filter_that_refuses_what_the_agent_wrote_ends_its_attempt(here, serve):
    def answer(request, number):
        if len(request["messages"]) > 3:
            return 400, {"error": {"message": "The response was filtered", "code": "content_filter"}}
        return 200, completion("Thought: something the filter does not like")

    run_dir, rate = here(*remote(serve(answer), "workflow=vanilla", "limit=3"))
    summary = read_json(run_dir / "summary.json")
    assert (rate, summary["n"], summary["n_content_filter"], summary["complete"]) == (0.0, 3, 3, True)


def test_an_attempt_that_goes_on_past_its_time_ends_there_and_counts(here):
    words = ("llm.script.path=test_calls.mumble", "llm.delay_s=0.3", "episode_timeout_s=1", "max_steps=50", "limit=1")
    run_dir, rate = here(*TOY, *words)
    summary, rows = read_json(run_dir / "summary.json"), read_rows(run_dir)
    assert (rate, summary["n"], summary["n_time"], summary["n_infra_error"]) == (0.0, 1, 1, 0)
    assert all(1 < len(row["trajectories"][0]["steps"]) < 6 for row in rows)
    assert all(row["verdict"]["source"] == "llm" for row in rows)


@pytest.mark.parametrize("more", ["refine=restart", "refine=continue"])
def test_a_round_that_never_began_for_want_of_context_leaves_the_round_before_it(here, serve, more):
    def answer(request, number):
        messages = request["messages"]
        return TOO_LONG["openai"] if len(messages) > 3 else (200, completion("Action: say sesame"))

    words = ("workflow=matts_sequential", "r=2", "memory=none", "limit=3", more)
    run_dir, _ = here(*remote(serve(answer), *words))
    assert [len(row["trajectories"]) for row in read_rows(run_dir)] == [1, 1, 1]
    assert read_json(run_dir / "summary.json")["n"] == 3


def test_a_replay_ends_its_attempts_at_the_same_window(here, serve, tmp_path):
    server = serve(long_winded)
    words = remote(server, "limit=4", "max_steps=40", f"llm.cache_path={tmp_path / 'replies.sqlite'}")
    first, _ = here(*words, "llm.cache=read_write", run_dir=tmp_path / "first")
    asked = len(server.requests)
    second, _ = here(*words, "llm.cache=replay", run_dir=tmp_path / "second")
    assert len(server.requests) == asked
    assert (second / "episodes.jsonl").read_bytes() == (first / "episodes.jsonl").read_bytes()
    assert read_json(second / "summary.json")["n_context"] == 2
