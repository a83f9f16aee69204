"""From episodes to the cells of a table: one row for each configuration, over its seeds. Never over unlike tasks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from core.errors import UserError
from core.run.scaling import pass_at_k
from results.cell_notes import other_settings, unfinished, unlike
from results.stats import confusion, holm, late_minus_early, paired, rate_interval

if TYPE_CHECKING:
    import pandas as pd

BLOCK = ("env", "model", "task_set")  # cells that may stand in one table and be compared
TELLING = tuple("k r top_k learn_from memory retrieval judge setting order agent llm workflow".split())
GAIN = ("gain", "gain_low", "gain_high")  # the difference to the baseline, late less early
SHARED = ("cell", "arm", *BLOCK, "n_tasks", *TELLING)


@dataclass(frozen=True, kw_only=True)
class Cells:
    """`table` has a row a cell; `frame` the episodes it was made from; `notes` what was left out, and why.

    A row that was compared holds its baseline's cell as `base`; p_holm is over all `p` of the table.
    """

    table: pd.DataFrame
    frame: pd.DataFrame
    notes: list[str] = field(default_factory=list)

    def episodes(self, cell: str) -> pd.DataFrame:
        """The episodes that count for a cell's numbers."""
        return self.frame[self.frame["cell"] == cell]


def make_cells(frame: pd.DataFrame, baseline: str | None = None, *, partial: bool = False) -> Cells:
    """Every cell of the episodes from `results.load.load_runs`, each compared with the baseline of its block.

    baseline   a label, an arm or a word of a label ("top_k=1"); a block without just one such cell is not compared
    partial    average runs that did not finish as well, marked in the column `partial`
    Raises UserError where no run has an episode.
    """
    import pandas as pd

    if (frame["index"] < 0).all():
        raise UserError("none of the runs has finished an episode yet.")
    used, notes = _chosen(frame)
    notes += unlike(used, BLOCK)
    counted = used if partial else used[used["complete"]]
    rows = []
    for cell, runs in used.groupby("cell", sort=False):
        waiting = runs[~runs["complete"]].drop_duplicates("run_dir")
        notes += [unfinished(run, runs, partial) for run in waiting.itertuples()]
        first = runs.iloc[0]
        facts = {name: first[name] for name in SHARED} | {
            "n_partial": len(waiting),
            "partial": partial and len(waiting) > 0,
        }
        rows.append(facts | measure(counted[counted["cell"] == cell]))
    table = pd.DataFrame(rows)
    table.insert(0, "label", _labels(table))
    found = Cells(table=table, frame=counted, notes=notes)
    return found if baseline is None else _compared(found, baseline)


def measure(episodes: pd.DataFrame) -> dict[str, Any]:
    """The numbers of one cell. Means are taken within a seed first; an infra_error is in no denominator."""
    episodes = episodes[episodes["index"] >= 0]
    valid = episodes[episodes["success"].notna()]
    won, lost = valid[valid["success"] == 1], valid[valid["success"] == 0]
    facts = {
        "n_seeds": valid["seed"].nunique(),
        "seeds": tuple(sorted(valid["seed"].unique().tolist())),
        "n": len(valid),
        "n_success": len(won),
        "n_infra_error": int((episodes["status"] == "infra_error").sum()),
        "label_source": "+".join(sorted(set(episodes["label_source"]) - {"none"})) or "none",
    }
    rate = rate_interval(grid(episodes).to_numpy()) if len(valid) else dict.fromkeys(("mean", "sd", "low", "high"))
    facts |= {"success": rate["mean"], "sd": rate["sd"], "low": rate["low"], "high": rate["high"]}
    facts |= {name: _seed_mean(valid, name) for name in ("reward", "steps")}
    facts |= {name: _spent(valid, name) for name in ("tokens", "cost")}
    facts |= {"steps_won": _seed_mean(won, "steps"), "steps_lost": _seed_mean(lost, "steps")}
    for name in ("tokens", "cost"):
        rounds = episodes.drop_duplicates("run_dir")[f"{name}_consolidation"]
        whole = episodes[name].sum(skipna=False) + rounds.sum(skipna=False)
        facts[f"{name}_per_success"] = _plain(whole / len(won)) if len(won) else None
    facts["lessons_per_100"] = 100 * episodes["n_lessons"].sum() / len(valid) if len(valid) else None
    facts["hit_rate"] = float((valid["n_retrieved"] > 0).mean()) if len(valid) else None
    late = late_minus_early(grid(episodes, "index").to_numpy()) if len(valid) else late_minus_early(np.empty((0, 1)))
    facts |= {"late_early": late["difference"], "late_early_low": late["low"], "late_early_high": late["high"]}
    facts["by_type"] = {str(kind): _seed_mean(group, "success") for kind, group in valid.groupby("task_type")}
    return facts | attempts(valid) | {f"judge_{name}": value for name, value in verdicts(valid).items()}


def attempts(valid: pd.DataFrame) -> dict[str, Any]:
    """Several attempts a task: avg@k, the unbiased pass@1..k over tasks with as many whole attempts, best of n."""
    whole = [[outcome for outcome in outcomes if outcome != "infra_error"] for outcomes in valid["attempts"]]
    n = max(map(len, whole), default=0)
    if n < 2:
        return {"n_attempts": n, "avg_at_k": None, "pass_at": None, "best_of_n": None}
    curve = []
    for k in range(1, n + 1):
        chances = [p for each in whole if (p := pass_at_k(len(each), each.count("success"), k)) is not None]
        curve.append(float(np.mean(chances)))
    average = float(np.mean([each.count("success") / len(each) for each in whole if each]))
    return {"n_attempts": n, "avg_at_k": average, "pass_at": tuple(curve), "best_of_n": _seed_mean(valid, "success")}


def verdicts(valid: pd.DataFrame) -> dict[str, Any]:
    """The judge against the truth, over every attempt that was judged and did not break."""
    episodes = zip(valid["attempts"], valid["verdicts"], strict=True)
    pairs = [pair for truths, labels in episodes for pair in zip(labels, truths, strict=True)]
    judged = [(label, truth) for label, truth in pairs if label is not None and truth != "infra_error"]
    return confusion((label == "success", truth == "success") for label, truth in judged)


def grid(episodes: pd.DataFrame, by: str = "task", value: str = "success") -> pd.DataFrame:
    """(tasks, or places of the stream with by="index") x seeds; NaN where nothing counts.

    Of a task that a seed met several times (`stream.passes`) the mean: it is one task still.
    """
    return episodes.groupby(["task_id" if by == "task" else by, "seed"])[value].mean().unstack("seed")


def outcomes(episodes: pd.DataFrame) -> pd.DataFrame:
    """Success of (tasks) x (seed, visit), one episode an entry; NaN where nothing counts."""
    return episodes.set_index(["task_id", "seed", "visit"])["success"].unstack(["seed", "visit"])


def _chosen(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """One run for each cell and seed: the one that got furthest, of several the last by name."""
    runs = frame.groupby("run_dir", sort=True).agg(
        cell=("cell", "first"), seed=("seed", "first"), done=("index", "max"), arm=("arm", "first")
    )
    runs = runs.reset_index().sort_values(["done", "run_dir"])
    last = runs.drop_duplicates(["cell", "seed"], keep="last")
    left = runs[~runs["run_dir"].isin(last["run_dir"])]
    notes = [f"{run.run_dir} is left out: another run of {run.arm}, seed {run.seed}." for run in left.itertuples()]
    return frame[frame["run_dir"].isin(last["run_dir"])], notes


def _labels(table: pd.DataFrame) -> list[str]:
    """The arm, and what tells cells of one arm apart."""
    labels = []
    for row in table.to_dict("records"):
        like = table[(table["arm"] == row["arm"]) & (table[list(BLOCK)] == [row[key] for key in BLOCK]).all(axis=1)]
        tells = [key for key in TELLING if like[key].astype(str).nunique() > 1]
        words = [row["arm"], *(f"{key}={short(row[key])}" for key in tells)]
        twins = like if not tells else like[(like[tells].astype(str) == [str(row[key]) for key in tells]).all(axis=1)]
        labels.append(" ".join([*words, *([f"#{row['cell'][:4]}"] if len(twins) > 1 else [])]))
    return labels


def _compared(cells: Cells, baseline: str) -> Cells:
    """The cells with the paired difference to their block's baseline, and Holm's p over the table."""
    rows, notes = [], list(cells.notes)
    table = cells.table
    bases = {}
    for block, group in table.groupby(list(BLOCK), sort=False):
        words = [baseline in label.split() for label in group["label"]]
        ways = (group["label"] == baseline, group["arm"] == baseline, words)
        named = next((found for way in ways if len(found := group[way])), group[:0])
        bases[block] = named.iloc[0]["cell"] if len(named) == 1 and named.iloc[0]["n"] else None
        if bases[block] is None and len(group) > 1:
            why = "no finished run of the baseline" if len(named) < 2 else f"{len(named)} cells are the baseline"
            notes.append(f"{block[0]}, {block[1]}: {why} {baseline}, so nothing is compared.")
    for row in table.to_dict("records"):
        base = bases[tuple(row[key] for key in BLOCK)]
        rows.append({"base": base})
        if base is None or base == row["cell"] or not row["n"]:
            continue
        mine, other = cells.episodes(row["cell"]), cells.episodes(base)
        values, baselines = outcomes(mine).align(outcomes(other), join="inner")
        seeds = values.columns.get_level_values("seed")
        rows[-1] |= paired(values.to_numpy(), baselines.to_numpy(), seeds) | _gain(mine, other)
        notes += other_settings(row["label"], mine, other)
    import pandas as pd

    names = ["base", "n_pairs", "n_paired_seeds", "won", "lost", "difference", "low", "high", "p", "p_seeds", *GAIN]
    found = pd.DataFrame(rows, columns=names)
    found = found.rename(columns={"low": "difference_low", "high": "difference_high"})
    found["p_holm"] = holm([None if pd.isna(p) else p for p in found["p"]])
    return Cells(table=pd.concat([table, found], axis=1), frame=cells.frame, notes=notes)


def _gain(mine: pd.DataFrame, other: pd.DataFrame) -> dict[str, float | None]:
    """How much larger the difference is late in the stream than early: tasks of unlike hardness cancel out."""
    keys = ["task_id", "visit", "seed"]
    pairs = mine[[*keys, "index", "success"]].merge(other[[*keys, "success"]], on=keys, suffixes=("", "_base"))
    pairs["gain"] = pairs["success"] - pairs["success_base"]
    found = late_minus_early(grid(pairs, "index", "gain").to_numpy()) if len(pairs) else {}
    return dict(zip(GAIN, found.values(), strict=False))


def _seed_mean(episodes: pd.DataFrame, column: str) -> float | None:
    """The mean over seeds of the means within; None of nothing, and of a cost that is unknown somewhere."""
    if not len(episodes) or episodes[column].isna().any():
        return None
    return float(episodes.groupby("seed")[column].mean().mean())


def _spent(episodes: pd.DataFrame, column: str) -> float | None:
    """The mean of an episode with its share of what the bank's own work cost in its run, over seeds as `_seed_mean`."""
    own = _seed_mean(episodes, column)
    if own is None:
        return None
    shares = episodes.groupby("seed")[f"{column}_consolidation"].agg(lambda rounds: rounds.iloc[0] / len(rounds))
    return None if shares.isna().any() else own + float(shares.mean())


def _plain(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def short(value: Any) -> str:
    """A value as it stands in a label and in a command: pandas turns whole numbers into 1.0 beside an unknown one."""
    return "-" if value is None or value != value else f"{value:g}" if isinstance(value, float) else str(value)
