"""The real embedded model and the real sentence embeddings, once."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from conftest import read_json, read_rows

from core.errors import AttemptOver, UserError
from core.learning.judges import CONFIDENCE_SCHEMA, JUDGE_SCHEMA
from core.learning.structured import lessons_schema, parse_confidence, parse_lessons, parse_status
from core.models.base import Request
from core.models.embedding import MiniLMEmbedder
from core.models.local import LocalModel
from core.models.weights import SHA256

ASK = Request(messages=[{"role": "user", "content": "What is 2 + 2? Answer briefly."}], role="agent")


@pytest.fixture(scope="module")
def model():
    local = LocalModel(max_tokens=48)
    yield local
    local.close()


def test_the_same_seed_says_the_same_and_tokens_are_counted(model):
    one, two, other = (model.chat(replace(ASK, seed=seed, temperature=1.0)) for seed in (3, 3, 4))
    assert one.text == two.text != other.text
    assert one.usage.prompt_tokens > 10
    assert 0 < one.usage.completion_tokens <= 48
    assert one.finish_reason in ("stop", "length")
    assert one.model == "local/SmolLM2-135M-Instruct.Q4_1.gguf"


def test_a_schema_holds_the_judge_and_the_distiller_to_a_form_that_parses(model):
    verdict = model.chat(replace(ASK, role="judge", seed=1, schema=JUDGE_SCHEMA, max_tokens=200))
    assert parse_status(verdict.text) in ("success", "failure")
    sure = model.chat(replace(ASK, role="judge", seed=1, schema=CONFIDENCE_SCHEMA, max_tokens=200))
    assert parse_status(sure.text) in ("success", "failure")
    assert "confidence" in json.loads(sure.text)  # a grammar does not bound a number: it may be none that can be
    assert parse_confidence(sure.text) is None or 0 <= parse_confidence(sure.text) <= 1
    lessons = model.chat(
        replace(ASK, role="extractor", seed=1, temperature=1.0, schema=lessons_schema(2), max_tokens=500)
    )
    found, dropped = parse_lessons(lessons.text, 2)
    assert 1 <= len(found) + dropped <= 2


@pytest.mark.parametrize("text", ["\ud800 lone", "nul \x00 byte", "<|im_end|><|im_start|>system", "", "🙂 漢字"])
def test_no_text_breaks_a_call(model, text):
    model.chat(Request(messages=[{"role": "user", "content": text}], role="agent", seed=1, max_tokens=4))


def test_a_prompt_over_the_context_ends_the_attempt(model):
    with pytest.raises(AttemptOver, match="context size"):
        model.chat(Request(messages=[{"role": "user", "content": "word " * 9000}], role="agent"))


def test_a_missing_model_file_is_one_sentence():
    with pytest.raises(UserError, match="no-such.gguf does not exist: give the path of a GGUF file"):
        LocalModel(model_path="no-such.gguf")


def test_minilm_knows_what_is_alike_and_does_not_depend_on_neighbours():
    embedder = MiniLMEmbedder()
    texts = ["How do I boil water?", "Heating water until it boils", "The capital of France"]
    together = embedder.embed(texts)
    assert together.shape == (3, 384)
    assert np.allclose(np.linalg.norm(together, axis=1), 1, atol=1e-6)
    assert together[0] @ together[1] > 0.6 > 0.2 > together[0] @ together[2]
    assert np.array_equal(together[1], embedder.embed(texts[1:2])[0])


def test_weights_that_are_not_the_published_ones_are_refused(monkeypatch):
    monkeypatch.setitem(SHA256, "model.safetensors", SHA256["model.safetensors"][::-1])
    with pytest.raises(UserError, match="sha256"):
        MiniLMEmbedder().embed(["x"])


def test_the_default_run_end_to_end(cli, tmp_path):
    done = cli("limit=2", "roles.agent.max_tokens=48", "run_dir=run")
    assert done.returncode == 0, done.stderr
    rows, summary = read_rows(tmp_path / "run"), read_json(tmp_path / "run/summary.json")
    assert len(rows) == 2 == summary["n"] + summary["n_infra_error"]
    assert summary["label_source"] == "llm"
    assert summary["tokens"]["agent"] > 0 < summary["tokens"]["judge"]
    assert summary["n_verdicts_unparsed"] == 0
    assert summary["n_lessons"] > 0
    assert len(rows[1]["retrieved"]) == 1
    assert "memory_items" in rows[1]["trajectories"][0]["opening"][0]["content"]
    for name in ("bank.sqlite", "manifest.json", "timings.jsonl", ".hydra/config.yaml"):
        assert (tmp_path / "run" / name).exists()
    assert "\n  run\n" in done.stdout
    manifest = read_json(tmp_path / "run/manifest.json")
    assert manifest["models"]["agent"]["model"] == "local/SmolLM2-135M-Instruct.Q4_1.gguf"
    assert manifest["fingerprint"]["dataset"]["sha256"]
    assert len(manifest["task_ids"]) == 2
    assert manifest["packages"]["faiss-cpu"]
    assert "success" in done.stdout
    assert json.dumps(summary)
