"""A server is asked for its models before the run: the names are checked, and the only one is taken and recorded."""

from __future__ import annotations

import socket

import pytest
from conftest import read_json
from provider import completion

from core.errors import StopRun, UserError
from core.models import servers
from core.models.servers import Listing, model_to_ask, models_at, name_models
from envs.toy_script import play

RUN = ("env=toy", "llm=vllm", "embedder=hashing", "limit=2", "workflow=vanilla")


def answer(request, number):
    return 200, completion(play(request["messages"], "agent", 0))


def node(server_url, model="hosted_vllm/", **more):
    return {"model": model, "api_base": server_url} | more


def named(where, **more):
    name_models({"llm": where}, {}, **more)
    return where["model"]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def test_the_only_model_is_taken_and_recorded_and_no_other_goes_on(here, serve, tmp_path):
    server = serve(answer, models=["org/first"])
    words = (*RUN, f"llm.api_base={server.url}")
    run_dir, _ = here(*words)
    assert {request["model"] for request in server.requests} == {"org/first"}
    manifest = read_json(run_dir / "manifest.json")
    assert manifest["config"]["llm"]["model"] == manifest["models"]["agent"]["model"] == "hosted_vllm/org/first"
    server.models = ["org/second", "org/first"]  # it still has the one that the run took
    here(*words)
    server.models = ["org/second"]
    with pytest.raises(UserError, match="llm.model: 'hosted_vllm/org/first' -> 'hosted_vllm/org/second'"):
        here(*words, "limit=3")


def test_a_run_with_nothing_left_to_do_asks_no_server(here, serve):
    server = serve(answer, models=["org/first"])
    words = (*RUN, f"llm.api_base={server.url}")
    run_dir, first = here(*words)
    server.close()
    _, again = here(*words)
    assert first == again
    with pytest.raises(StopRun, match="nothing answers"):
        here(*words, "limit=3")
    for name in ("summary.json", "episodes.jsonl", "manifest.json"):  # what is lost or cannot be read promises nothing
        whole = (run_dir / name).read_bytes()
        for damaged in (b"{", b""):
            (run_dir / name).write_bytes(damaged)
            with pytest.raises((StopRun, UserError), match="nothing answers|is damaged|manifest.json"):
                here(*words)
        (run_dir / name).write_bytes(whole)
    assert here(*words)[1] == first


@pytest.mark.parametrize("status", [404, 401, 500])
def test_a_server_that_does_not_say_is_not_refused(here, serve, status):
    server = serve(answer, models=status)
    here(*RUN, f"llm.api_base={server.url}")
    assert {request["model"] for request in server.requests} == {"default"}
    assert server.listed == 1


def test_a_wrong_name_is_refused_with_those_that_there_are(serve):
    server = serve(answer, models=["qwen2.5-7b", "llama3.2:latest"])
    said = "has qwen2.5-7b, llama3.2:latest, and no qwen2-7b: did you mean qwen2.5-7b?"
    with pytest.raises(UserError, match=said):
        named(node(server.url, "hosted_vllm/qwen2-7b"))
    with pytest.raises(UserError, match=r"no qwen2-7b \(`ollama pull qwen2-7b` gets it\)"):
        named(node(server.url, "ollama_chat/qwen2-7b"))
    with pytest.raises(UserError, match="has several models, .*: choose one, e.g. llm.model=hosted_vllm/qwen2.5-7b"):
        named(node(server.url))
    assert named(node(server.url, "ollama_chat/llama3.2")) == "ollama_chat/llama3.2"  # a tag is Ollama's to add
    assert named(node(server.url, "openai/qwen2.5-7b")) == "openai/qwen2.5-7b"
    assert server.requests == []


LISTED = ["Qwen/Qwen2.5-7B-Instruct", "openai/gpt-oss-20b", "hosted_vllm/odd", "plain", "qwen3:8b"]


@pytest.mark.parametrize("name", LISTED)
def test_any_name_that_the_server_lists_is_taken_as_it_is_listed(serve, name):
    server = serve(answer, models=LISTED)
    assert named(node(server.url, name)) == f"hosted_vllm/{name}"
    assert named(node(server.url, f"hosted_vllm/{name}")) == f"hosted_vllm/{name}"
    assert named(node(server.url.removesuffix("/v1"), "qwen3:8b", cache="replay")) == "ollama_chat/qwen3:8b"


def test_a_name_without_a_provider_that_is_not_listed_is_refused_at_once(serve):
    server = serve(answer, models=LISTED)
    for wrong in ("Qwen/Qwen2.5-7B", "plan"):
        with pytest.raises(UserError, match=f"and no {wrong}: did you mean"):
            named(node(server.url, wrong))
    assert named(node(serve(answer, models=404).url, "org/any")) == "hosted_vllm/org/any"


def test_a_server_that_answers_to_every_name_is_not_refused(serve):
    server = serve(answer, models=["/models/a.gguf"])
    server.owner = "llamacpp"
    assert named(node(server.url, "hosted_vllm/default")) == "hosted_vllm/default"
    assert named(node(server.url)) == "hosted_vllm//models/a.gguf"


def test_a_server_that_is_not_there_is_named_with_its_address(serve):
    url = f"http://127.0.0.1:{free_port()}/v1"
    with pytest.raises(StopRun, match=f"judge_llm: nothing answers at {url} .*Connection refused.*judge_llm.api_base"):
        name_models({"judge_llm": node(url)}, {})
    with pytest.raises(UserError, match="api_base=localhost:8000/v1 is no address"):
        named(node("localhost:8000/v1"))
    other = serve(answer, models=["b"])
    gone = node(url, fallbacks=[node(other.url)])  # a fallback may answer for it
    assert named(gone) == "hosted_vllm/default" and gone["fallbacks"][0]["model"] == "hosted_vllm/b"


@pytest.mark.parametrize("busy", [1.0, 503, 429])
def test_a_busy_server_stops_only_a_run_that_names_no_model(serve, monkeypatch, busy):
    monkeypatch.setattr(servers, "_TIMEOUT_S", 0.1)
    monkeypatch.setattr(servers, "_PATIENCE_S", 0.2)
    server = serve(answer, models=["a"])
    server.busy = [busy] * 3
    with pytest.raises(StopRun, match=f"llm: the server at {server.url} is too busy .*: give llm.model=NAME"):
        named(node(server.url))
    assert named(node(server.url, "hosted_vllm/b")) == "hosted_vllm/b"
    resumed = node(server.url)
    name_models({"llm": resumed}, {"llm": {"model": "hosted_vllm/a"}})
    assert (resumed["model"], server.listed) == ("hosted_vllm/a", 3)


def test_a_slow_server_is_waited_for_where_only_it_can_name_the_model(serve, monkeypatch):
    monkeypatch.setattr(servers, "_TIMEOUT_S", 0.1)
    server = serve(answer, models=["a"])
    server.busy = [0.4]
    assert named(node(server.url)) == "hosted_vllm/a"


def test_nobody_is_asked_where_that_costs_or_promises_otherwise(serve, monkeypatch):
    server = serve(answer, models=["a"])
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    assert named(node(server.url), ask=False) == "hosted_vllm/default"  # dry_run
    assert named(node(server.url, cache="replay")) == "hosted_vllm/default"
    assert named(node(server.url, api_key_env="NO_SUCH_KEY")) == "hosted_vllm/"  # refused for its key elsewhere
    assert named(node(server.url, "dashscope/qwen-plus")) == "dashscope/qwen-plus"
    assert named({"model": "openai/gpt-4o-mini", "api_base": None}) == "openai/gpt-4o-mini"
    assert server.listed == 0


def test_two_models_of_one_server_are_one_question(serve):
    server = serve(answer, models=["a"])
    name_models({"llm": node(server.url), "judge_llm": node(server.url, "hosted_vllm/a")}, {})
    assert server.listed == 1


def test_a_run_that_went_on_without_a_listing_keeps_its_name():
    listing = Listing(names=("a", "b"))
    assert model_to_ask("llm", "hosted_vllm/", "http://x/v1", listing, "b") == "hosted_vllm/b"
    assert model_to_ask("llm", "hosted_vllm/", "http://x/v1", None, "b") == "hosted_vllm/b"
    assert model_to_ask("llm", "hosted_vllm/", "http://x/v1", Listing(names=("a",)), "b") == "hosted_vllm/a"


def test_the_key_is_sent_and_ollama_is_asked_below_its_root(serve, monkeypatch):
    server = serve(answer, models=["a"])
    monkeypatch.setenv("SOME_KEY", "the-key-of-a-test")
    assert named(node(server.url, api_key_env="SOME_KEY")) == "hosted_vllm/a"
    assert server.listed_for == "Bearer the-key-of-a-test"
    assert models_at(server.url.removesuffix("/v1")) == models_at(server.url) == Listing(names=("a",))
    assert server.listed_for is None
