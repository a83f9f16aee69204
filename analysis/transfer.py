"""experiment=transfer: how much of the gain of a model's own bank another bank keeps.

The gain of a bank is its paired difference to no_memory. "of own gain" is the ratio (bank - no_memory) / (own -
no_memory), with Fieller's interval (1954): all ratios r for which the 95 % interval of `analysis.stats.paired` of
(bank - no_memory) - r (own - no_memory), on the tasks and seeds that all three have, holds 0. It is not known where the
interval of the own gain holds 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.cells import BLOCK, Cells, make_cells, rows_of
from analysis.columns import HEADINGS
from analysis.matrix import print_table_of
from analysis.measure import outcomes
from analysis.runs import read_run
from analysis.stats import paired
from analysis.tables import whole_name
from analysis.text_table import TextTable
from core.errors import UserError
from core.memory.open import read_records
from core.run.files import MANIFEST, read_file

if TYPE_CHECKING:
    import pandas as pd

    from core.console import Console

OWN = "own"  # the name of a model's own bank
COLUMNS = ("method", "seeds", "n", "infra_errors", "labels", "success", "difference", "n_pairs", "p", "p_holm")
HEADING = "of own gain % [95 %]"
NOT_KNOWN = "not known"
FARTHEST = 100.0  # a ratio beyond it is no bound


def build_transfer(
    frame: pd.DataFrame,
    *,
    baseline: str | None = None,
    partial: bool = False,
    every_published: bool = False,
    command: str = "",
) -> tuple[Cells, list[TextTable]]:
    """The cells of the runs, and a table a block with the column "of own gain". Arguments as in `build_tables`."""
    base = baseline or "no_memory"
    cells = make_cells(frame, base, partial=partial, command=command)
    texts = []
    for block, rows in cells.table.groupby(list(BLOCK), sort=False):
        each = rows_of(rows)
        own = next((row for row in each if row["bank"] == OWN and row.get("base")), None)
        columns = [HEADINGS[name] for name in COLUMNS if name in each[0] or name in ("method", "success", "seeds")]
        texts.append(
            TextTable(
                title=f"Banks of others: {whole_name(each[0])}, {block[1]}, {each[0]['n_tasks']} tasks",
                head=[*(heading for heading, _ in columns), HEADING],
                rows=[[*(write(row) for _, write in columns), _kept(cells, row, own)] for row in each],
                notes=[*_legend(own, base), *_made_with(cells.frame, each)],
            )
        )
    texts[-1].notes.extend(cells.notes)
    return cells, texts


def print_transfer(folder: Path, console: Console) -> None:
    """Print the table of a sweep's folder, as at its end."""
    print_table_of(folder, console, build_transfer, "--table", "transfer")


def of_own_gain(
    bank: np.ndarray, own: np.ndarray, base: np.ndarray, seeds: list[Any] | None = None
) -> dict[str, float | None]:
    """{ratio, low, high}: the share of the own gain that a bank keeps; all None where it is not known.

    bank, own, base   success with the bank, with the own bank and without, each (tasks, columns), NaN where an episode
                      does not count
    seeds             of the columns, as in `paired`

    low or high is None where the interval has no bound on that side.
    """
    unknown = np.isnan(bank) | np.isnan(own) | np.isnan(base)
    bank, own, base = (np.where(unknown, np.nan, each) for each in (bank, own, base))
    gain, kept = paired(own, base, seeds), paired(bank, base, seeds)
    if gain["difference"] is None or gain["low"] <= 0 <= gain["high"]:
        return dict.fromkeys(("ratio", "low", "high"))
    ratio = kept["difference"] / gain["difference"]

    def holds(value: float) -> bool:
        found = paired(bank - base, value * (own - base), seeds)
        return found["low"] <= 0 <= found["high"]

    return {"ratio": ratio, "low": _end(holds, ratio, -1), "high": _end(holds, ratio, 1)}


def _end(holds: Callable[[float], bool], start: float, sign: int) -> float | None:
    """The end of the interval around `start` on one side, by bisection; None: it goes beyond FARTHEST."""
    inside, step = start, 0.01
    while holds(start + sign * step):
        inside, step = start + sign * step, 2 * step
        if step > FARTHEST:
            return None
    outside = start + sign * step
    for _ in range(30):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if holds(middle) else (inside, middle)
    return inside


def _kept(cells: Cells, row: dict[str, Any], own: dict[str, Any] | None) -> str:
    """The column of a cell."""
    if own is None or not row["bank"] or not row.get("base") or row.get("difference") is None:
        return "-"
    grids = [outcomes(cells.episodes(cell)) for cell in (row["cell"], own["cell"], row["base"])]
    tasks = sorted(set.intersection(*(set(each.index) for each in grids)))
    columns = sorted(set.intersection(*(set(each.columns) for each in grids)))
    values = [each.loc[tasks, columns].to_numpy(float) for each in grids]
    found = of_own_gain(*values, [seed for seed, _ in columns])
    if found["ratio"] is None:
        return NOT_KNOWN
    if row["cell"] == own["cell"]:
        return "100"
    low, high = ("no bound" if found[end] is None else f"{100 * found[end]:.0f}" for end in ("low", "high"))
    return f"{100 * found['ratio']:.0f} [{low}, {high}]"


def _legend(own: dict[str, Any] | None, base: str) -> list[str]:
    if own is None:
        return [f"of own gain: no bank is named {OWN}, or there is no {base}; banks='{{{OWN}: PATH, ...}}' names it."]
    return [
        f"of own gain: (bank - {base}) / ({OWN} - {base}) on the tasks and seeds that all three have, with Fieller's "
        f"interval; {NOT_KNOWN}: the interval of {OWN}'s difference holds 0."
    ]


def _made_with(frame: pd.DataFrame, rows: list[dict[str, Any]]) -> Iterator[str]:
    """A line for each bank whose lessons another extractor wrote, or other prompts, than this run would use."""
    for row in rows:
        for path in sorted(frame[frame["cell"] == row["cell"]]["run_dir"].unique()) if row["bank"] else ():
            if lines := list(differences_of(path)):
                yield f"bank={row['bank']}: {'; '.join(lines)}."
                break


def differences_of(run_dir: str | Path) -> Iterator[str]:
    """How the bank that a run was given was made otherwise than the run's own lessons would be."""
    run = read_run(run_dir, episodes=False)
    bank = run.memory["path"]
    records = read_records(bank, run.memory.get("namespace") or "default")
    here = run.manifest["models"]["extractor"]["model"]
    made = {record.provenance.get("models", {}).get("extractor") for record in records}
    if others := sorted(filter(None, made - {here})):
        yield f"its lessons were written by {', '.join(others)}, here {here} would write them"
    if None in made:
        yield "the model that wrote its lessons is not noted in it" if len(made) == 1 else "of some it is not noted"
    folders = (Path(bank).parent, Path(bank).with_suffix(".run"))
    try:
        maker = next(filter(None, (read_file(folder, MANIFEST) for folder in folders)), None)
    except UserError as error:
        yield f"what it was made with cannot be read ({error})"
        return
    if maker is None or not any(record.provenance.get("run") == maker["run"] for record in records):
        return
    theirs, ours = maker["fingerprint"]["prompts"], run.manifest["fingerprint"]["prompts"]
    if other := sorted(name for name in theirs.keys() & ours.keys() if theirs[name] != ours[name]):
        yield f"it was made with other prompts ({', '.join(other)})"
