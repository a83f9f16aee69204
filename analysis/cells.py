"""From episodes to the cells of a table: one row for each configuration, averaged over its seeds.

A cell here is one configuration over all its seeds, on one set of tasks; it is never averaged over different task sets.
(core/run/cells.py names the folder of one run, which a sweep also calls a cell.) Cells of the same env, model and set
of tasks are a block: they may stand in one table and be compared.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis import notes
from analysis.funnel_steps import lesson_counts
from analysis.made_of import cells_differ
from analysis.stats import (
    calibration,
    confusion,
    late_minus_early,
    paired,
    paired_worst,
    rate_interval,
    spread,
)
from analysis.verdict import correct, scope, shared_banks
from core.errors import UserError
from core.run.arms import named
from core.run.keys import COLUMNS
from core.run.metrics import averages, pass_at_k
from core.setting import joined

if TYPE_CHECKING:
    import pandas as pd

BLOCK = ("env", "model", "task_set")
PAIRED = "n_pairs n_paired_seeds won lost difference sd_seeds low high p p_tasks".split()  # from analysis.stats.paired
# The same in the worst case of what broke, and how many of the paired tasks of the cell and its baseline that concerns.
WORST = ("difference_worst", "p_worst", "n_broke", "n_broke_base")
CORRECTED = ("p_holm", "p_worst_holm", "n_compared")  # from analysis.verdict.correct
GAIN = ("gain", "gain_low", "gain_high")  # the difference to the baseline: late in the stream minus early
OVER_TYPES = ("n_types", "over_types", "over_types_low", "over_types_high")  # the mean of the differences of each type
SCOPE = ("n_orders", "n_banks", "scope", "alike")  # from analysis.verdict.scope
SHARED = ["cell", "arm", "overridden", *BLOCK, "part", "version", "n_tasks", "evaluated", *COLUMNS]
MAX_LABEL_SETTINGS, MAX_LABEL_CHARS = 2, 60  # more settings than this, or longer ones, are not written into a label

# The order of arms in every table: the paper's, then those that this project adds, then the user's own by name.
PAPER = ("no_memory", "synapse", "awm", "reasoningbank", "matts_parallel", "matts_sequential")
SCALED = ("parallel_k5", "parallel_alone", "parallel_no_memory", "sequential_alone", "sequential_no_memory")
ABLATIONS = (
    "success_only",
    "failure_only",
    "synapse_both",
    "awm_both",
    "random_retrieval",
    "two_passes",
    "batch_of_40",
)
LABELS = tuple(f"labels_{name}" for name in ("llm", "heuristic", "consensus", "self_consistency", "truth"))
CONTROL = tuple("told_random told_lesson told_bank true_labels quote key_item top_3 lexical rrf quote_key_item".split())
REFERENCES = ("random", "gold")  # agents without a model: the floor and the ceiling
ORDER = (*PAPER, *(f"matts_{name}" for name in SCALED), *ABLATIONS, *LABELS, *CONTROL, *REFERENCES)


@dataclass(frozen=True, kw_only=True)
class Cells:
    """The cells of a table, with the episodes that they were made from.

    table   one row per cell; in a row that was compared, `base` is its baseline's cell; p_holm is over all `p` here
    frame   the episodes behind the rows
    notes   the notes below the table: which runs were left out and why, and what its reader must know
    """

    table: pd.DataFrame
    frame: pd.DataFrame
    notes: list[str] = field(default_factory=list)

    def episodes(self, cell: str) -> pd.DataFrame:
        """The episodes from which a cell's numbers were made."""
        return self.frame[self.frame["cell"] == cell]


def make_cells(frame: pd.DataFrame, baseline: str | None = None, *, partial: bool = False, command: str = "") -> Cells:
    """Every cell of the episodes from `analysis.load.load_runs`, each compared with the baseline of its block.

    baseline   a label, an arm or a word of a label ("top_k=1"); a block is compared only if exactly one cell matches
    partial    average unfinished runs as well; their rows are True in the column `partial`
    command    the command that makes this table; the note on a block that is not compared shows it with each baseline
               that could be chosen
    Raises UserError if no run has an episode.
    """
    import pandas as pd

    if (frame["index"] < 0).all():
        raise UserError("none of the runs has finished an episode yet.")
    used, lines = _chosen(frame)
    lines += notes.different_data(used, BLOCK) + notes.memory_settings_notes(used)
    counted = used if partial else used[used["complete"]]
    rows = []
    for cell, runs in used.groupby("cell", sort=False):
        lines += notes.unfinished(runs, partial)
        n_partial = runs[~runs["complete"]]["run_dir"].nunique()
        facts = {"n_partial": n_partial, "partial": partial and n_partial > 0}
        as_named = runs.sort_values("overridden", kind="stable").iloc[0]  # one configuration may have had two names
        rows.append({**as_named[SHARED], **facts, **measure(counted[counted["cell"] == cell])})
    table = pd.DataFrame(rows)
    settings = used.drop_duplicates("cell").set_index("cell")["settings"].map(json.loads).to_dict()
    table.insert(0, "label", _labels(table, settings))
    table = _in_order(table)
    rows = _for_notes(table)
    for note in (notes.unevaluated, notes.broken, notes.tampered, notes.replicates, notes.fallbacks):
        lines += note(rows)
    lines += notes.one_bank(rows)
    lines += cells_differ(used, dict(zip(table["cell"], table["label"], strict=True)), BLOCK)
    cells = Cells(table=table, frame=counted, notes=lines)
    return cells if baseline is None else _compared(cells, baseline, command)


def place_of_arm(row: dict[str, Any]) -> tuple[Any, ...]:
    """Sort key for the rows of a table: the arm's place in ORDER, then its label, numbers in it by size (k=2, k=10)."""
    arm, label = row["arm"], row.get("label") or row["arm"]
    known = ORDER.index(arm) if arm in ORDER else len(ORDER)
    return known, _by_size(arm), _by_size(label)


def _by_size(text: str) -> list[tuple[int, str]]:
    return [(int(piece), "") if piece.isdigit() else (-1, piece) for piece in re.split(r"(\d+)", text)]


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
        "label_source": joined(episodes["label_source"]),
    }
    facts |= answered(episodes.drop_duplicates("run_dir"))
    own = distinct_seeds(episodes)
    rate = rate_interval(grid(own).to_numpy())
    facts |= {"n_distinct_seeds": own["seed"].nunique(), "success": rate.pop("mean"), **rate}
    facts |= {name: bounds(own, value) for name, value in (("if_errors_failed", 0.0), ("if_errors_solved", 1.0))}
    facts |= {name: _seed_mean(valid, name) for name in ("reward", "steps")}
    facts |= {name: _spent(valid, name) for name in ("tokens", "cost")}
    facts |= {"steps_won": _seed_mean(won, "steps"), "steps_lost": _seed_mean(lost, "steps")}
    for name in ("tokens", "cost"):
        rounds = episodes.drop_duplicates("run_dir")[f"{name}_consolidation"]
        whole = episodes[name].sum(skipna=False) + rounds.sum(skipna=False)
        facts[f"{name}_per_success"] = _plain(whole / len(won)) if len(won) else None
    facts["lessons_per_100"] = 100 * episodes["n_lessons"].sum() / len(valid) if len(valid) else None
    facts["hit_rate"] = float((valid["n_retrieved"] > 0).mean()) if len(valid) else None
    facts |= lesson_counts(valid)
    late = late_minus_early(grid(episodes, "index").to_numpy())
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


def _chosen(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """(episodes of one run per cell and seed, notes on the other runs): the furthest run, on a tie the last by name."""
    runs = frame.sort_values("index").drop_duplicates("run_dir", keep="last").sort_values(["index", "run_dir"])
    left = runs[runs.duplicated(["cell", "seed"], keep="last")]
    return frame[~frame["run_dir"].isin(left["run_dir"])], notes.left_out(left)


def _labels(table: pd.DataFrame, settings: dict[str, dict[str, str]]) -> list[str]:
    """A label for each row: the arm, with the settings that distinguish cells of this arm in any block.

    They are taken over all blocks, so that a configuration has the same label in each. Cells that still share a label
    get a suffix: the other settings in which they differ, or the first characters of the cell's id.
    """
    label_of: dict[str, str] = {}  # by cell
    for _, arm in table.groupby(["arm", table["overridden"].map(_without_columns)], dropna=False):
        blocks = [block for _, block in arm.groupby(list(BLOCK), dropna=False)]
        differing = [key for key in COLUMNS if any(block[key].astype(str).nunique() > 1 for block in blocks)]
        for block in blocks:
            rows = rows_of(block)
            labels = [named(row["arm"], _label_words(row, differing)) for row in rows]
            for label in set(labels):
                cells = [row["cell"] for row, other in zip(rows, labels, strict=True) if other == label]
                label_of |= {cell: f"{label}{more}" for cell, more in _suffixes(cells, settings).items()}
    labels = [label_of[cell] for cell in table["cell"]]
    blocks = zip(*(table[key] for key in BLOCK), strict=True)
    places = list(zip(labels, blocks, strict=True))  # the name of one arm may be another's with its settings
    return [
        f"{label} #{cell[:4]}" if places.count(place) > 1 else label
        for label, cell, place in zip(labels, table["cell"], places, strict=True)
    ]


def _suffixes(cells: list[str], settings: dict[str, dict[str, str]]) -> dict[str, str]:
    """{cell: a suffix that distinguishes it from the others with the same label}; "" for a single cell."""
    if len(cells) == 1:
        return {cells[0]: ""}
    keys = {key for cell in cells for key in settings[cell]}
    values = {key: [str(settings[cell].get(key)) for cell in cells] for key in sorted(keys)}
    values = {key: each for key, each in values.items() if len(set(each)) > 1}
    words = ["".join(f" {key}={each[place]}" for key, each in values.items()) for place in range(len(cells))]
    if len(values) > MAX_LABEL_SETTINGS or len(set(words)) < len(cells) or max(map(len, words)) > MAX_LABEL_CHARS:
        words = [f" #{cell[:4]}" for cell in cells]
    return dict(zip(cells, words, strict=True))


def _without_columns(overridden: str) -> str:
    """The words by which a run departs from its arm, without those of a column; with what changes its workflow."""
    told = {key for key in COLUMNS.values() if not key.startswith("workflow")}
    return " ".join(word for word in overridden.split() if word.partition("=")[0] not in told)


def _label_words(row: dict[str, Any], differing: list[str]) -> list[str]:
    """How a cell departs from its arm, and the columns in which cells of the arm differ, as words "key=value"."""
    said = {word.partition("=")[0]: word for word in row["overridden"].split()}
    more = {key: f"{key}={short(row[key])}" for key in differing if not {key, f"workflow.{key}"} & {*said}}
    told = {COLUMNS[key] for key in more}
    return [*(word for key, word in said.items() if key not in told), *more.values()]


def _in_order(table: pd.DataFrame) -> pd.DataFrame:
    """The table with its blocks in the order in which they first occur, and the arms of each by `place_of_arm`."""
    blocks = table.groupby(list(BLOCK), sort=False).ngroup()
    keys = [(block, *place_of_arm(row)) for block, row in zip(blocks, rows_of(table), strict=True)]
    return table.iloc[sorted(range(len(keys)), key=keys.__getitem__)].reset_index(drop=True)


def _compared(cells: Cells, baseline: str, command: str) -> Cells:
    """The cells with the paired difference to their block's baseline, and Holm's p over the table."""
    import pandas as pd

    rows, lines = [], list(cells.notes)
    table = cells.table
    bases = {}
    for block, group in table.groupby(list(BLOCK), sort=False):
        words = [baseline in label.split()[1:] for label in group["label"]]
        shared = set.intersection(*({*words.split()} for words in group["overridden"]))  # tells no cell apart
        as_named = (group["arm"] == baseline) & group["overridden"].map(
            lambda words, shared=shared: {*words.split()} <= shared
        )
        ways = (group["label"] == baseline, as_named, words)
        candidates = next((fitting for way in ways if len(fitting := group[way])), group[:0])
        bases[block] = candidates.iloc[0]["cell"] if len(candidates) == 1 and candidates.iloc[0]["n"] else None
        if bases[block] is None and len(group) > 1:
            lines += notes.no_baseline(block, baseline, rows_of(candidates), rows_of(group), command)
    for row in _for_notes(table):
        base = bases[tuple(row[key] for key in BLOCK)]
        rows.append({"base": base})
        if base is None or base == row["cell"] or not row["n"]:
            continue
        mine, other = cells.episodes(row["cell"]), cells.episodes(base)
        rows[-1] |= against(mine, other, mine) | _gain(mine, other) | _over_types(mine, other) | scope(mine, other)
        lines += notes.without_partner(row["label"], mine, other) + notes.other_settings(row["label"], mine, other)
    correct(rows)
    effects = pd.DataFrame(rows, columns=["base", *PAIRED, *WORST, *CORRECTED, *GAIN, *OVER_TYPES, *SCOPE])
    effects = effects.astype(dict.fromkeys(("p", "p_worst", "p_holm", "p_worst_holm"), float))
    effects = effects.rename(columns={"low": "difference_low", "high": "difference_high"})
    table = pd.concat([table, effects], axis=1)
    return Cells(table=table, frame=cells.frame, notes=lines + notes.verdicts(_for_notes(table)))


def against(mine: pd.DataFrame, other: pd.DataFrame, inside: pd.DataFrame) -> dict[str, Any]:
    """The paired difference of a cell (`mine`) to its baseline (`other`): `analysis.stats.paired`, with WORST.

    inside   those of the cell's episodes that are compared, broken ones too
    """
    *pair, seeds = paired_outcomes(mine, other, inside)
    found, worst = paired(*pair[:2], seeds), paired_worst(*pair, seeds)
    p_worst = None if found["p"] is None else worst["p"]
    n_broke, n_broke_base = (int(each.sum()) for each in pair[2:])
    return found | dict(zip(WORST, (worst["difference"], p_worst, n_broke, n_broke_base), strict=True))


def paired_outcomes(mine: pd.DataFrame, other: pd.DataFrame, inside: pd.DataFrame) -> tuple[Any, ...]:
    """The outcomes of the tasks that a cell and its baseline share, as `analysis.stats.paired_worst` takes them.

    Returns (values, baseline, broke, baseline_broke, seeds): arrays (tasks, seeds), and the seed of each column. Seeds
    that duplicate another one are left out.

    inside   those of the cell's episodes that are compared, broken ones too
    """
    both = [outcomes(cell) for cell in (inside, other)]
    unsures = [outcomes(cell.assign(unsure=unsure(cell)), "unsure") for cell in (inside, other)]
    values, baselines = both[0].align(both[1], join="inner")
    broke = [each.reindex_like(values).eq(True) for each in unsures]
    seeds = values.columns.get_level_values("seed")
    alone = seeds.isin(distinct_pairs(mine, other))
    return *(each.loc[:, alone].to_numpy() for each in (values, baselines, *broke)), seeds[alone]


def distinct_pairs(mine: pd.DataFrame, other: pd.DataFrame) -> list[Any]:
    """The seeds that both cells have, without those in which both duplicate the attempts of another seed."""
    first, second = (cell.drop_duplicates("seed").set_index("seed")["trace"] for cell in (mine, other))
    seeds = first.index.intersection(second.index)
    return list({(first[seed], second[seed]): seed for seed in reversed(seeds)}.values())


def _pairs(mine: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """The pairs of episodes of a cell and its baseline; `gain` is the difference of success."""
    keys = ["task_id", "visit", "seed"]
    pairs = mine[[*keys, "index", "task_type", "success"]].merge(
        other[[*keys, "success"]], on=keys, suffixes=("", "_base")
    )
    return pairs.assign(gain=pairs["success"] - pairs["success_base"])


def _over_types(mine: pd.DataFrame, other: pd.DataFrame) -> dict[str, Any]:
    """The paired difference, each type of task counting once, with an interval that allows for which types there are.

    {} where the tasks have one type.
    """
    by_type = grid(_pairs(mine, other), "task_type", "gain").dropna(how="all")
    if len(by_type) < 2:
        return {}
    about = spread(by_type.to_numpy())
    low, high = about.interval if about else (None, None)
    mean = float(by_type.mean().mean())
    return dict(zip(OVER_TYPES, (len(by_type), mean, low and max(low, -1.0), high and min(high, 1.0)), strict=True))


def _gain(mine: pd.DataFrame, other: pd.DataFrame) -> dict[str, float | None]:
    """How much larger the paired difference is late in the stream than early: the tasks' difficulty cancels out."""
    pairs = _pairs(mine, other)
    gain = late_minus_early(grid(pairs, "index", "gain").to_numpy()) if len(pairs) else {}
    return dict(zip(GAIN, gain.values(), strict=False))


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


def _plain(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def short(value: Any) -> str:
    """A value as written in a label or a command: 1.0 as "1", as pandas makes integers floats in a column with NaN."""
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def rows_of(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table as dictionaries, with None (unknown) in place of pandas' NaN."""
    rows = table.to_dict("records")
    return [{k: None if isinstance(v, float) and v != v else v for k, v in row.items()} for row in rows]


def _for_notes(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows with labels for use in notes: "LABEL on ENV, MODEL", naming env and model only if there are several."""
    where = [key for key in ("env", "model") if table[key].nunique() > 1]
    return [
        row | {"label": " on ".join([row["label"], *([", ".join(str(row[key]) for key in where)] if where else [])])}
        for row in rows_of(table)
    ]
