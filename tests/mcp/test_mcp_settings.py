"""The user's settings file: between the presets and what is typed; a key that does not fit is named with the file."""

from __future__ import annotations

import re

import pytest
from mcp_kit import here
from platformdirs.windows import get_win_folder_from_env_vars

from core.errors import UserError
from mcp_server.config import SETTINGS_ENV, SETTINGS_NAME, load_config, settings_file
from mcp_server.tools import MemoryTools


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """Write the file where the variable says it is."""
    path = tmp_path / SETTINGS_NAME
    monkeypatch.setenv(SETTINGS_ENV, str(path))

    def write(text):
        path.write_text(text, encoding="utf-8")
        return path

    return write


MIXED = """\
retrieval: hybrid
retrieval.top_k: 4
server:
  audit_share: 0.05
  prompt_style: reasoningbank_mcp
memory:
  hygiene: {foreign: [https, "a b, [c]"]}
memory.consolidate.merge: null
memory.namespace: "O'Brien: x"
"""


def test_keys_may_be_dotted_or_nested_and_options_are_chosen_by_name(settings):
    path = settings(MIXED)
    cfg = load_config([])
    assert cfg.retrieval._target_.endswith("Hybrid") and cfg.retrieval.top_k == 4
    assert (cfg.server.audit_share, cfg.server.prompt_style) == (0.05, "reasoningbank_mcp")
    assert list(cfg.memory.hygiene.foreign) == ["https", "a b, [c]"] and cfg.memory.namespace == "O'Brien: x"
    assert cfg.memory.consolidate.merge is None and cfg.memory.consolidate.background  # the preset's, but for that
    assert cfg.retrieval.min_score == 0.26  # whatever the policy
    assert cfg.settings == str(path.resolve())


def test_what_is_typed_wins(settings):
    settings(MIXED)
    cfg = load_config(["retrieval=cosine", "server.audit_share=0", "preset=paper_faithful", "memory=guarded"])
    assert cfg.retrieval._target_.endswith("Cosine") and cfg.retrieval.top_k == 1
    assert cfg.server.audit_share == 0 and cfg.server.prompt_style == "reasoningbank_mcp"
    assert cfg.preset == "paper_faithful" and cfg.memory.namespace == "default"


def test_a_preset_in_the_file_is_the_default_one(settings):
    settings("preset: reasoningbank_mcp\n")
    assert load_config([]).preset == "reasoningbank_mcp" and load_config([]).retrieval.threshold_on == "score"
    assert load_config(["preset=production"]).retrieval._target_.endswith("Convex")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("server: {audit_share: 0.1, audits: 3}", "server.audits does not fit"),
        ("retrieval: best", "retrieval does not fit"),
        ("retrieval.threshold_on: score", "retrieval.threshold_on does not fit"),  # of hybrid, which is not chosen
        ("preset: fast", "preset does not fit"),
        ("- retrieval", "hold no keys"),
        ("llm: {api_key: sk-live-0123456789abcdef", "no YAML in line"),
        ("llm: {api_key: sk-live-0123456789abcdef}", "llm.api_key does not fit"),
    ],
)
def test_what_does_not_fit_is_one_sentence_with_file_and_key(settings, text, sentence):
    path = settings(text)
    with pytest.raises(UserError, match=re.escape(sentence)) as refused:
        load_config(["server.max_top_k=9"])
    said = str(refused.value)
    assert str(path) in said and "\n" not in said and "sk-live" not in said


def test_a_mistake_that_is_typed_is_not_the_files(settings):
    path = settings("retrieval.top_k: 4")
    with pytest.raises(UserError, match="top_kk") as refused:
        load_config(["retrieval.top_kk=4"])
    assert str(path) not in str(refused.value)


def test_an_empty_file_says_nothing_and_one_that_is_named_must_be_there(settings, tmp_path, monkeypatch):
    settings("# nothing yet\n")
    assert load_config([]).retrieval._target_.endswith("Convex")
    monkeypatch.setenv(SETTINGS_ENV, str(tmp_path / "no.yaml"))
    with pytest.raises(UserError, match=r"no\.yaml cannot be read"):
        load_config([])


@pytest.mark.parametrize(
    ("platform", "env", "at"),
    [
        ("linux", {}, ".config"),
        ("linux", {"XDG_CONFIG_HOME": "xdg"}, "xdg"),
        ("darwin", {}, ".config"),
        ("darwin", {}, "Library/Application Support"),
        ("win32", {"APPDATA": "roaming"}, "roaming"),
    ],
)
def test_where_it_is_looked_for(tmp_path, monkeypatch, platform, env, at):
    for name in (SETTINGS_ENV, "XDG_CONFIG_HOME", "APPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in env.items():
        monkeypatch.setenv(name, str(tmp_path / value))
    monkeypatch.setattr("platformdirs.windows._resolve_win_folder", get_win_folder_from_env_vars)  # for want of Windows
    monkeypatch.setattr("sys.platform", platform)
    assert settings_file() is None
    (tmp_path / at).mkdir(parents=True)
    (tmp_path / at / SETTINGS_NAME).write_text("retrieval.top_k: 2")
    assert settings_file() == tmp_path / at / SETTINGS_NAME and load_config([]).retrieval.top_k == 2
    for ignored in ("none", ""):
        monkeypatch.setenv(SETTINGS_ENV, ignored)
        assert settings_file() is None and load_config([]).retrieval.top_k == 1


def test_bank_status_names_the_file(settings, tmp_path):
    path = settings("retrieval.top_k: 2")
    with here(tmp_path / "b.sqlite") as (_, service):
        assert MemoryTools(service).bank_status().structured_content["settings"] == str(path)
