"""config/: a value has one home, parts combine freely, and a default in Python is the default in YAML."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from contextlib import closing

import pytest
import yaml
from conftest import REPO, TOY
from hydra.utils import get_object
from omegaconf import OmegaConf
from test_architecture import choose, options, targets

from core.memory.bank import MemoryBank
from core.memory.policies.cosine import Cosine
from core.models.embedding import HashingEmbedder

CONFIG = REPO / "config"
POLICIES = ("confidence", "deduplicate", "merge", "contradict", "prune")
OTHER_DEFAULTS = {  # a part's key whose YAML says other than its class, and why
    "CachedEmbedder.path": "a class made by hand writes no file; runs share one cache",
    "Guard.likeness": "a guard made by hand needs no embedder; memory=guarded is measured with 0.4",
    "Guard.provenance": "a guard made by hand looks at the text alone; memory=guarded is measured with all of it",
    "Guard.burst": "likewise",
    "LiteLLMModel.json_schema": "the class sends what every server takes; most providers can do more",
    "MattsParallel.k": "how many attempts is each workflow's own default; the field is the base class's",
    "MattsSequential.r": "likewise",
    "Setting.show_answer": "setting=train is the one that shows it",
}
REPEATED = (  # what an experiment may learn from is read in one place, each of its files; where all embeddings are kept
    "core.setting.Setting",
    "core.models.embedding_cache.CachedEmbedder",
)


def raw(path):
    return yaml.safe_load(path.read_text())


def raw_targets(node) -> list[dict]:
    """Every part that a file names by its class, without what it takes from other files."""
    if not isinstance(node, dict):
        return []
    return [node] * ("_target_" in node) + [part for value in node.values() for part in raw_targets(value)]


def life(cfg) -> dict:
    """{policy: the names of its class and of what it asks} of a composed configuration, without those left out."""
    chosen = {name: cfg.memory.consolidate[name] for name in POLICIES}
    return {
        name: " ".join(node["_target_"].split(".")[-1] for _, node in targets(part))
        for name, part in chosen.items()
        if part is not None
    }


ALONE = {
    "confidence": {"confidence": "Confidence"},
    "deduplicate": {"deduplicate": "Deduplicate"},
    "merge_voting": {"merge": "Merge Voting"},
    "merge_llm": {"merge": "Merge LLMAuthor"},
    "contradict_llm": {"contradict": "Contradict LLMChecker"},
    "contradict_nli": {"contradict": "Contradict NLIChecker"},
    "prune": {"confidence": "Confidence", "prune": "Prune"},
}
ALL = ALONE["deduplicate"] | ALONE["merge_llm"] | ALONE["contradict_llm"] | ALONE["prune"]
OFFLINE = ALONE["deduplicate"] | ALONE["merge_voting"] | ALONE["prune"]
COMBINED = {  # the first three stand in the comment of config/memory/consolidate/life.yaml
    "memory=confidence memory/consolidate/merge=voting": ALONE["confidence"] | ALONE["merge_voting"],
    "memory=consolidated memory/consolidate/merge=voting memory.consolidate.prune=null": (
        ALONE["confidence"] | ALONE["deduplicate"] | ALONE["merge_voting"] | ALONE["contradict_llm"]
    ),
    "memory=guarded +memory/consolidate=life memory/consolidate/deduplicate=default": ALONE["deduplicate"],
    "memory=guarded memory/consolidate/deduplicate=default +memory/consolidate=life": ALONE["deduplicate"],
    "memory=consolidated_offline memory/consolidate/contradict=nli": OFFLINE | ALONE["contradict_nli"],
    "arm=matts_parallel memory=prune +memory/hygiene=guard memory/consolidate/contradict=llm": (
        ALONE["prune"] | ALONE["contradict_llm"]
    ),
}


@pytest.mark.parametrize(
    ("option", "wanted"), [*ALONE.items(), ("consolidated", ALL), ("consolidated_offline", OFFLINE)]
)
def test_what_each_memory_does_with_a_lesson(compose, option, wanted):
    assert life(compose(f"memory={option}")) == wanted


@pytest.mark.parametrize(("words", "wanted"), COMBINED.items())
def test_the_policies_of_a_lessons_life_combine_freely(compose, words, wanted):
    cfg, plain = compose(*words.split()), compose("memory=confidence")
    assert life(cfg) == wanted
    assert (cfg.memory.hygiene is not None) == ("guard" in words)
    for key in set(plain.memory) - {"hygiene", "consolidate"}:
        assert cfg.memory[key] == plain.memory[key]
    for key in set(plain.memory.consolidate) - set(POLICIES):
        assert cfg.memory.consolidate[key] == plain.memory.consolidate[key]


def test_the_combinations_in_the_comment_are_those_tested():
    lines = [line for line in (CONFIG / "memory/consolidate/life.yaml").read_text().splitlines() if "#   " in line]
    shown = [" ".join(word for word in line.split() if "=" in word) for line in lines]
    assert shown == list(COMBINED)[: len(shown)] and shown


def test_a_combined_bank_lives_as_its_parts_say(here):
    words = "memory=confidence memory/consolidate/deduplicate=default memory.consolidate.every=3"
    run_dir, _ = here(*TOY, "limit=9", *words.split())
    with closing(MemoryBank(path=str(run_dir / "bank.sqlite"), embedder=HashingEmbedder(), policy=Cosine())) as bank:
        records = bank.records()
    assert {record.status for record in records} == {"active", "superseded"}
    assert all(record.confidence is not None for record in records)


def test_no_value_of_a_part_stands_in_two_files():
    homes = defaultdict(list)
    for path in sorted(CONFIG.rglob("*.yaml")):
        for part in raw_targets(raw(path)):
            for key, value in part.items():
                if not isinstance(value, dict) and key not in ("_target_", "defaults"):
                    homes[part["_target_"], key, str(value)].append(str(path.relative_to(CONFIG)))
    twice = {place: files for place, files in homes.items() if len(files) > 1 and place[0] not in REPEATED}
    assert twice == {}


def test_a_default_in_python_is_the_default_in_its_yaml(compose):
    differ, same = set(), set()
    for group, option in options():
        named = {part["_target_"] for part in raw_targets(raw(CONFIG / group / f"{option}.yaml"))}
        for _, node in targets(compose(*choose(group, option))):
            target = get_object(node["_target_"])
            if node["_target_"] not in named or not dataclasses.is_dataclass(target):
                continue
            for key in dataclasses.fields(target):
                default = key.default_factory() if callable(key.default_factory) else key.default
                if key.name not in node or OmegaConf.is_missing(node, key.name) or OmegaConf.is_dict(node[key.name]):
                    continue
                if default is not dataclasses.MISSING:
                    (same if node[key.name] == default else differ).add(f"{target.__name__}.{key.name}")
    assert differ == set(OTHER_DEFAULTS)
    assert len(same) > 100
