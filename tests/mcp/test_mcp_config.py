"""The server's settings: its presets, what is typed over them, and `--config` in that other server's layout."""

from __future__ import annotations

import re

import pytest
import yaml
from conftest import REPO
from omegaconf import OmegaConf

from core.errors import UserError
from mcp_server.__main__ import parser
from mcp_server.config import SETTINGS_ENV, load_config, unless_typed
from mcp_server.foreign_config import FOLDER, layout_of, read_foreign
from mcp_server.service import Service, configuration

KEYS = {"DASHSCOPE_API_KEY": "sk-of-dashscope", "OPENAI_API_KEY": "sk-of-openai", "ANTHROPIC_API_KEY": "sk-ant-x"}
EXAMPLE = """\
# LLM Provider Configuration
llm:
  provider: "dashscope"           # dashscope | openai | anthropic
  dashscope:
    api_key: "${DASHSCOPE_API_KEY}"
    chat_model: "qwen-plus"
# Embedding Provider Configuration
embedding:
  provider: "dashscope"           # dashscope | openai
  dashscope:
    model: "text-embedding-v3"
# Retrieval Strategy Configuration
retrieval:
  strategy: "hybrid"
  min_score_threshold: 0.85
  hybrid:
    weights:
      semantic: 0.6
      confidence: 0.2
      success: 0.15
      recency: 0.05
# Memory Manager Configuration (v0.2.0+)
memory_manager:
  enabled: true
  deduplication:
    strategy: "semantic"
    on_extraction: true
    semantic:
      threshold: 0.90
      top_k_check: 5
  merge:
    strategy: "llm"               # llm | voting
    auto_execute: true
    trigger:
      min_similar_count: 3
      similarity_threshold: 0.85
    llm:
      temperature: 0.7
    original_handling: "archive"
"""
OTHER_PROVIDERS = """\
llm:
  provider: openai
  dashscope: {api_key: "${DASHSCOPE_API_KEY?}", base_url: "https://d.example/v1", chat_model: qwen-turbo}
  openai: {api_key: "${OPENAI_API_KEY?}", base_url: "${BASE:http://127.0.0.1:9/v1}", chat_model: m'x, max_tokens: 4096}
  anthropic: {api_key: "", chat_model: claude-sonnet-4-5, temperature: 0.7}
embedding:
  provider: openai
  openai: {api_key: "${OPENAI_API_KEY?}", base_url: "http://127.0.0.1:9/v1", model: nomic-embed-text}
extraction: {max_memories_per_trajectory: 2, judge_temperature: 0.1, extract_temperature: 0.9, async_by_default: false}
retrieval: {default_top_k: 2, max_top_k: 10, hybrid: {time_decay_halflife: 15}}
server: {name: reasoning-bank, version: "0.1.0", log_level: INFO}
"""


@pytest.fixture
def foreign(tmp_path, monkeypatch):
    """The configuration that a file in that server's layout makes."""
    for name, key in KEYS.items():
        monkeypatch.setenv(name, key)

    def load(text, *typed):
        (tmp_path / "config.yaml").write_text(text, encoding="utf-8")
        return load_config([*unless_typed(read_foreign(tmp_path / "config.yaml"), typed), *typed])

    return load


def changed(cfg):
    """What the files of these tests may set, in short."""
    life = cfg.memory.get("consolidate") or {}
    merge, duplicates, contradict = life.get("merge"), life.get("deduplicate"), life.get("contradict")
    return {
        "preset": cfg.preset,
        "policy": cfg.retrieval._target_.rpartition(".")[2],
        "threshold": (cfg.retrieval.min_score, cfg.retrieval.get("threshold_on")),
        "top_k": cfg.retrieval.top_k,
        "duplicates": duplicates and (duplicates.min_score, duplicates.title_distance, life.candidates),
        "merge": merge and (merge.author._target_.rpartition(".")[2], merge.least, merge.min_score),
        "asked about": contradict and (contradict.checker._target_.rpartition(".")[2], contradict.low),
        "background": life.get("background"),
        "guarded": cfg.memory.hygiene is not None,
        "prompt": cfg.server.prompt_style,
        "async": cfg.server.async_default,
    }


THE_DOCUMENT = {
    "preset": "reasoningbank_mcp",
    "policy": "Hybrid",
    "threshold": (0.85, "score"),
    "top_k": 1,
    "duplicates": (0.9, 0, 5),
    "merge": ("Voting", 3, 0.85),
    "asked about": None,
    "background": True,
    "guarded": True,
    "prompt": "reasoningbank_mcp",
    "async": True,
}
WITH_A_MODEL = THE_DOCUMENT | {"merge": ("LLMAuthor", 3, 0.85), "asked about": ("LLMChecker", 0.85)}
OFF = {"duplicates": None, "merge": None, "asked about": None, "background": None}
PAPER = OFF | {"preset": "paper_faithful", "policy": "Cosine", "threshold": (None, None), "guarded": False}
PAPER |= {"prompt": "plain", "async": False, "top_k": 1}


def test_the_preset_has_the_documents_numbers():
    cfg = load_config(["preset=reasoningbank_mcp"])
    assert changed(cfg) == THE_DOCUMENT
    weights = [cfg.retrieval[f"{name}_weight"] for name in ("semantic", "confidence", "success", "recency")]
    assert weights == [0.6, 0.2, 0.15, 0.05]
    assert changed(load_config(["preset=reasoningbank_mcp", "llm=gemini"])) == WITH_A_MODEL
    voting = load_config(["preset=reasoningbank_mcp", "llm=gemini", "memory/consolidate/merge=voting"])
    assert changed(voting) == WITH_A_MODEL | {"merge": THE_DOCUMENT["merge"]}
    assert changed(load_config(["preset=paper_faithful"])) == PAPER


ON = ("guard", 10, True)
PRODUCTION = {  # typed: (guarded, candidates, background), None without a life
    "": ON,
    "memory=consolidated": ON,
    "memory=consolidated memory/consolidate/merge=voting memory.consolidate.prune=null": ON,
    "memory=consolidated memory.consolidate.background=false memory.consolidate.candidates=7": ("guard", 7, False),
    "memory=consolidated memory.hygiene=null": (None, 10, True),
    "memory.consolidate=null": ("guard", None, None),
    "memory=guarded": ("guard", None, None),
    "memory=deduplicate +memory/hygiene=guard": ON,
    "memory=none": (None, None, None),
    "memory=synapse": ("guard", None, None),
    "memory/consolidate/merge=llm": ON,
    "preset=paper_faithful memory=consolidated": (None, 50, False),
}


@pytest.mark.parametrize(("typed", "wanted"), PRODUCTION.items())
def test_another_memory_keeps_the_guard_and_what_it_has_of_the_presets_keys(typed, wanted):
    cfg = load_config(typed.split())
    life, guard = cfg.memory.get("consolidate") or {}, cfg.memory.get("hygiene")
    assert (guard and "guard", life.get("candidates"), life.get("background")) == wanted
    if guard and "paper" not in typed:
        assert (guard.provenance, guard.max_content) == (False, 10000)


@pytest.mark.parametrize("option", ["cosine", "hybrid", "lexical", "trust"])
def test_another_retrieval_keeps_the_presets_threshold_and_nothing_else_of_its_policy(option):
    """A policy that is typed, be it the preset's own, does not show strangers that the preset refuses."""
    cfg, preset = load_config([f"retrieval={option}"]), load_config([])
    least = None if option == "lexical" else preset.retrieval.min_score  # of similarities
    assert cfg.retrieval.min_score == least and cfg.retrieval.get("pool") in (None, 100)
    assert ("pool" in cfg.retrieval) == (option not in ("cosine", "lexical"))
    threshold = (least, "similarity" if option == "hybrid" else None)
    assert changed(cfg) | {"policy": ""} == changed(preset) | {"policy": "", "threshold": threshold}
    assert load_config([f"retrieval={option}", "retrieval.min_score=null"]).retrieval.min_score is None


OF_SERVERS = ("other_languages_by_words", "ignore_preamble", "corrections_first")


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("", "on on on"),
        ("preset=outline retrieval=cosine", "on on on"),
        ("preset=paper_faithful retrieval=rrf", "off off off"),
        ("preset=paper_faithful retrieval.ignore_preamble=true", "off on off"),
        ("retrieval=rrf retrieval.corrections_first=false", "on on off"),
    ],
)
def test_what_a_server_adds_to_any_policy_is_off_in_the_papers_preset_and_where_it_is_typed(typed, wanted):
    cfg = load_config(typed.split())
    assert [cfg.retrieval[key] for key in OF_SERVERS] == [word == "on" for word in wanted.split()]


def test_the_settings_file_turns_off_what_a_server_adds_whatever_policy_is_typed(tmp_path, monkeypatch):
    (tmp_path / "settings.yaml").write_text("retrieval.ignore_preamble: false\nretrieval.min_score: 0.5\n")
    monkeypatch.setenv(SETTINGS_ENV, str(tmp_path / "settings.yaml"))
    cfg = load_config(["retrieval=cosine"])
    assert (cfg.retrieval.ignore_preamble, cfg.retrieval.min_score) == (False, 0.5)


def test_a_server_without_a_memory_is_refused(tmp_path):
    with pytest.raises(UserError, match="memory=none: a server needs a bank"):
        Service(tmp_path / "b.sqlite", load_config(["memory=none"]))


def test_the_documents_example_is_read_whole(foreign):
    cfg = foreign(EXAMPLE)
    assert changed(cfg) == WITH_A_MODEL
    assert (cfg.llm.model, cfg.llm.api_key_env) == ("dashscope/qwen-plus", "DASHSCOPE_API_KEY")
    assert cfg.llm.api_base == "https://dashscope.aliyuncs.com/compatible-mode/v1"
    inner = cfg.embedder.inner
    assert (inner.model, inner.api_key_env, inner.batch) == ("text-embedding-v3", "DASHSCOPE_API_KEY", 10)
    assert "sk-" not in str(cfg)


def edited(*changes):
    text = EXAMPLE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


VARIANTS = {  # the document's recommendations, and its other choices: (file, what is then different)
    "numbers": (
        edited(
            ("min_score_threshold: 0.85", "min_score_threshold: 0.75"),
            ("threshold: 0.90", "threshold: 0.92"),
            ("similar_count: 3", "similar_count: 4"),
            ("similarity_threshold: 0.85", "similarity_threshold: 0.8"),
            ("top_k_check: 5", "top_k_check: 2"),
        ),
        {"threshold": (0.75, "score"), "merge": ("LLMAuthor", 4, 0.8), "duplicates": (0.92, 0, 2)},
    ),
    "voting": (edited(('strategy: "llm"  ', 'strategy: "voting"')), {"merge": ("Voting", 3, 0.85)}),
    "cosine": (edited(('strategy: "hybrid"', 'strategy: "cosine"')), {"policy": "Cosine", "threshold": (0.85, None)}),
    "no manager": (edited(("enabled: true", "enabled: false")), OFF),
    "no merge": (edited(("auto_execute: true", "auto_execute: false")), {"merge": None}),
    "no duplicates": (
        edited(("on_extraction: true", "on_extraction: false")),
        {"duplicates": None, "asked about": None},
    ),
    "paper": (f"{EXAMPLE}mode:\n  preset: paper_faithful\n", PAPER),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_each_recommended_variant_means_what_it_says(foreign, name):
    text, differs = VARIANTS[name]
    assert changed(foreign(text)) == WITH_A_MODEL | differs


def test_what_the_document_shows_alone_is_a_file_too(foreign):
    """Its section on production has a memory_manager only; nothing else needs to be there."""
    alone = """\
memory_manager:
  deduplication: {strategy: semantic, semantic: {threshold: 0.92}}
  merge: {strategy: llm, auto_execute: true}
"""
    cfg = foreign(alone)
    assert changed(cfg) == THE_DOCUMENT | {"duplicates": (0.92, 0, 5)} and cfg.get("llm") is None
    assert changed(foreign(alone, "llm=scripted", "retrieval.min_score=0.5")) == WITH_A_MODEL | {
        "duplicates": (0.92, 0, 5),
        "threshold": (0.5, "score"),
    }


def test_the_merge_has_its_own_temperature(foreign):
    archive = ('"archive"', '"archive"\n    archive: {keep_embeddings: true}')
    life = foreign(edited(("temperature: 0.7", "temperature: 0.2"), archive)).memory.consolidate
    assert (life.every, life.deduplicate.on_add, life.merge.author.temperature) == (1, True, 0.2)


def test_what_is_typed_wins_over_the_file(foreign):
    cfg = foreign(EXAMPLE, "llm=scripted", "embedder=hashing", "retrieval=trust", "preset=production")
    assert "model" not in cfg.llm and cfg.embedder.inner._target_.endswith("HashingEmbedder")
    assert changed(cfg)["policy"] == "Trust" and changed(cfg)["prompt"] == "plain"


def test_other_providers_and_the_keys_of_its_default_file(foreign):
    cfg = foreign(OTHER_PROVIDERS)
    assert (cfg.llm.model, cfg.llm.api_base, cfg.llm.max_tokens) == ("openai/m'x", "http://127.0.0.1:9/v1", 4096)
    assert (cfg.embedder.inner.model, cfg.embedder.inner.api_key_env) == ("nomic-embed-text", "OPENAI_API_KEY")
    assert (cfg.distiller.max_items, cfg.roles.judge.temperature, cfg.roles.extractor.temperature) == (2, 0.1, 0.9)
    assert (cfg.retrieval.half_life_days, cfg.server.max_top_k, cfg.server.async_default) == (15, 10, False)
    claude = foreign(OTHER_PROVIDERS.replace("provider: openai", "provider: anthropic", 1)).llm
    assert (claude.model, claude.api_key_env) == ("anthropic/claude-sonnet-4-5", "ANTHROPIC_API_KEY")


SECRET = "sk-live-0123456789abcdef0123"
REFUSED = [
    (f"llm: {{provider: openai, openai: {{api_key: {SECRET}}}}}", "llm.openai.api_key holds a key itself"),
    (f"llm: {{openai: {{api_key: '${{X:{SECRET}}}'}}}}", "llm.openai.api_key holds a key itself"),
    (f"embedding: {{other: {{api_key: {SECRET}}}}}", "embedding.other.api_key holds a key itself"),
    (f"llm: {{openai: {{api_key: {SECRET}}}", "is no YAML in line 1"),
    ("llm: {provider: gemini}", 'llm.provider=gemini has no equivalent here: give "dashscope" or "openai" or'),
    ("retrieval: {strategy: llm_assisted}", "retrieval.strategy=llm_assisted has no equivalent"),
    ("retrieval: {strategy: hybrid, rerank: true}", "retrieval.rerank has no equivalent here: remove it"),
    ("retrieval: hybrid", "retrieval holds no keys"),
    ("[1, 2]", "the file holds no keys"),
    ("storage: {backend: json}", "storage.backend has no equivalent here: --bank names the bank's file"),
    ("memory_manager: {merge: {original_handling: delete}}", "original_handling=delete has no equivalent"),
    ("memory_manager: {merge: {strategy: template}}", "merge.strategy=template has no equivalent"),
    ("memory_manager: {deduplication: {strategy: hash}}", "deduplication.strategy=hash has no equivalent"),
    ("mode: {preset: fast}", "mode.preset=fast has no equivalent"),
    ("llm: {openai: {base_url: '${NO_SUCH_URL}'}}", "names the environment variable NO_SUCH_URL, which is not set"),
    ("retrieval: {min_score_threshold: high}", "min_score"),
    ("web: {port: 80}", "web.port has no equivalent"),
]


def test_what_has_no_equivalent_is_refused_by_name(tmp_path, subtests):
    for text, sentence in REFUSED:
        (tmp_path / "config.yaml").write_text(text, encoding="utf-8")
        with subtests.test(text):
            with pytest.raises(UserError, match=re.escape(sentence)) as refused:
                Service(tmp_path / "b.sqlite", load_config(read_foreign(tmp_path / "config.yaml")))
            assert SECRET not in str(refused.value) and "\n" not in str(refused.value)
    with pytest.raises(UserError, match=r"no\.yaml cannot be read"):
        read_foreign(tmp_path / "no.yaml")


@pytest.mark.parametrize(
    ("words", "tokens", "anonymous"),
    [
        (["preset=reasoningbank_mcp"], None, "all"),
        (["preset=reasoningbank_mcp", "--require-agent-id"], None, "own"),
        (["preset=reasoningbank_mcp"], "team.tokens", "own"),
        (["preset=reasoningbank_mcp", "server.anonymous=own"], None, "own"),
        (["preset=reasoningbank_mcp", "server.anonymous=all"], "team.tokens", "all"),  # refused where it is served
        (["preset=paper_faithful"], None, "own"),
        ([], None, "own"),
    ],
)
def test_only_that_presets_calls_without_agent_id_see_everything_and_never_where_tenants_are_apart(
    monkeypatch, words, tokens, anonymous
):
    monkeypatch.setenv(SETTINGS_ENV, "none")
    given = parser().parse_intermixed_args(words)
    given.tokens = tokens
    assert configuration(given).server.anonymous == anonymous


@pytest.mark.parametrize("word", ["retrieval.when=step", "memory=validated"])
def test_what_only_a_run_can_do_is_refused(word):
    with pytest.raises(UserError, match="are for runs"):
        load_config([word])


def ours(rule):
    """The overrides of ours that a rule of another layout's key leads to."""
    if isinstance(rule, dict):
        return [word for each in rule.values() for word in each.get("set", [])]
    return [] if rule is None else [rule]


def keys_of(node, above=""):
    """The dotted keys of nested data."""
    for name, value in node.items():
        yield f"{above}{name}"
        if isinstance(value, dict):
            yield from keys_of(value, f"{above}{name}.")


def test_every_key_that_is_read_from_other_layouts_leads_to_one_of_ours(subtests, monkeypatch):
    monkeypatch.setenv("REASONINGBANK_SETTINGS", "none")
    known, presets = set(), yaml.safe_load((REPO / "config" / "mcp.yaml").read_text())["presets"]
    for words in (
        ["preset=outline", "llm=openai"],
        ["preset=reasoningbank_mcp", "llm=openai"],
        ["embedder=openai", "memory=consolidated_offline", "memory/consolidate/merge=llm"],
    ):  # which have every key between them
        known |= set(keys_of(OmegaConf.to_container(load_config(words), resolve=False)))
    systems = {file.stem: layout_of(file.stem)["keys"] for file in FOLDER.glob("*.yaml")}
    assert sorted(systems) == ["claude_flow", "claude_flow_outline", "reasoningbank_mcp"]
    words = [(f"{s}: {key}", word) for s, keys in systems.items() for key, rule in keys.items() for word in ours(rule)]
    for where, word in words:
        with subtests.test(where):
            name, _, value = word.partition("=")
            assert name in known or (REPO / "config" / name).is_dir() or (name == "preset" and value in presets), word
