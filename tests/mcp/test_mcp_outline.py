"""Claude Flow's settings are read as they stand, variables override the settings file, and its outline is a preset."""

from __future__ import annotations

import pytest

from core.errors import UserError
from mcp_server.config import SETTINGS_ENV, load_config
from mcp_server.foreign_config import read_foreign

TEMPLATE = """\
reasoningbank:
  retrieve: {k: 4, alpha: 0.6, beta: 0.2, gamma: 0.15, delta: 0.05, recency_half_life_days: 40,
    duplicate_threshold: 0.86}
  judge: {model: "claude-sonnet-4.5", temperature: 0.1}
  distill: {max_items_per_traj: 2, redact_pii: false}
  consolidate: {run_every_new_items: 10, contradiction_threshold: 0.55, prune_age_days: 90, min_confidence_keep: 0.2}
  matts: {enabled: true, parallel_k: 6, sequential_r: 3}
"""
USER = """{"permissions": {}, "claude-flow": {"other": 1, "execution": {"reasoningbank":
{"enabled": false, "database": ".swarm/memory.db", "retrievalK": 5,
"domains": ["web", "api"], "autoConsolidate": true, "consolidateEvery": 7,
"minConfidence": 0.5}}}}"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv(SETTINGS_ENV, "none")

    def write(text):
        path = tmp_path / "given.yaml"
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize("as_settings", [True, False])
def test_each_key_of_the_template_changes_what_it_names(file, monkeypatch, as_settings):
    path = file(TEMPLATE)
    if as_settings:
        monkeypatch.setenv(SETTINGS_ENV, str(path))
    cfg = load_config([] if as_settings else read_foreign(path))
    found, life = cfg.retrieval, cfg.memory.consolidate
    weights = [found[f"{name}_weight"] for name in ("similarity", "recency", "reliability", "diversity")]
    assert (found.top_k, weights, found.age_scale_days) == (4, [0.6, 0.2, 0.15, 0.05], 40)
    assert (cfg.llm.model, cfg.roles.judge.temperature) == ("anthropic/claude-sonnet-4-5", 0.1)
    assert (cfg.distiller.max_items, cfg.memory.redact) == (2, "secrets")
    assert (life.every, life.deduplicate.min_score, life.contradict.checker.min_score) == (10, 0.86, 0.55)
    assert (life.prune.max_age_days, life.prune.min_confidence) == (90, 0.2)
    redacting = file(TEMPLATE.replace("redact_pii: false", "redact_pii: true"))
    assert load_config(read_foreign(redacting)).memory.redact == "personal"


def test_the_users_settings_of_the_same_system_are_read_from_among_other_sections(file, monkeypatch):
    monkeypatch.setenv(SETTINGS_ENV, str(file(USER)))
    cfg = load_config([])
    assert (cfg.enabled, cfg.retrieval.top_k, list(cfg.retrieval.domain)) == (False, 5, ["web", "api"])
    assert (cfg.retrieval.min_confidence, cfg.memory.consolidate.every) == (0.5, 7)
    monkeypatch.setenv(SETTINGS_ENV, str(file(USER.replace('te": true', 'te": false'))))
    assert load_config([]).memory.consolidate.every > 10**6
    assert load_config(["retrieval.top_k=2"]).retrieval.top_k == 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("reasoningbank: {retrieve: {n: 3}}", r"reasoningbank\.retrieve\.n has no equivalent here"),
        ("reasoningbank: {retrieve: 3}", r"reasoningbank\.retrieve holds no keys"),
        ("reasoningbank: {judge: {model: my-model}}", r"reasoningbank\.judge\.model=my-model has no equivalent"),
        ("reasoningbank: {distill: {redact_pii: maybe}}", r"redact_pii=maybe has no .*give .true. or"),
        ("claude-flow: {execution: {reasoningbank: {retrieval: 3}}}", r"reasoningbank\.retrieval has no equivalent"),
    ],
)
def test_a_key_without_an_equivalent_is_one_sentence_with_the_files_name(file, monkeypatch, text, sentence):
    path = file(text)
    monkeypatch.setenv(SETTINGS_ENV, str(path))
    for read in (lambda: read_foreign(path), lambda: load_config([])):
        with pytest.raises(UserError, match=f"given.yaml: .*{sentence}"):
            read()


def test_a_model_is_known_by_its_makers_names_or_given_with_its_provider(file):
    for model, name in (
        ("gpt-4o-mini", "openai/gpt-4o-mini"),
        ("gemini-2.5-flash", "gemini/gemini-2.5-flash"),
        ("groq/x-1.5", "groq/x-1.5"),
    ):
        assert load_config(read_foreign(file(f"reasoningbank: {{judge: {{model: {model}}}}}"))).llm.model == name


def test_variables_override_the_file_and_what_is_typed_overrides_them(file, monkeypatch):
    monkeypatch.setenv(SETTINGS_ENV, str(file("retrieval: hybrid\nretrieval.top_k: 4\nserver.audit_share: 0.1\n")))
    monkeypatch.setenv("REASONINGBANK_RETRIEVAL__TOP_K", "6")
    monkeypatch.setenv("REASONINGBANK_MEMORY__HYGIENE__FOREIGN", "[https, mail]")
    monkeypatch.setenv("REASONINGBANK_MEMORY__NAMESPACE", "it's: me")
    cfg = load_config([])
    assert (cfg.retrieval.top_k, cfg.server.audit_share, cfg.memory.namespace) == (6, 0.1, "it's: me")
    assert list(cfg.memory.hygiene.foreign) == ["https", "mail"]
    assert load_config(["retrieval.top_k=2"]).retrieval.top_k == 2
    monkeypatch.setenv("REASONINGBANK_RETRIEVAL", "cosine")  # another option: the file's keys of the group go
    cfg = load_config([])
    assert cfg.retrieval._target_.endswith("Cosine") and cfg.retrieval.top_k == 6
    monkeypatch.setenv("REASONINGBANK_PRESET", "paper_faithful")
    monkeypatch.delenv("REASONINGBANK_MEMORY__HYGIENE__FOREIGN")
    assert load_config([]).preset == "paper_faithful"


def test_a_variable_that_fits_nothing_is_named_and_other_programs_variables_are_left_alone(monkeypatch):
    monkeypatch.setenv(SETTINGS_ENV, "none")
    for name in ("SERVICE_HOST", "PORT_8000_TCP", "MEMORY", "TASK"):
        monkeypatch.setenv(f"REASONINGBANK_{name}", "retrieval.top_k=9")
    assert load_config([]).retrieval.top_k == load_config(["preset=production"]).retrieval.top_k
    monkeypatch.setenv("REASONINGBANK_RETRIEVAL__TOPK", "3")
    with pytest.raises(UserError, match="the variable REASONINGBANK_RETRIEVAL__TOPK: retrieval.topk does not fit"):
        load_config([])


def test_the_preset_has_the_outlines_numbers(monkeypatch):
    monkeypatch.setenv(SETTINGS_ENV, "none")
    cfg = load_config(["preset=outline"])
    life = cfg.memory.consolidate
    assert (cfg.retrieval.top_k, cfg.retrieval.similarity_weight, cfg.retrieval.age_scale_days) == (3, 0.65, 45.0)
    assert (life.every, life.merge, life.deduplicate.min_score, life.deduplicate.keep) == (20, None, 0.87, "score")
    assert (life.contradict.checker.min_score, life.confidence.half_life_days) == (0.6, 90.0)
    assert (life.prune.min_confidence, life.prune.max_age_days, life.prune.delete_after_days) == (0.3, 180.0, 0)
    assert (cfg.memory.uses, cfg.judge.confidence) == ("cited", True)
    assert (cfg.distiller.style, cfg.distiller.max_items) == ("steps", 3)
    assert (cfg.contrast.labels, cfg.contrast.max_items, cfg.contrast.notes) == ("judge", 3, True)
    assert cfg.memory.redact == "personal"  # "always redact before store"
