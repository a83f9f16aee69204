"""Two logs of another harness as paired outcomes: Inspect's .eval, and lm-evaluation-harness's samples (.jsonl).

Pairs are made by the sample's id, epoch and question, as ids are often mere numbers. What has no score in one of the
logs is in no pair, and counted.
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
Key = tuple[str, int, str]  # (id of the sample, epoch, what it asks)
NOT_METRICS = ("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "doc_hash", "prompt_hash")


@dataclass(frozen=True)
class Log:
    """scores   {sample: its score; None: none}; metric: the name of what was scored"""

    path: Path
    metric: str
    scores: dict[Key, float | None]


def is_foreign(path: str) -> bool:
    return Path(path).suffix in SUFFIXES and Path(path).is_file()


def read(path: Path, metric: str | None = None) -> Log:
    """A log. metric: which score, where there are several. UserError where it cannot be read."""
    try:
        rows = _of_inspect(path) if path.suffix == ".eval" else _of_harness(path)
        names = list(dict.fromkeys(name for _, scores in rows for name in scores))
        if not names:
            raise UserError(f"{path} has no sample with a score.")
        if metric is None and len(names) > 1:
            raise UserError(f"{path} has the scores {', '.join(names)}: say which one, --metric NAME.")
        chosen = metric or names[0]
        if chosen not in names:
            raise UserError(f"{path} has no score {chosen}: it has {', '.join(names)}.")
        merged: dict[Key, float | None] = {}
        for key, scores in rows:  # a row for each filter of one sample
            merged[key] = scores.get(chosen, merged.get(key))
        if wrong := [value for value in merged.values() if value is not None and not 0 <= value <= 1]:
            raise UserError(f"{path}: {chosen} is {wrong[0]:g} somewhere: only scores from 0 to 1 are compared.")
        return Log(path, chosen, merged)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, NotImplementedError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} cannot be read as a log: {error!r:.200}") from None


def _of_inspect(path: Path) -> list[tuple[Key, dict[str, float | None]]]:
    with zipfile.ZipFile(path) as log:
        names = [name for name in log.namelist() if name.startswith("samples/") and name.endswith(".json")]
        samples = [json.loads(read_member(log, name)) for name in names]
    made = []
    for each in samples:
        scores = {name: _score(score.get("value")) for name, score in (each.get("scores") or {}).items()}
        asked = each.get("input")  # a text, or messages, whose ids are of this log alone
        asked = [message["content"] for message in asked] if isinstance(asked, list) else asked
        made.append(((str(each["id"]), int(each.get("epoch", 1)), json.dumps(asked)), scores))
    return made


def _of_harness(path: Path) -> list[tuple[Key, dict[str, float | None]]]:
    rows = [json.loads(line) for line in read_text(path).split("\n") if line.strip()]
    return [((str(row["doc_id"]), 1, json.dumps(row.get("doc"), sort_keys=True)), _metrics(row)) for row in rows]


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
    if not both:
        raise UserError("the logs have no sample in common, by id and question.")
    scored = [key for key in both if None not in (a.scores[key], b.scores[key])]
    found = {"n_only_a": len(a.scores) - len(both), "n_only_b": len(b.scores) - len(both)}
    found |= {"n_unscored": len(both) - len(scored)}
    if not scored:
        return {"difference": None} | found

    def by_sample(log: Log) -> np.ndarray:
        """A row a sample. Epochs are further attempts at the same tasks, and no seeds: they are averaged."""
        samples: dict[tuple[str, str], list[float | None]] = {}
        for id, epoch, asked in scored:
            samples.setdefault((id, asked), []).append(log.scores[id, epoch, asked])
        return np.array([[np.mean(scores)] for scores in samples.values()])

    first, second = by_sample(a), by_sample(b)
    return paired(second, first) | found | {"mean_a": float(first.mean()), "mean_b": float(second.mean())}
