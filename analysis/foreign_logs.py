"""Two logs of another harness as paired outcomes: Inspect's .eval, and lm-evaluation-harness's samples (.jsonl).

Pairs are made by the sample's id and epoch. A sample without a score is in no pair, and counted.
"""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from analysis.stats import paired
from core.errors import UserError
from core.textfile import read_member, read_text

SUFFIXES = (".eval", ".jsonl")
CORRECT = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0, True: 1.0, False: 0.0}  # Inspect's values of a score
NOT_METRICS = ("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "doc_hash", "prompt_hash")


@dataclass(frozen=True)
class Log:
    """scores   {(id of the sample, epoch): its score; None: none}; metric: the name of what was scored"""

    path: Path
    metric: str
    scores: dict[tuple[str, int], float | None]


def is_foreign(path: str) -> bool:
    return Path(path).suffix in SUFFIXES and Path(path).is_file()


def read(path: Path, metric: str | None = None) -> Log:
    """A log. metric: which score, where there are several. UserError where it cannot be read."""
    try:
        rows = _of_inspect(path) if path.suffix == ".eval" else _of_harness(path)
        names = list(dict.fromkeys(name for _, _, scores in rows for name in scores))
        if not names:
            raise UserError(f"{path} has no sample with a score.")
        if metric is None and len(names) > 1:
            raise UserError(f"{path} has the scores {', '.join(names)}: say which one, --metric NAME.")
        chosen = metric or names[0]
        if chosen not in names:
            raise UserError(f"{path} has no score {chosen}: it has {', '.join(names)}.")
        merged: dict[tuple[str, int], float | None] = {}
        for id, epoch, scores in rows:  # a row for each filter of one sample
            merged[id, epoch] = scores.get(chosen, merged.get((id, epoch)))
        if wrong := [value for value in merged.values() if value is not None and not 0 <= value <= 1]:
            raise UserError(f"{path}: {chosen} is {wrong[0]:g} somewhere: only scores from 0 to 1 are compared.")
        return Log(path, chosen, merged)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, NotImplementedError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} cannot be read as a log: {error!r:.200}") from None


def _of_inspect(path: Path) -> list[tuple[str, int, dict[str, float | None]]]:
    with zipfile.ZipFile(path) as log:
        names = [name for name in log.namelist() if name.startswith("samples/") and name.endswith(".json")]
        samples = [json.loads(read_member(log, name)) for name in names]
    made = []
    for each in samples:
        scores = {name: _score(score.get("value")) for name, score in (each.get("scores") or {}).items()}
        made.append((str(each["id"]), int(each.get("epoch", 1)), scores))
    return made


def _of_harness(path: Path) -> list[tuple[str, int, dict[str, float | None]]]:
    rows = [json.loads(line) for line in read_text(path).split("\n") if line.strip()]
    return [(str(row["doc_id"]), 1, _metrics(row)) for row in rows]


def _metrics(row: dict[str, Any]) -> dict[str, float | None]:
    filtered = f",{row['filter']}" if row.get("filter") else ""
    numbers = {name: value for name, value in row.items() if isinstance(value, (int, float))}
    return {f"{name}{filtered}": _score(value) for name, value in numbers.items() if name not in NOT_METRICS}


def _score(value: Any) -> float | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    return CORRECT.get(value) if isinstance(value, (str, bool)) else None


def compare(a: Log, b: Log) -> dict[str, Any]:
    """`analysis.stats.paired` of B minus A, with n_only_a, n_only_b, n_unscored (of the shared ones), and the means."""
    both = sorted(a.scores.keys() & b.scores.keys())
    ids = list(dict.fromkeys(id for id, _ in both))
    epochs = sorted({epoch for _, epoch in both})
    if not both:
        raise UserError("the logs have no sample in common.")

    def grid(log: Log) -> np.ndarray:
        return np.array([[_known(log.scores.get((id, epoch))) for epoch in epochs] for id in ids])

    # Epochs are further attempts at the same tasks, and no seeds: they are averaged.
    first, second = (np.nanmean(grid(log), axis=1, keepdims=True) if len(epochs) > 1 else grid(log) for log in (a, b))
    kept = ~(np.isnan(first) | np.isnan(second))
    found = paired(second, first) | {"n_only_a": len(a.scores) - len(both), "n_only_b": len(b.scores) - len(both)}
    found["n_unscored"] = int((~kept).sum())
    return found | {"mean_a": float(first[kept].mean()), "mean_b": float(second[kept].mean())} if kept.any() else found


def _known(value: float | None) -> float:
    return float("nan") if value is None else value
