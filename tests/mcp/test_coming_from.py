"""The maps from other systems' words to ours name only what is there: commands, options, keys, tools, fields, files."""

from __future__ import annotations

import json
import re
import shlex
import sys
from contextlib import closing
from dataclasses import fields
from functools import cache

import forkserver
import pytest
import yaml
from conftest import REPO
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from core.memory.bank import MemoryBank
from core.memory.policies.cosine import Cosine
from core.models.embedding import HashingEmbedder
from core.types import Lesson, MemoryRecord
from mcp_server.config import load_config
from mcp_server.foreign_config import FOLDER, layout_of
from mcp_server.run import run_around
from mcp_server.server import PROFILES
from prompts import registry
from scripts.reasoningbank import COMMANDS

PAGE = "coming_from.md"
# Words of ours that are of none of the kinds below.
OTHER = {"trustScore", "BANK.corrupt-TIMESTAMP", "{memory}", "{prompt}"}
FILES = {"episodes.jsonl", "calls.jsonl", "timings.jsonl"}  # that a run writes


def rows():
    """[(there, here, line number)] of the page's tables, without their heads."""
    found = []
    for number, line in enumerate((REPO / "docs" / PAGE).read_text().splitlines(), 1):
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")] if line.startswith("| ") else []
        if len(cells) > 1 and cells[0] not in ("there", "document"):
            found.append((cells[0], cells[1].removesuffix(" |"), number))
    return found


WORDS = [(f"{PAGE}:{number}", word) for _, here, number in rows() for word in re.findall(r"`([^`]+)`", here)]


@cache
def configurations():
    """Composed configurations which have every key between them, of the server and of runs."""
    server = [
        load_config(words) for words in (["preset=outline", "llm=openai"], ["preset=reasoningbank_mcp", "llm=openai"])
    ]
    server.append(load_config(["embedder=openai", "memory=consolidated_offline", "memory/consolidate/merge=llm"]))
    with initialize_config_dir(str(REPO / "config"), version_base="1.3"):
        groups = (["env=mind2web"], ["env=warmup", "arm=outline"], ["env=warmup", "retrieval=hybrid"])
        return server + [compose("config", overrides=["llm=scripted", *words]) for words in groups]


def fits(word):
    """Whether an override names a key, or an option of a group, of a server or a run."""
    key, _, value = word.lstrip("+").partition("=")
    group = REPO / "config" / key
    presets = yaml.safe_load((REPO / "config" / "mcp.yaml").read_text())["presets"]
    if key == "preset" or group.is_dir():
        assert value in presets or value in ("NAME", "FOLDER") or (group / f"{value}.yaml").is_file(), word
        return
    added = {"distiller.style": "steps quote".split(), "contrast.notes": ["true"]}  # with a +: not in the files
    assert value in added.get(key, ()) or (key_stands(key) and key not in added) or key == "prompts", word


@cache
def help_of(*command):
    """What a command's --help prints."""
    done = forkserver.run([sys.executable, *command, "--help"], cwd=REPO, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def command_stands(word):
    """Check a command line: its module, its subcommand and each of its options."""
    words = shlex.split(word.partition(" -- ")[0])
    if words[:2] == ["python", "-m"]:
        command, rest = ["-m", words[2]], words[3:]
    elif words[0] == "reasoningbank" and words[1] in COMMANDS:
        command, rest = ["-m", COMMANDS[words[1]][0]], words[2:]
    else:  # reasoningbank, reasoning-bank-mcp
        assert f"\n{words[0]} = " in (REPO / "pyproject.toml").read_text()
        command, rest = ["-m", "mcp_server"], words[1:]
    if rest and rest[0].isalpha() and rest[0].islower() and (command[1] in ("mcp_server", "core.memory")):
        command.append(rest.pop(0))
    text = help_of(*command)
    for option in (each for each in rest if each.startswith("-")):
        assert re.search(rf"{option}\b", text), f"{word}: {' '.join(command)} has no {option}"
    for before, name in zip(["", *rest], rest, strict=False):
        if before.startswith("-"):
            continue  # the option's value
        if name in ("retrieve", "extract"):
            assert name in text
        elif re.match(r"[+\w./]+=", name):
            fits(name)


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """Names of fields, tools, prompts, tables and of the result object of a run."""
    folder = tmp_path_factory.mktemp("names")
    bank = MemoryBank(path=str(folder / "b.sqlite"), embedder=HashingEmbedder(), policy=Cosine())
    with closing(bank):
        tables = {name for (name,) in bank._store.rows("SELECT name FROM sqlite_master", ())}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REASONINGBANK_SETTINGS", "none")
        words = ["--bank", str(folder / "r.sqlite"), "--embedder", "hashing-256", "--task", "t"]
        run_around([*words, "--result", str(folder / "r.json"), "--", "true"])
    result = json.loads((folder / "r.json").read_text())
    tools = {name for profile in PROFILES.values() for name in profile}
    kinds = {field.name for kind in (MemoryRecord, Lesson) for field in fields(kind)}
    return kinds | tools | tables | result.keys() | FILES | OTHER | {"attempts", "runs"}


def key_stands(word):
    """Whether one of the configurations has this key."""
    return word in all_keys()


@cache
def all_keys():
    """The dotted keys of `configurations`."""
    found = set()

    def walk(node, above):
        for name, value in node.items():
            found.add(f"{above}{name}")
            if isinstance(value, dict):
                walk(value, f"{above}{name}.")

    for cfg in configurations():
        walk(OmegaConf.to_container(cfg, resolve=False), "")
    return found


def test_what_is_named_is_there(names, monkeypatch, subtests):
    monkeypatch.setenv("REASONINGBANK_SETTINGS", "none")
    for line, word in WORDS:
        with subtests.test(f"{line}:{word[:50]}"):
            word_stands(word, names)


def word_stands(word, names):
    """Check a word of the page by its kind: a command, an option, a file, a key, ..."""
    if word in names:
        return
    if word.startswith(("python -m ", "reasoningbank ")) or word == "reasoning-bank-mcp":
        command_stands(word)
    elif word.startswith("pip install"):
        extra = re.search(r"\[(.*)\]", word)[1]
        assert f"\n{extra} = [" in (REPO / "pyproject.toml").read_text()
    elif word.startswith("REASONINGBANK_"):
        assert word == "REASONINGBANK_SETTINGS" or key_stands(word[14:].lower().replace("__", "."))
    elif word.startswith("--"):
        assert re.search(rf"{word}\b", help_of("-m", "mcp_server", "run")), word
    elif "=" in word:
        for each in word.split():
            fits(each)
    elif ("/" in word and "." in word.rpartition("/")[2]) or word.endswith("/"):
        assert (REPO / word).exists(), word
    else:
        assert key_stands(word), f"{word}: no key, field, tool, table or file of ours"


def ours(rule):
    """The overrides of ours that a rule of another layout's key leads to."""
    if isinstance(rule, dict):
        return [word for each in rule.values() for word in each.get("set", [])]
    return [] if rule is None else [rule]


def test_every_key_that_is_read_from_other_layouts_leads_to_one_of_ours(subtests):
    systems = {file.stem: layout_of(file.stem)["keys"] for file in FOLDER.glob("*.yaml")}
    assert sorted(systems) == ["claude_flow", "claude_flow_outline", "reasoningbank_mcp"]
    words = [(f"{s}: {key}", word) for s, keys in systems.items() for key, rule in keys.items() for word in ours(rule)]
    for where, word in words:
        with subtests.test(where):
            name = word.partition("=")[0]
            assert key_stands(name) or name == "preset" or (REPO / "config" / name).is_dir(), word


def test_every_prompt_of_the_specification_is_a_template():
    prompts = {there.strip("`"): here for there, here, _ in rows() if there.strip("`").endswith("_PROMPT")}
    assert len(prompts) == 5
    for name, here in prompts.items():
        assert f"prompts/{getattr(registry, name)}.jinja" in here


def test_the_yaml_template_of_the_outline_is_in_the_map_key_by_key():
    keys = [key for key in layout_of("claude_flow_outline")["keys"] if "." in key]
    assert len(keys) == 18
