"""What holds the design together: import arrows and light imports."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from conftest import REPO

# Each room and the rooms that its files may import, beside its own (tests/sizes.py counts them). Within core: the flat
# files at the bottom, then models, learning, memory, run; `core/build.py` is what puts them together.
FLAT, MODELS = {"core"}, {"core", "core/models"}
# Below the bank, which is in core/memory: what its plug-ins and its stores may know of it, each a file.
PORTS = {f"core/memory/{name}.py" for name in "citations filter moment ports protocol records uses".split()}
PLUGINS = {f"core/memory/{name}" for name in "policies consolidation hygiene formats".split()}
STORES = {"core/memory/store", "core/memory/sqlite", "core/memory/postgres"}
MEMORY = {"core/memory", *PORTS, *PLUGINS, *STORES}
FAMILIES = {f"envs/{name}" for name in "alfworld scienceworld web swe mind2web reasoning_gym scenarios".split()}
ARROWS = {
    "core": set(),
    "core/agent.py": {*MODELS, "prompts"},
    "core/command_agent.py": {*MODELS, "core/agent.py", "core/learning", "core/lesson_door.py"},
    "core/lesson_door.py": {*MODELS, "core/memory", "core/memory/policies"},
    "core/build.py": {*MODELS, "core/memory", *PORTS, "core/memory/consolidation", "prompts"},
    "core/models": {"core", "prompts"},
    "core/learning": {*MODELS, "prompts"},
    **{port: {*MODELS, *PORTS} for port in PORTS},
    "core/memory": {*MODELS, "core/learning", *MEMORY},
    "core/memory/store": {"core", *PORTS},
    "core/memory/sqlite": {"core", *PORTS, "core/memory/store"},
    "core/memory/postgres": {"core", *PORTS, "core/memory/store"},
    "core/memory/policies": {*MODELS, "core/learning", *PORTS, "prompts"},
    "core/memory/consolidation": {*MODELS, "core/learning", *PORTS, "prompts"},
    "core/memory/hygiene": {*MODELS, "core/learning", *PORTS, "prompts"},
    "core/memory/formats": {
        "core",
        "core/learning",
        "core/memory",
        *PORTS,
        "core/memory/store",
        "core/memory/policies",
    },
    "core/memory/rivals": {*MODELS, "core/learning", "core/memory", *PORTS, "prompts"},
    "core/run": {*MODELS, "core/build.py", "core/memory", *PORTS, "core/memory/hygiene", "prompts"},
    "core/run/trackers": {"core", "core/run"},
    "prompts": set(),
    "single_turn_bench": FLAT,
    "envs": {*MODELS, "core/agent.py", "core/learning", "single_turn_bench"},
    **{family: {"core", "core/learning", "envs", "single_turn_bench"} for family in FAMILIES},
    "workflows": {
        *MODELS,
        "core/agent.py",
        "core/build.py",
        "core/learning",
        "core/memory",
        *PORTS,
        "core/run",
        "envs",
        "prompts",
    },
    "analysis": {
        *MODELS,
        "core/build.py",
        "core/memory",
        *PORTS,
        "core/memory/hygiene",
        "core/run",
        "single_turn_bench",
    },
    "analysis/report": {"core", "core/run", "core/memory", *PORTS, "core/memory/store", "analysis"},
    "mcp_server": {*MODELS, "core/agent.py", "core/build.py", "core/learning", *MEMORY, "prompts"},
    "scripts": {
        *{*MODELS, "core/build.py", "core/run", "analysis", "analysis/report", "envs", *FAMILIES, "single_turn_bench"},
        *("mcp_server", "prompts", "workflows"),
    },
    "hydra_plugins/reasoningbank_clusters": {"core/run"},
    "hydra_plugins/reasoningbank_verdict": {"core", "core/build.py", "core/run", "analysis", "envs", "workflows"},
    "main.py": {"core", "core/build.py", "core/memory", *PORTS, "core/memory/hygiene", "core/run", "envs", "workflows"},
}
ANYTHING = ("benchmarks", "benchmarks/drill")  # measure every room; nothing imports them
PACKAGES = {room.split("/")[0] for room in ARROWS}
HEAVY = ("torch", "litellm", "faiss", "sympy", "sentence_transformers", "wandb", "datasets", "xllamacpp", "textworld")
HEAVY += ("pandas", "scipy", "statsmodels", "matplotlib", "pyarrow", "mlflow", "trackio")


def sources() -> list[Path]:
    return [
        REPO / "main.py",
        *(path for room in sorted((*ARROWS, *ANYTHING)) for path in sorted((REPO / room).glob("*.py"))),
    ]


def room_of(path: Path) -> str:
    place = path.relative_to(REPO)
    return str(place) if str(place) in ARROWS else str(place.parent)


def statements(node):
    """Each statement in a node, at any depth; ast.walk, which looks into expressions too, takes six times as long."""
    for field in ("body", "orelse", "handlers", "finalbody", "cases"):
        for child in getattr(node, field, ()):
            yield child
            yield from statements(child)


@cache
def imported(path: Path) -> set[Path]:
    """The project's files that a file imports anywhere in it, for its annotations too."""
    found = set()
    for node in statements(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {file_of(alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):  # of a package: a file in it, or its front
            found |= {file_of(f"{node.module}.{alias.name}") or file_of(node.module) for alias in node.names}
    return found - {None}


def file_of(module: str) -> Path | None:
    """The project's file that a module is; None for what is none of its modules."""
    place = REPO / module.replace(".", "/")
    return next((file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()), None)


def test_every_file_has_a_room():
    known = {path for name in {*PACKAGES, "benchmarks"} for path in (REPO / name).rglob("*.py")}
    assert {path for path in known if not path.is_relative_to(REPO / "envs/swe/bundled")} <= set(sources())  # its data


@pytest.mark.parametrize("core", [True, False], ids=["in core", "beside it"])
def test_imports_follow_the_arrows(core):
    wrong = {}
    for path in (path for path in sources() if path.is_relative_to(REPO / "core") is core):
        mine = room_of(path)
        # A package's __init__ is run by whoever imports a module in it; it holds a docstring, or the package's front.
        others = {
            room_of(file) for file in imported(path) if file.name != "__init__.py" or file.read_text().count("\n") > 1
        }
        if mine not in ANYTHING and (against := others - {mine} - ARROWS[mine]):
            wrong[str(path.relative_to(REPO))] = sorted(against)
    assert wrong == {}


def test_no_file_imports_itself_in_a_circle():
    todo = {path: imported(path) - {path} for path in sources()}
    while free := [path for path, needs in todo.items() if not needs & todo.keys()]:
        for path in free:
            del todo[path]
    assert sorted(str(path.relative_to(REPO)) for path in todo) == []


def test_a_name_means_one_thing():
    """Parts are known by their class (core/run/upgrade.py), so no two classes may share a name."""
    classes: dict[str, list[str]] = {}
    for path in sources():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, []).append(str(path.relative_to(REPO)))
    assert {name: where for name, where in classes.items() if len(where) > 1} == {}


def test_importing_the_parts_loads_nothing_heavy():
    code = f"import sys, core, workflows, envs, prompts, main; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPO, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_building_a_workflow_module_loads_nothing_heavy():
    modules = "workflows.stream, workflows.rollout, core.learning.lessons, core.memory.bank, core.models.remote"
    code = f"import sys, core.models.local, {modules}; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPO, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_importing_the_mcp_server_loads_nothing_heavy():
    modules = "server, service, config, http, cli, extraction, __main__".replace(", ", ", mcp_server.")
    code = f"import sys, mcp_server.{modules}; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPO, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
