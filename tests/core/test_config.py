"""config/: each option binds to what reads it, a value has one home, parts combine freely, and defaults agree."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections import defaultdict
from contextlib import closing
from functools import cache

import pytest
import yaml
from conftest import REPO, TOY
from hydra.core.hydra_config import HydraConfig
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf
from test_architecture import PACKAGES, sources

from core.build import OF_THE_LOOP, SHOWN
from core.memory.bank import MemoryBank
from core.memory.policies.cosine import Cosine
from core.models.embedding import HashingEmbedder
from core.run.keys import TOP_KEYS

CONFIG = REPO / "config"
# Groups whose options are composed together, one of each; before them what one within another group needs.
ROUNDS = (
    ((), ("arm", "experiment")),
    ((), ("env", "llm", "embedder", "tracker", "memory", "retrieval", "select", "setting", "workflow")),
    (("memory=guarded",), ("agent", "judge", "details", "grader", "memory/hygiene", "hydra/launcher", "hydra/sweeper")),
    (("memory=consolidated",), ("memory/consolidate", "memory/store")),
    (
        ("memory=consolidated",),
        tuple(f"memory/consolidate/{part}" for part in "confidence contradict deduplicate merge prune".split()),
    ),
    (("memory=consolidated",), ("memory/consolidate/contradict/checker", "memory/consolidate/merge/author")),
)
N_PARTS = 26  # of the test that composes them, each a third of a second
POLICIES = ("confidence", "deduplicate", "merge", "contradict", "prune")
OTHER_DEFAULTS = {  # a part's key whose YAML says other than its class, and why
    "CachedEmbedder.path": "a class made by hand writes no file; runs share one cache",
    "ChoiceEnv.shuffle_options": "GPQA's authors shuffle; a set of one's own keeps its order",
    "Guard.provenance": "a guard made by hand looks at the text alone; memory=guarded is measured with all of it",
    "LiteLLMModel.json_schema": "the class sends what every server takes; most providers can do more",
    "MattsParallel.k": "how many attempts is each workflow's own default; the field is the base class's",
    "MattsSequential.r": "likewise",
    "NoLessons.least_attempts": "memory=grpo alone learns from groups",
    **dict.fromkeys(
        ("Notebook.near", "Notebook.attempts", "Notebook.start", "Notebook.counted", "Notebook.key"),
        "what is shown of the notes is each rival's own",
    ),
    "Setting.show_answer": "setting=train is the one that shows it",
}
REPEATED = (  # what an experiment may learn from is read in one place, each of its files; where all embeddings are kept
    "core.setting.Setting",
    "core.models.cache.CachedEmbedder",
)


def options():
    """(group, option) of every config file but those that are no choice, which lie beside config.yaml.

    A folder beside an option of its name holds variants of it: agent=command/mini.
    """
    found = []
    for path in sorted(CONFIG.glob("*/**/*.yaml")):
        folder = path.parent.parent if path.parent.with_suffix(".yaml").is_file() else path.parent
        found.append((str(folder.relative_to(CONFIG)), str(path.relative_to(folder).with_suffix(""))))
    return found


def targets(node, where="") -> list[tuple[str, DictConfig]]:
    """Every node with a _target_, with its path."""
    if not isinstance(node, DictConfig):
        return []
    found = [(where, node)] if "_target_" in node else []
    for key in node:
        if not OmegaConf.is_missing(node, key):
            found += targets(node[key], f"{where}.{key}")
    return found


def hydra_part(group: str) -> DictConfig:
    """What was chosen for one of Hydra's own groups, where it stands. What follows from other keys is left empty."""
    node = OmegaConf.to_container(HydraConfig.get()[group], resolve=False)
    return OmegaConf.create({"hydra": {group: {key: None if "${" in str(v) else v for key, v in node.items()}}})


@cache
def is_used(key: str, target: str) -> bool:
    """Whether anything reads what a field of a part of ours is called; else it is a knob that nobody turns."""
    made = get_object(target)
    ours = inspect.isclass(made) and made.__module__.split(".")[0] in PACKAGES
    return not ours or key in names_read()


@cache
def names_read() -> set[str]:
    """What any source reads of something: the name behind a dot, or given to getattr."""
    text = "".join(path.read_text(encoding="utf-8") for path in sources())
    return {name for pair in re.findall(r'\.(\w+)|getattr\([\w.]+, "(\w+)"', text) for name in pair}


def together() -> list[tuple[tuple[str, ...], dict[str, str]]]:
    """Every option in fewer compositions than options: (further words, {group: option}) of each."""
    every = defaultdict(list)
    for group, option in options():
        every[group].append(option)
    made = []
    for words, groups in ROUNDS:
        for n in range(max(len(every[group]) for group in groups)):
            made.append((words, {group: every[group][n] for group in groups if n < len(every[group])}))
    return made


def test_options_that_are_composed_together_are_all_and_choose_nothing_for_one_another():
    assert sorted(pair for _, chosen in together() for pair in chosen.items()) == sorted(options())
    for _, chosen in together():
        for group, option in chosen.items():
            defaults = raw(CONFIG / group / f"{option}.yaml").get("defaults", ())
            names = {name.removeprefix("override ") for each in defaults if isinstance(each, dict) for name in each}
            others = {name[1:] if name[:1] == "/" else f"{group}/{name}" for name in names}
            assert not {name.partition("@")[0] for name in others} & chosen.keys(), f"{group}={option}"


@pytest.mark.parametrize("part", range(N_PARTS))
def test_every_option_composes_and_binds_to_its_signature(subtests, compose, part):
    for words, chosen in together()[part::N_PARTS]:
        with subtests.test(" ".join((*words, *map("=".join, chosen.items())))):
            cfg = compose(*words, *map("=".join, chosen.items()))
            found = targets(cfg)
            for group, option in chosen.items():
                own = cfg
                if group.startswith("hydra/"):  # which a run's own configuration is without
                    own = hydra_part(group.removeprefix("hydra/"))
                    found += targets(own)
                if group not in ("arm", "details", "experiment"):
                    assert "_target_" in OmegaConf.select(own, group.replace("/", ".")), f"{group}={option} is no part"
            assert found
            for where, node in found:
                check_keys(where, node)


def check_keys(where, node):
    """Each key of a part is one that its class has, and that something reads."""
    shown = (*SHOWN, *OF_THE_LOOP) if where == ".memory" else ()
    keys = [key for key in node if not key.startswith("_")]
    parameters = inspect.signature(get_object(node["_target_"])).parameters
    kinds = {parameter.kind for parameter in parameters.values()}
    assert inspect.Parameter.VAR_KEYWORD not in kinds, f"{where}: **kwargs would swallow a misspelt key"
    for key in keys:
        assert key in parameters or key in shown, f"{where}.{key} is no key of {node['_target_']}"
        assert is_used(key, node["_target_"]), f"{where}.{key} is a knob that nothing reads"


def test_the_keys_of_the_config_are_the_keys_that_are_read(compose):
    models = [f"llm@{role}_llm=scripted" for role in ("judge", "extractor", "selector", "grader")]
    typed = set(compose(*models, "grader=model"))
    assert typed == {*TOP_KEYS}
    assert all(facts.least is not None for facts in TOP_KEYS.values() if facts.nullable)


def test_every_key_a_user_types_often_is_top_level(compose):
    wanted = "env workflow agent llm embedder memory retrieval judge setting tracker seed limit max_steps k r run_dir"
    assert set(wanted.split()) <= set(compose())


def test_the_outlines_arms_scale_as_it_says(compose):
    parallel, sequential = (compose(f"arm={name}") for name in ("outline", "outline_sequential"))
    assert (parallel.k, sequential.r) == (6, 3)
    assert parallel.memory.redact == sequential.memory.redact == "personal"  # "always", it says


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
    for words, chosen in together():
        own = {group: option for group, option in chosen.items() if group not in ("arm", "experiment")}
        files = (CONFIG / group / f"{option}.yaml" for group, option in own.items())
        named = {part["_target_"] for file in files for part in raw_targets(raw(file))}
        if not named:
            continue
        for _, node in targets(compose(*words, *map("=".join, own.items()))):
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
