"""What a reader must know beside the numbers of a table's cells: what is missing, and what is not alike."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

NAMED = 6  # configuration keys in a note


def unlike(used: pd.DataFrame, block: Sequence[str]) -> list[str]:
    """What a reader would take for the same and is not: the code, and the data that one seed's runs met."""
    runs = used.drop_duplicates("run_dir")
    codes = sorted(set(runs["code"]))
    notes = [f"the runs were made by {len(codes)} versions of the code: {', '.join(codes)}."] if len(codes) > 1 else []
    for (env, *_), group in runs.groupby([*block, "seed"], sort=False):
        if group["data"].nunique() > 1:
            notes.append(f"{env}: the data of these tasks is not the same in {', '.join(sorted(set(group['arm'])))}.")
    return list(dict.fromkeys(notes))


def unfinished(run: Any, runs: pd.DataFrame, partial: bool) -> str:
    """What became of a run that did not finish."""
    done = int(runs[runs["run_dir"] == run.run_dir]["index"].max()) + 1
    fate = "counted as far as it goes" if partial else "left out"
    return f"{run.run_dir} stopped after {done} of {run.n_tasks} tasks: {fate}."


def other_settings(label: str, mine: pd.DataFrame, other: pd.DataFrame) -> list[str]:
    """A note where a cell and its baseline differ in more than what makes an arm."""
    texts = mine["settings"].iloc[0], other["settings"].iloc[0]
    if texts[0] == texts[1]:
        return []
    ours, theirs = map(json.loads, texts)
    keys = sorted(key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key))
    told = [f"{key} {ours.get(key, '–')}, baseline {theirs.get(key, '–')}" for key in keys[:NAMED]]
    more = f"; and {len(keys) - NAMED} more" if len(keys) > NAMED else ""
    return [f"{label} differs from its baseline beside the arm: {'; '.join(told)}{more}."]
