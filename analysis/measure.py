"""The numbers of one cell, from its episodes: rates with their intervals, costs, attempts, the judge against the truth.

Means are taken within each seed first. What broke is in no rate; `bounds` says what it could have changed.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.funnel_steps import lesson_counts
from analysis.stats import calibration, confusion, late_minus_early, rate_interval
from analysis.verdict import shared_banks
from core.run.metrics import averages, pass_at_k
from core.setting import joined_labels

if TYPE_CHECKING:
    import pandas as pd


def measure(episodes: pd.DataFrame) -> dict[str, Any]:
    """The numbers of one cell. Means are taken within each seed first; an infra_error is in no denominator."""
    episodes = episodes[episodes["index"] >= 0]
    valid = episodes[episodes["success"].notna()]
    won, lost = valid[valid["success"] == 1], valid[valid["success"] == 0]
    facts = {
        "n_seeds": valid["seed"].nunique(),
        "seeds": tuple(sorted(valid["seed"].unique().tolist())),
        "n": len(valid),
        "n_success": len(won),
        "n_infra_error": int((episodes["status"] == "infra_error").sum()),
        "n_broken_attempts": sum(outcomes.count("infra_error") for outcomes in valid["attempts"]),
        "n_with_broken_attempts": sum("infra_error" in outcomes for outcomes in valid["attempts"]),
        "n_retried": int(valid["retried"].sum()),
        "n_unsure": int(unsure(episodes).sum()),
        "n_shared_banks": shared_banks(episodes),
        "n_bank_names": episodes["knobs"].nunique(),  # several, where one bank was given under several
        "n_tampered": int(episodes["n_tampered"].sum()),
        "n_no_vote": int((valid["selected_by"].eq("majority") & (valid["n_agreed"] < 2)).sum()),
        "label_source": joined_labels(episodes["label_source"]),
        "n_unstated": int(valid["stated"].eq(False).sum()),
        "n_unanswered": int(unanswered(valid).sum()),
        "limits": {limit: int(n) for limit, n in valid["limit"].value_counts().sort_index().items() if limit},
        "lenient": _seed_mean(valid, "lenient"),
        "helpers": _merged(episodes["helpers"]),
        "noted": _merged(episodes["knobs"]),
    }
    facts |= answered(episodes.drop_duplicates("run_dir"))
    own = distinct_seeds(episodes)
    rate = rate_interval(grid(own).to_numpy())
    facts |= {"n_distinct_seeds": own["seed"].nunique(), "success": rate.pop("mean"), **rate}
    facts |= {name: bounds(own, value) for name, value in (("if_errors_failed", 0.0), ("if_errors_solved", 1.0))}
    facts |= {name: _seed_mean(valid, name) for name in ("reward", "steps")}
    facts |= {name: _spent(valid, name) for name in ("tokens", "cost")}
    facts["tokens_memory"] = _spent(valid.assign(tokens=valid["tokens_extractor"]), "tokens")
    facts |= {name: _seed_mean(valid, name) for name in ("lessons_shown", "lesson_tokens", "tokens_validation")}
    facts["lessons_at"] = _seed_mean(valid[valid["lessons_at"].notna()], "lessons_at")
    facts |= {"steps_won": _seed_mean(won, "steps"), "steps_lost": _seed_mean(lost, "steps")}
    for name in ("tokens", "cost"):
        rounds = episodes.drop_duplicates("run_dir")[f"{name}_consolidation"]
        whole = episodes[name].sum(skipna=False) + rounds.sum(skipna=False)
        facts[f"{name}_per_success"] = _plain(whole / len(won)) if len(won) else None
    facts |= {f"n_{name}": int(episodes[f"n_{name}"].sum()) for name in ("lessons", "dropped", "distillations_cut")}
    facts["n_unread"] = int(valid["verdict_parsed"].eq(False).sum())
    facts["lessons_per_100"] = 100 * episodes["n_lessons"].sum() / len(valid) if len(valid) else None
    facts["hit_rate"] = float((valid["n_retrieved"] > 0).mean()) if len(valid) else None
    facts |= lesson_counts(valid)
    late = late_minus_early(grid(own, "index").to_numpy())
    facts |= {"late_early": late["difference"], "late_early_low": late["low"], "late_early_high": late["high"]}
    facts["measures"] = measures(valid)
    facts["by_type"] = {str(kind): _seed_mean(group, "success") for kind, group in valid.groupby("task_type")}
    judged = verdicts(valid) | confidences(valid)
    return facts | attempts(episodes) | {f"judge_{name}": value for name, value in judged.items()}


def measures(valid: pd.DataFrame) -> dict[str, dict[str, float]]:
    """The env's further measures (`BaseEnv.measures`): {name: {macro, micro}}, each the mean over seeds."""
    seeds = [averages(map(json.loads, group["measures"])) for _, group in valid.groupby("seed")]
    names = dict.fromkeys(name for seed in seeds for name in seed)
    return {
        name: {
            kind: float(np.mean([seed[name][kind] for seed in seeds if name in seed])) for kind in ("macro", "micro")
        }
        for name in names
    }


def answered(runs: pd.DataFrame) -> dict[str, Any]:
    """{n_calls, fallbacks: {model: calls that it answered}} of runs whose models have fallbacks."""
    counts: Counter[str] = Counter()
    for answered_by in runs["fallbacks"]:
        counts.update(json.loads(answered_by))
    return {"n_calls": int(runs["n_calls"].fillna(0).sum()), "fallbacks": dict(counts)}


def attempts(episodes: pd.DataFrame) -> dict[str, Any]:
    """The numbers of several attempts at each task: {n_attempts, avg_at_k, pass_at, best_of_n}, and their bounds.

    pass_at holds the unbiased pass@1..n; pass@k is over the tasks with at least k attempts without an infra error.
    best_of_n is the success rate of the chosen answers. With one attempt per task all but n_attempts are None.
    attempts_if_failed and attempts_if_solved are the same numbers had every attempt that broke failed, or succeeded; of
    best_of_n, had it been chosen too. None where none broke.
    """
    valid = episodes[episodes["success"].notna()]
    whole = [[outcome for outcome in outcomes if outcome != "infra_error"] for outcomes in valid["attempts"]]
    n = max(map(len, whole), default=0)
    found = {"n_attempts": n, **_of_attempts(whole), "best_of_n": _seed_mean(valid, "success")}
    if n < 2:
        found |= dict.fromkeys(("avg_at_k", "pass_at", "best_of_n"))
    ends = {"attempts_if_failed": ("failure", 0.0), "attempts_if_solved": ("success", 1.0)}
    broke = unsure(episodes) & episodes["attempts"].map(lambda outcomes: "infra_error" in outcomes)
    for name, (outcome, value) in ends.items() if n > 1 and broke.any() else ():
        filled = [
            [outcome if each == "infra_error" else each for each in outcomes] for outcomes in episodes["attempts"]
        ]
        chosen = episodes.assign(success=episodes["success"].mask(broke, value))
        found[name] = _of_attempts(filled) | {"best_of_n": _seed_mean(chosen, "success")}
    return dict.fromkeys(ends) | found


def _of_attempts(outcomes: list[list[str]]) -> dict[str, Any]:
    """{avg_at_k, pass_at} of the outcomes of each task's attempts."""
    counts = [(len(each), each.count("success")) for each in outcomes if each]
    if not counts:
        return {"avg_at_k": None, "pass_at": None}
    most = max(total for total, _ in counts)
    curve = [np.mean([pass_at_k(total, won, k) for total, won in counts if total >= k]) for k in range(1, most + 1)]
    return {"avg_at_k": float(np.mean([won / n for n, won in counts])), "pass_at": tuple(map(float, curve))}


def verdicts(valid: pd.DataFrame) -> dict[str, Any]:
    """Confusion counts of the judge's labels against the truth, over all judged attempts without an infra error."""
    episodes = zip(valid["attempts"], valid["verdicts"], strict=True)
    pairs = [pair for truths, labels in episodes for pair in zip(labels, truths, strict=True)]
    judged = [(label, truth) for label, truth in pairs if label is not None and truth != "infra_error"]
    return confusion((label == "success", truth == "success") for label, truth in judged)


def confidences(valid: pd.DataFrame) -> dict[str, Any]:
    """Calibration of the judge's confidences, over the attempts that have one: see `analysis.stats.calibration`."""
    episodes = zip(valid["attempts"], valid["verdicts"], valid["confidences"], strict=True)
    rated = [each for columns in episodes for each in zip(*columns, strict=False)]
    rated = [
        (sure, label == truth)
        for truth, label, sure in rated
        if label is not None and truth != "infra_error" and sure is not None and 0 <= sure <= 1
    ]
    scores = calibration([sure for sure, _ in rated], [right for _, right in rated])
    return {"n_rated": scores.pop("n"), **scores}


def distinct_seeds(episodes: pd.DataFrame) -> pd.DataFrame:
    """Drop seeds whose attempts duplicate another seed's word for word: they are no further evidence."""
    firsts = episodes.drop_duplicates("run_dir").drop_duplicates("trace")["run_dir"]
    return episodes[episodes["run_dir"].isin(firsts)]


def unsure(episodes: pd.DataFrame) -> pd.Series:
    """Of each episode, whether something broke without which it could have ended otherwise.

    It broke itself, one of its attempts did, or it is the second try at a task whose first one broke.
    """
    in_attempts = episodes["attempts"].map(lambda outcomes: isinstance(outcomes, list) and "infra_error" in outcomes)
    return (episodes["status"] == "infra_error") | in_attempts | (episodes["retried"] == True)  # noqa: E712 - NaN: none


def unanswered(episodes: pd.DataFrame) -> pd.Series:
    """Of each episode that counts, whether it states no answer or ended at a limit (`core.run.metrics.limit_of`)."""
    none = episodes["stated"].eq(False) | episodes["limit"].fillna("").ne("")
    return none & episodes["success"].notna()


def bounds(episodes: pd.DataFrame, value: float) -> tuple[float, float] | None:
    """95 % interval of the success rate if all `unsure` episodes counted as `value`; None where there are none."""
    broke = unsure(episodes)
    if not broke.any():
        return None
    rate = rate_interval(grid(episodes.assign(success=episodes["success"].mask(broke, value))).to_numpy())
    return rate["low"], rate["high"]


def grid(episodes: pd.DataFrame, by: str = "task_id", value: str = "success") -> pd.DataFrame:
    """A matrix of `value`: tasks (with by="index": places in the stream) x seeds; NaN where no episode counts.

    Several visits of one seed to a task (`stream.passes`) are averaged: they are still one task.
    """
    return episodes.groupby([by, "seed"])[value].mean().unstack("seed")


def outcomes(episodes: pd.DataFrame, value: str = "success") -> pd.DataFrame:
    """A matrix of `value`: tasks x (seed, visit), one episode per entry; NaN where no episode counts."""
    return episodes.set_index(["task_id", "seed", "visit"])[value].unstack(["seed", "visit"])


def _seed_mean(episodes: pd.DataFrame, column: str) -> float | None:
    """Mean over seeds of each seed's mean; None without episodes, and if a value (an unknown cost) is missing."""
    if not len(episodes) or episodes[column].isna().any():
        return None
    return float(episodes.groupby("seed")[column].mean().mean())


def _spent(episodes: pd.DataFrame, column: str) -> float | None:
    """`_seed_mean` of tokens or cost per episode, plus the episode's equal share of its run's consolidation."""
    own = _seed_mean(episodes, column)
    if own is None:
        return None
    shares = episodes.groupby("seed")[f"{column}_consolidation"].agg(lambda rounds: rounds.iloc[0] / len(rounds))
    return None if shares.isna().any() else own + float(shares.mean())


def _merged(texts: pd.Series) -> dict[str, tuple[str, ...]]:
    """{key: its different values} of JSON objects, e.g. one for each seed."""
    found: dict[str, dict[str, None]] = {}
    for text in texts.unique():
        for key, value in json.loads(text).items():
            found.setdefault(key, {})[value] = None
    return {key: tuple(values) for key, values in found.items()}


def _plain(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
