"""What an agent runs into by its own doing ends its attempt, which stays in the denominator and is learned from."""

from __future__ import annotations

import json
import re
from collections import defaultdict

import pytest
from conftest import TOY, read_json, read_rows
from provider import completion

from core.errors import AttemptOver, InfraError
from core.models.base import Request
from core.models.remote import LiteLLMModel
from envs.toy import ToyEnv
from envs.toy_script import play

WINDOW = 2200  # characters of a conversation that the server takes
TOO_LONG = {
    "openai": (400, {"error": {"message": "This model's maximum context length is 99 tokens.", "type": "invalid"}}),
    "code alone": (400, {"error": {"message": "Refused.", "code": "context_length_exceeded"}}),
    "llama.cpp": (400, {"error": {"message": "the request exceeds the available context size", "code": 400}}),
    "anthropic": (400, {"error": {"message": "prompt is too long: 212000 tokens > 200000 maximum"}}),
}


def long_winded(request: dict, number: int) -> tuple[int, dict]:
    """Half of the families are played well and in one step; in the others the agent thinks until it is refused."""
    messages = request["messages"]
    if sum(len(message["content"]) for message in messages) > WINDOW and len(messages) > 1:
        return TOO_LONG["openai"]
    if len(messages) > 1 and any(name in messages[1]["content"] for name in ("amber", "birch")):
        return 200, completion("Thought: " + "I must think about this at length. " * 12)
    if len(messages) > 1:
        family = next(name for name in ("cedar", "dune") if name in messages[1]["content"])
        return 200, completion(f"Action: say {ToyEnv(instructions='', max_steps=5).word(family)}")
    role = "judge" if "Status:" in messages[0]["content"] else "extractor"
    return 200, completion(play(messages, role, 0))


def remote(server, *more):
    return ("env=toy", "llm=vllm", "embedder=hashing", f"llm.api_base={server.url}", "llm.json_schema=false", *more)


@pytest.mark.parametrize("workflow", ["vanilla", "matts_parallel"])
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


CUT, UNSTATED = "the reply was cut off at its limit of length", "no answer was stated"
# {how two attempts at "What is 2 + 2?" end: (reply and why it ended; `ended_by` and `stated` in the record; the final
# answer that the judge reads; what judge, selector and distiller read of the end)}
ENDINGS = {
    "by itself": (("So <answer>4</answer>", "stop"), "goal", True, "4", None),
    "cut off": (("2 + 2 = 4, so that", "length"), "goal", False, "(none)", f"{CUT}; {UNSTATED}"),
    "cut off later": (("<answer>4</answer> To check", "length"), "goal", True, "4", CUT),
    "no answer stated": (("That is 2 + 2 = 4 in all.", "stop"), "goal", False, "4", UNSTATED),
    "filtered": (
        ("It is", "content_filter"), "end", False, "(none)", f"the provider's filter cut the reply off; {UNSTATED}"
    ),
    "refused": (("I cannot do that.", "refusal"), "end", False, "(none)", f"the model declined to answer; {UNSTATED}"),
    "context": (None, "context", None, "(none)", "the context window was full"),
    "step limit": (("Hm.", "stop"), "step_limit", None, "(none)", "the limit of steps was reached"),
}  # fmt: skip
ROLES = {"You check the work": "judge", "You compare 2 attempts": "selector", "You turn an agent": "distiller"}


def test_how_each_ending_reaches_judge_label_selector_distiller_and_table(here, serve, tmp_path):
    """The truth table of docs/runs.md: two attempts at each task, each judged and distilled by itself."""
    heard = defaultdict(list)  # {(ending, role): prompts}

    def answer(request, number):
        text = request["messages"][0]["content"]
        role = next((role for begin, role in ROLES.items() if text.startswith(begin)), "agent")
        asked = re.search(r"What is 2 \+ 2, (.*?)\?", request["messages"][-1]["content"] if role == "agent" else text)
        ending = asked[1] if asked else "step limit"
        heard[ending, role].append(text)
        if role == "judge":
            return 200, completion(f'Status: "{"failure" if "How it ended" in text else "success"}"')
        if role != "agent":
            return 200, completion('{"index": 1}' if role == "selector" else "Nothing to learn.")
        if ENDINGS[ending][0] is None:
            return TOO_LONG["openai"]
        said, end = ENDINGS[ending][0]
        message = {"content": None, "refusal": said} if end == "refusal" else {"content": said}
        choice = {"index": 0, "finish_reason": "stop" if end == "refusal" else end}
        return 200, completion("", choices=[choice | {"message": {"role": "assistant", **message}}])

    server = serve(answer)
    path = tmp_path / "sums.jsonl"
    rows = [
        {"id": name, "question": f"What is 2 + 2, {name}?", "answer": "4"} for name in ENDINGS if name != "step limit"
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = remote(server, "workflow=matts_parallel", "k=2", "contrast=null")[1:]
    sums, _ = here("env=questions", f"env.path={path}", *words, run_dir=tmp_path / "sums")
    boxes, _ = here("env=toy", "limit=1", "max_steps=2", *words, run_dir=tmp_path / "boxes")
    episodes = {row["task_id"].removeprefix("sums/"): row for row in read_rows(sums)}
    [episodes["step limit"]] = read_rows(boxes)
    for name, (_, ended_by, stated, final, ended) in ENDINGS.items():
        told = {role: heard[name, role] for role in ROLES.values()}
        n_read = {"judge": 2, "selector": 1, "distiller": 0 if name == "context" else 2}  # where nothing was said: none
        assert {role: len(prompts) for role, prompts in told.items()} == n_read, name
        for role, prompts in told.items():
            read = [re.findall(r"How it ended: (.*)\.$", prompt, re.M) for prompt in prompts]
            assert read == [([ended] if ended else []) * (2 if role == "selector" else 1)] * n_read[role], (name, role)
        assert all(f"Final answer or last action:\n{final}\n" in prompt for prompt in told["judge"]), name
        row = episodes[name]
        assert row["verdict"]["label"] == ("failure" if ended else "success")  # the judge's word, in every case
        for attempt in row["trajectories"]:
            assert (attempt["ended_by"], attempt["info"].get("stated")) == (ended_by, stated), name
    counts = {"n": 7, "n_success": 4, "n_unstated": 4, "n_truncated": 4, "n_context": 1, "n_content_filter": 0}
    assert counts.items() <= read_json(sums / "summary.json").items()
    assert {"n": 1, "n_success": 0, "n_step_limit": 1}.items() <= read_json(boxes / "summary.json").items()


WITHIN_AN_ANSWER = {"index": 0, "finish_reason": "error", "message": {"role": "assistant", "content": ""}}
WITHIN_AN_ANSWER["error"] = {"code": "context_length_exceeded", "message": "too many tokens"}
REFUSALS = [(AttemptOver, "context", said) for said in TOO_LONG.values()]
REFUSALS += [(AttemptOver, "context", (200, completion("", choices=[WITHIN_AN_ANSWER])))]
REFUSALS += [(InfraError, "bad_request", (400, {"error": {"message": "unknown field top_k"}}))]


@pytest.mark.parametrize(("error", "kind", "said"), REFUSALS, ids=[*TOO_LONG, "within an answer", "another refusal"])
def test_a_prompt_that_is_too_long_is_told_from_other_refusals(serve, error, kind, said):
    server = serve(lambda request, number: said)
    model = LiteLLMModel(model="hosted_vllm/m", api_base=server.url, timeout_s=5.0)
    with pytest.raises(error) as caught:
        model.chat(Request(messages=[{"role": "user", "content": "x"}], role="agent"))
    assert (type(caught.value), caught.value.kind, len(server.requests)) == (error, kind, 1)
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
