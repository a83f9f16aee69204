"""Remote models through the real litellm, against a server on this machine."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest
from conftest import TOY, read_json, read_rows
from provider import completion, embedding
from test_memory import record

from core.errors import InfraError, StopRun, TransientError, UserError
from core.make import make
from core.memory.bank import MemoryBank
from core.memory.policies.cosine import Cosine
from core.memory.sqlite.store import SqliteStore
from core.models.base import Request
from core.models.cache import CachedEmbedder
from core.models.embedding import (
    HashingEmbedder,
    HuggingFaceEmbedder,
    MiniLMEmbedder,
    NamedEmbedder,
    OpenAIEmbedder,
    embedder_named,
)
from core.models.meter import Meter
from core.models.remote import LiteLLMModel

HELLO = [{"role": "user", "content": "hello"}]
ASK = Request(messages=HELLO, role="agent")


def model(server, **changes):
    return LiteLLMModel(**{"model": "hosted_vllm/m", "api_base": server.url, "timeout_s": 5.0} | changes)


def test_a_call_sends_what_it_says_and_reports_what_came(serve):
    server = serve(lambda request, n: (200, completion("hi")))
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    reply = model(server, json_schema=True).chat(
        Request(messages=HELLO, role="judge", seed=5, temperature=0.3, max_tokens=99, schema=schema)
    )
    assert (reply.text, reply.finish_reason) == ("hi", "stop")
    assert (reply.usage.calls, reply.usage.prompt_tokens, reply.usage.completion_tokens) == (1, 11, 7)
    assert reply.usage.cost_usd is None  # nobody knows what this model costs
    [sent] = server.requests
    assert sent["messages"] == HELLO
    assert (sent["seed"], sent["temperature"], sent["max_tokens"]) == (5, 0.3, 99)
    assert sent["response_format"]["json_schema"]["schema"] == schema
    assert reply.sent == {"temperature": 0.3, "seed": 5, "max_tokens": 99, "response_format": "json_schema"}


def test_a_known_model_has_a_price(serve, monkeypatch):
    monkeypatch.setenv("SOME_KEY", "sk-test-123")
    server = serve(lambda request, n: (200, completion("hi", model="gpt-4o-mini")))
    reply = model(server, model="openai/gpt-4o-mini", api_key_env="SOME_KEY").chat(ASK)
    assert reply.usage.cost_usd == pytest.approx(11 * 0.15e-6 + 7 * 0.6e-6)
    assert server.headers[0]["Authorization"] == "Bearer sk-test-123"


def test_a_transient_error_is_tried_again_and_no_more_often_than_configured(serve):
    server = serve(lambda request, n: (503, {"error": {"message": "busy"}}) if n < 3 else (200, completion("at last")))
    assert model(server, attempts=3).chat(ASK).text == "at last"
    assert len(server.requests) == 3
    down = serve(lambda request, n: (500, {"error": {"message": "down"}}))
    with pytest.raises(TransientError):
        model(down, attempts=2).chat(ASK)
    assert len(down.requests) == 2


def test_a_bad_request_fails_at_once(serve):
    server = serve(lambda request, n: (400, {"error": {"message": "no such parameter"}}))
    with pytest.raises(InfraError, match="no such parameter") as caught:
        model(server).chat(ASK)
    assert not isinstance(caught.value, TransientError)
    assert len(server.requests) == 1


@pytest.mark.parametrize("body", [completion("", choices=[]), "<html>gateway</html>", "{}"])
def test_an_answer_without_a_choice_is_an_infra_error(serve, body):
    server = serve(lambda request, n: (200, completion("hi") if n == 1 else body))
    asked = model(server, attempts=1)
    assert asked.chat(ASK).text == "hi"
    with pytest.raises(InfraError) as caught:
        asked.chat(ASK)
    assert caught.value.kind in ("bad_reply", "server")


def test_tokens_that_were_not_reported_cost_an_unknown_sum(serve):
    price = {"prompt": 1.0, "completion": 2.0}
    silent = {key: value for key, value in completion("hi").items() if key != "usage"}
    server = serve(lambda request, n: (200, silent if n < 3 else completion("hi")))
    assert model(server, price_per_mtok=price).chat(ASK).usage.cost_usd is None
    free = model(server, price_per_mtok={"prompt": 0.0, "completion": 0.0})
    assert free.chat(ASK).usage.cost_usd == 0.0
    assert model(server, price_per_mtok=price).chat(ASK).usage.cost_usd == pytest.approx(25e-6)


def test_an_empty_answer_is_an_answer(serve):
    server = serve(lambda request, n: (200, completion(None)))
    assert model(server).chat(ASK).text == ""


@pytest.mark.parametrize(("status", "words"), [(401, "refused the key"), (404, "is not known")])
def test_no_later_call_can_mend_a_wrong_key_or_model(serve, status, words):
    server = serve(lambda request, n: (status, {"error": {"message": "no"}}))
    with pytest.raises(StopRun, match=words):
        model(server).chat(ASK)
    assert len(server.requests) == 1


def test_a_model_without_a_provider_ends_the_run():
    with pytest.raises(StopRun, match="llm.model=nonsense names no provider"):
        LiteLLMModel(model="nonsense").chat(ASK)


def test_a_missing_key_is_named_before_any_call(monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    assert "NO_SUCH_KEY" in LiteLLMModel(model="openai/gpt-4o-mini", api_key_env="NO_SUCH_KEY").problem()
    with pytest.raises(UserError, match="NO_SUCH_KEY"):
        OpenAIEmbedder(api_key_env="NO_SUCH_KEY")


def test_a_missing_key_stops_a_run_before_it_leaves_anything(cli, tmp_path):
    done = cli("env=toy", "llm=openai", "embedder=hashing", "run_dir=run", env={"OPENAI_API_KEY": ""})
    assert done.returncode == 1
    assert "OPENAI_API_KEY" in done.stderr
    assert not (tmp_path / "run" / "manifest.json").exists()


def test_the_openai_embedder(serve, monkeypatch):
    monkeypatch.setenv("SOME_KEY", "sk-test-123")
    server = serve(lambda request, n: (200, embedding([3.0, 4.0])))
    embedder = OpenAIEmbedder(api_key_env="SOME_KEY", api_base=server.url)
    assert np.allclose(embedder.embed(["one", "two"]), [[0.6, 0.8], [0.6, 0.8]])
    assert len(server.requests) == 2  # one text a call
    broken = OpenAIEmbedder(api_key_env="SOME_KEY", api_base=serve(lambda request, n: (400, {"error": {}})).url)
    with pytest.raises(InfraError):
        broken.embed(["x"])


@pytest.mark.parametrize("provider", ["hosted_vllm", "openai"])
def test_an_embedder_is_named_in_yaml_alone(serve, here, provider):
    server = serve(lambda request, n: (503, {"error": {}}) if n == 1 else (200, embedding([3.0, 4.0])))
    price = "{prompt: 2.0, completion: 0.0}"
    inner = {"model": f"{provider}/e", "api_key_env": "null", "api_base": server.url, "price_per_mtok": price}
    words = [f"embedder.inner.{key}={value}" for key, value in inner.items()]
    run_dir, _ = here(*TOY[:2], "embedder=openai", "embedder.path=null", *words, "limit=3")
    embedded = read_json(run_dir / "summary.json")["calls"]["embedder"]
    assert (embedded["calls"], embedded["retries"], embedded["errors"]) == (3, 1, 0)
    assert embedded["cost_usd"] == pytest.approx(3 * 2 * 2e-6)
    assert [request["model"] for request in server.requests] == ["e"] * 4  # three texts and one repetition
    with closing(SqliteStore(run_dir / "bank.sqlite", read_only=True)) as store:
        assert store.meta("embedder") == f"{provider}/e"


def lengths(request, n):
    """Embeddings that say how long each text is, the last text's first, as a server may send them."""
    rows = [{"index": i, "embedding": [float(len(text)), 1.0]} for i, text in enumerate(request["input"])]
    return 200, embedding([]) | {"data": rows[::-1]}


def test_dashscope_answers_and_embeds_by_its_yaml_alone(serve, compose, monkeypatch):
    monkeypatch.setenv("DASHSCOPE_API_KEY", "sk-test-456")
    chat, vectors = serve(lambda request, n: (200, completion("hi", model="qwen-plus"))), serve(lengths)
    cfg = compose("llm=dashscope", "embedder=dashscope", "embedder.path=null")
    assert cfg.llm.api_base == cfg.embedder.inner.api_base == "https://dashscope.aliyuncs.com/compatible-mode/v1"
    cfg.llm.api_base, cfg.embedder.inner.api_base = chat.url, vectors.url
    reply = make(cfg.llm).chat(Request(messages=HELLO, role="judge", seed=1, temperature=0.0))
    assert (reply.text, chat.requests[0]["model"]) == ("hi", "qwen-plus")
    assert reply.usage.cost_usd == pytest.approx(11 * 0.4e-6 + 7 * 1.2e-6)
    assert chat.headers[0]["Authorization"] == vectors_key(vectors, cfg) == "Bearer sk-test-456"
    assert make(cfg.llm).supports_schema is False


def vectors_key(server, cfg):
    """Embed 23 texts; the header that the key went out in."""
    meter = Meter()
    embedder = make(cfg.embedder, meter=meter)
    assert embedder.name == "text-embedding-v3"
    texts = ["x" * n for n in range(1, 24)]
    found = embedder.embed([*texts, "x"])
    assert np.allclose(found[:23, 0] / found[:23, 1], range(1, 24)) and np.array_equal(found[0], found[23])
    assert [len(request["input"]) for request in server.requests] == [10, 10, 3]  # no more than 10 in one call
    assert {request["model"] for request in server.requests} == {"text-embedding-v3"}
    embedder.embed(["xxx", "a new one"])
    assert server.requests[-1]["input"] == ["a new one"] and len(server.requests) == 4
    return server.headers[0]["Authorization"]


def test_one_text_a_call_unless_a_batch_is_asked_for(serve):
    server = serve(lengths)
    keys = {"model": "hosted_vllm/e", "api_key_env": None, "api_base": server.url}
    one, many = OpenAIEmbedder(**keys), OpenAIEmbedder(**keys, batch=2)
    assert np.array_equal(one.embed(["a", "bb", "ccc"]), many.embed(["a", "bb", "ccc"]))
    assert [request["input"] for request in server.requests] == [["a"], ["bb"], ["ccc"], ["a", "bb"], ["ccc"]]
    with pytest.raises(UserError, match="embedder.batch=0"):
        OpenAIEmbedder(**keys, batch=0)
    short = serve(lambda request, n: (200, embedding([1.0, 2.0])))
    with pytest.raises(InfraError, match="holds no embedding"):
        OpenAIEmbedder(**keys | {"api_base": short.url}, batch=2, attempts=1).embed(["a", "b"])


def test_texts_that_were_embedded_before_a_call_broke_are_paid_for(serve):
    server = serve(lambda request, n: lengths(request, n) if n < 3 else (400, {"error": {"message": "no"}}))
    embedder = OpenAIEmbedder(model="hosted_vllm/e", api_key_env=None, api_base=server.url)
    with pytest.raises(InfraError) as caught:
        embedder.measure(["a", "bb", "ccc"])
    assert (caught.value.usage.calls, caught.value.usage.prompt_tokens) == (0, 4)


def test_two_folders_of_one_name_are_two_embedders(tmp_path, monkeypatch):
    made = {}
    for place, weights in (("a", b"one" * 999), ("b", b"one" * 998 + b"two"), ("c", b"one" * 999)):
        folder = tmp_path / place / "checkpoint-500"
        (folder / "2_Dense").mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(b"the same")
        (folder / "2_Dense" / "model.safetensors").write_bytes(weights)
        made[place] = HuggingFaceEmbedder(model=str(folder))
        vector = HashingEmbedder(dim=64).measure if place == "b" else HashingEmbedder(dim=32).measure
        monkeypatch.setattr(made[place], "measure", vector)
    assert made["a"].name == made["c"].name != made["b"].name
    assert made["a"].name.startswith("checkpoint-500-")
    assert HuggingFaceEmbedder(model="BAAI/bge-small-en-v1.5").name == "BAAI/bge-small-en-v1.5"
    sizes = {}
    for place, inner in made.items():
        with closing(CachedEmbedder(inner=inner, path=str(tmp_path / "embeddings.sqlite"))) as embedder:
            sizes[place] = embedder.embed(["one text"]).shape[1]
    assert sizes == {"a": 32, "b": 64, "c": 32}  # no vector of the one for the other


def test_a_bank_refuses_another_folder_of_its_embedders_name(tmp_path, monkeypatch):
    def opened(name, embedder):
        with closing(MemoryBank(path=str(tmp_path / name), embedder=embedder, policy=Cosine())) as bank:
            if not bank.ids():
                bank.add(record("one text"))

    for place in "ab":
        (tmp_path / place / "checkpoint-500").mkdir(parents=True)
        (tmp_path / place / "checkpoint-500" / "model.safetensors").write_text(place)
    monkeypatch.setattr(HuggingFaceEmbedder, "measure", lambda self, texts: HashingEmbedder().measure(texts))
    first, second = (HuggingFaceEmbedder(model=str(tmp_path / place / "checkpoint-500")) for place in "ab")
    opened("bank.sqlite", CachedEmbedder(inner=first))
    opened("bank.sqlite", CachedEmbedder(inner=first))
    with pytest.raises(UserError, match="was made by the embedder 'checkpoint-500-"):
        opened("bank.sqlite", CachedEmbedder(inner=second))


def test_a_bank_gets_its_embedder_back_by_name(monkeypatch, compose):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-123")
    monkeypatch.setenv("DASHSCOPE_API_KEY", "sk-test-456")
    for name, kind in (
        ("all-MiniLM-L6-v2", MiniLMEmbedder),
        ("hashing-64", HashingEmbedder),
        ("text-embedding-3-small", OpenAIEmbedder),
        ("text-embedding-v3", OpenAIEmbedder),
        ("gemini/gemini-embedding-001", OpenAIEmbedder),
    ):
        found = embedder_named(name)
        assert (type(found), found.name) == (kind, name)
    theirs, ours = embedder_named("text-embedding-v3"), compose("embedder=dashscope").embedder.inner
    assert all(getattr(theirs, key) == ours[key] for key in ("api_key_env", "api_base", "batch"))
    lazy = NamedEmbedder(name="hashing-64")
    assert lazy.loaded is None
    assert np.array_equal(lazy.embed(["a b"]), HashingEmbedder(dim=64).embed(["a b"]))
    assert lazy.loaded == "HashingEmbedder"


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"attempts": 0}, "attempts=0: give at least 1"),
        ({"price_per_mtok": {"prompt": 1.0}}, "give {prompt: USD, completion: USD}"),
    ],
    ids=str,
)
def test_numbers_that_make_no_sense_are_refused_for_models_and_embedders(keys, words):
    for part in (LiteLLMModel, OpenAIEmbedder):
        with pytest.raises(UserError, match=words):
            part(**{"model": "openai/m", "api_key_env": None} | keys)


def play(request, n):
    """The toy world's players, behind HTTP: a call that breaks now and then, and garbage now and then."""
    from envs.toy_script import play as toy

    messages = request["messages"]
    role = "agent" if len(messages) > 1 else "judge" if "Status:" in messages[0]["content"] else "extractor"
    if n % 7 == 0:
        return 400, {"error": {"message": "broken on purpose"}}
    return 200, completion("garbage" if n % 5 == 0 else toy(messages, role, 0))


def test_a_whole_run_where_calls_break_counts_everything_once(serve, here, tmp_path):
    server = serve(play)
    run_dir = tmp_path / "run"
    words = ("env=toy", "llm=vllm", "embedder=hashing", "llm.json_schema=false", "retry_broken=0")
    with pytest.raises(StopRun, match="of 40 tasks broke"):
        here(*words, f"llm.api_base={server.url}", "stop_after_broken=null", run_dir=run_dir)
    rows, summary = read_rows(run_dir), read_json(run_dir / "summary.json")
    by_status = {s: sum(r["status"] == s for r in rows) for s in ("success", "failure", "infra_error")}
    assert sum(by_status.values()) == 40
    assert by_status["infra_error"] == summary["n_infra_error"] > 0
    assert summary["n"] == 40 - by_status["infra_error"]
    assert summary["success_rate"] == round(by_status["success"] / summary["n"], 4)
    assert summary["n_verdicts_unparsed"] > 0
    assert summary["n_lessons_dropped"] > 0
    assert summary["n_learning_errors"] > 0
    assert summary["cost_usd"] is None
    for row in rows:
        if row["status"] == "infra_error":
            assert "broken on purpose" in row["trajectories"][0]["error"]
            assert row["lessons"] == []
            assert row["records"] == []
            assert row["verdict"]["label"] is None
    models = read_json(run_dir / "manifest.json")["models"]
    assert models["judge"]["temperature"] == 0.0
    assert models["agent"]["sent"]["temperature"] == 0.7
    assert models["extractor"]["sent"]["temperature"] == 1.0


def test_a_refused_connection_stops_the_run_at_once_with_one_line(cli):
    done = cli("env=toy", "llm=vllm", "embedder=hashing", "llm.api_base=http://127.0.0.1:9/v1", timeout=60)
    assert done.returncode == 1
    assert "Connection refused" in done.stderr
    assert "Traceback" not in done.stderr
    assert "run_dir=" not in done.stderr  # nothing was recorded: there is nothing to go on with
