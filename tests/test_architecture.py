"""What holds the design together: import arrows, light imports, sizes, and every config bound to what reads it."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import REPO
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf

from core.build import GROUPS, NULLABLE, NUMBERS, OTHERS, SHOWN

ALLOWED = {
    "main": {"workflows", "envs", "core"},
    "workflows": {"workflows", "core", "prompts", "envs"},
    "envs": {"envs", "core", "single_turn_bench"},
    "core": {"core", "prompts"},
    "prompts": {"prompts"},
    "single_turn_bench": {"single_turn_bench", "core"},
    "results": {"results", "core", "single_turn_bench", "prompts"},
    "mcp_server": {"mcp_server", "core"},
    "scripts": {"scripts", "results", "core", "single_turn_bench", "envs"},
}
HEAVY = ("torch", "litellm", "faiss", "sympy", "sentence_transformers", "wandb", "datasets", "xllamacpp", "textworld")
HEAVY += ("pandas", "scipy", "statsmodels", "matplotlib", "pyarrow")


def sources():
    return [p for name in ALLOWED for p in (REPO / name).rglob("*.py")] + [REPO / "main.py"]


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(node.module)
    return {name.split(".")[0] for name in names}


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(REPO)))
def test_imports_follow_the_arrows(path):
    part = path.relative_to(REPO).parts[0].removesuffix(".py")
    assert imported(path) & (set(ALLOWED) | {"main"}) <= ALLOWED[part]


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(REPO)))
def test_files_and_functions_stay_small(path):
    text = path.read_text()
    assert text.count("\n") <= 250
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < 60, node.name


def test_importing_the_parts_loads_nothing_heavy():
    code = f"import sys, core, workflows, envs, prompts, main; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPO, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_building_a_workflow_module_loads_nothing_heavy():
    modules = "workflows.stream, workflows.rollout, core.learning.distiller, core.memory.bank, core.models.remote"
    code = f"import sys, core.models.local, {modules}; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPO, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_nothing_imports_the_mcp_server():
    assert all("mcp_server" not in imported(path) for path in sources() if "mcp_server" not in path.parts)


def test_importing_the_mcp_server_loads_nothing_heavy():
    modules = "server, service, config, http, cli, hooks, queue_worker, __main__".replace(", ", ", mcp_server.")
    code = f"import sys, mcp_server.{modules}; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPO, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def options():
    """(group, option) of every config file but those that are no choice, which lie beside config.yaml."""
    config = REPO / "config"
    return [(str(p.parent.relative_to(config)), p.stem) for p in sorted(config.glob("*/**/*.yaml"))]


def choose(group: str, option: str) -> list[str]:
    """The words that choose an option; one of a group within a group goes with an option that has that group."""
    host = "memory=guarded" if group == "memory/hygiene" else "memory=consolidated"
    return [host] * ("/" in group) + [f"{group}={option}"]


def targets(node, where="") -> list[tuple[str, DictConfig]]:
    """Every node with a _target_, with its path."""
    if not isinstance(node, DictConfig):
        return []
    found = [(where, node)] if "_target_" in node else []
    for key in node:
        if not OmegaConf.is_missing(node, key):
            found += targets(node[key], f"{where}.{key}")
    return found


@pytest.mark.parametrize(("group", "option"), options())
def test_every_option_composes_and_binds_to_its_signature(compose, group, option):
    cfg = compose(*choose(group, option))
    if group not in ("arm", "experiment"):
        assert "_target_" in OmegaConf.select(cfg, group.replace("/", ".")), "not a part: no choice of this group"
    found = targets(cfg)
    assert found
    for where, node in found:
        shown = SHOWN if where == ".memory" else ()
        keys = {key: None for key in node if not key.startswith("_") and key not in shown}
        signature = inspect.signature(get_object(node["_target_"]))
        kinds = {p.kind for p in signature.parameters.values()}
        assert inspect.Parameter.VAR_KEYWORD not in kinds, f"{where}: **kwargs would swallow a misspelt key"
        signature.bind_partial(**keys)


def test_the_keys_of_the_config_are_the_keys_that_are_read(compose):
    typed = set(compose("llm@judge_llm=scripted", "llm@extractor_llm=scripted", "llm@selector_llm=scripted"))
    assert typed == {*NUMBERS, *GROUPS, *OTHERS}
    assert set(NULLABLE) < set(NUMBERS)


def test_every_key_a_user_types_often_is_top_level(compose):
    wanted = (
        "env workflow agent llm embedder memory retrieval judge setting tracker seed limit max_steps max_concurrency "
        "k r run_dir"
    )
    assert set(wanted.split()) <= set(compose())


def test_every_key_of_a_component_is_a_field_it_uses(compose):
    """A field that its module never reads would be a knob nobody turns."""
    for group, option in options():
        for where, node in targets(compose(*choose(group, option))):
            target = get_object(node["_target_"])
            if not inspect.isclass(target):
                continue
            text = "".join(inspect.getsource(c) for c in target.__mro__ if c.__module__.split(".")[0] in ALLOWED)
            for key in (key for key in node if not key.startswith("_")):
                used = f"self.{key}" in text or any(f".{key}" in p.read_text() for p in sources())
                assert used, f"{where}.{key} of {group}={option}"
