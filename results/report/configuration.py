"""The configuration of runs side by side: what differs, what they share, and what each one ran on."""

from __future__ import annotations

import shlex

from core.run.manifest import flat, without
from results.load import Run

ELSEWHERE = ("run_dir", "tracker", "dry_run")  # where a run was written, and who watched
CELL_CHARS = 300


def differing(arms: list[tuple[str, list[Run]]]) -> dict[str, list]:
    """{columns, rows}: where the arms, (label, runs), differ; what the seed alone changes is left out."""
    seeds = [[_told(run) for run in runs] for _, runs in arms]
    keys = list(dict.fromkeys(key for configs in seeds for config in configs for key in config))
    steady = [key for key in keys if all(len({config.get(key) for config in configs}) == 1 for configs in seeds)]
    firsts = [configs[0] for configs in seeds]
    unlike = [key for key in steady if len({config.get(key, "–") for config in firsts}) > 1]
    rows = [[key, *(config.get(key, "–")[:CELL_CHARS] for config in firsts)] for key in unlike]
    return {"columns": ["", *(label for label, _ in arms)], "rows": rows}


def shared(runs: list[Run]) -> list[tuple[str, str]]:
    """The keys in which all runs agree."""
    configs = [_told(run) for run in runs]
    return [(key, value) for key, value in configs[0].items() if all(other.get(key) == value for other in configs[1:])]


def facts_of(run: Run) -> list[tuple[str, str]]:
    """Where a run comes from and what it ran on."""
    manifest = run.manifest
    git, dataset = manifest.get("git", {}), manifest.get("fingerprint", {}).get("dataset", {})
    dirty = f", with changes in {', '.join(git['dirty'])}" if git.get("dirty") else ""
    models = {role: model.get("model") for role, model in manifest.get("models", {}).items()}
    return [
        ("directory", str(run.path)),
        ("command", shlex.join(["python", "main.py", *manifest.get("command", [])[1:]])),
        ("progress", f"{len(run.rows)} of {run.n_tasks} tasks" + ("" if run.complete else " (partial)")),
        ("seed", str(run.config.get("seed"))),
        ("models", ", ".join(f"{role} {model}" for role, model in models.items())),
        ("dataset", ", ".join(f"{key} {value}" for key, value in dataset.items())),
        ("commit", f"{git.get('sha') or 'unknown'}{dirty}"),
        ("starts", str(len(manifest.get("starts", [1])))),
        ("python", f"{manifest.get('python')} on {manifest.get('platform')}"),
        ("packages", ", ".join(f"{name} {version}" for name, version in manifest.get("packages", {}).items())),
    ]


def _told(run: Run) -> dict[str, str]:
    return flat(without(run.config, ELSEWHERE))
