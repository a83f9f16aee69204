"""How often the runs of a sweep were looked at, and how many of its arms a table leaves out.

Each look at a growing sweep, and each choice of some of its arms, is one more chance to find a difference that is none:
the p of a table knows of the comparisons in this table alone. So a sweep's folder counts the tables and reports that
were made of it, in its file `.looks`: a line a look, which is an id of the episodes that were seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.answer import FILE, stored
from analysis.runs import read_run
from core.errors import UserError
from core.run.folders import is_sweep
from core.types import content_id

if TYPE_CHECKING:
    import pandas as pd

LOOKS = ".looks"


def look(paths: Iterable[str | Path], frame: pd.DataFrame) -> list[str]:
    """Count a table or a report in each sweep that it shows runs of; a line for each says what its reader should know.

    paths   folders that were asked for
    frame   the episodes that are shown
    """
    runs = frame.drop_duplicates("run_dir")
    owners = {Path(run).parent.resolve() for run in runs["run_dir"] if (Path(run).parent / "multirun.yaml").is_file()}
    return [_line(folder, frame) for folder in sorted(owners | {Path(p).resolve() for p in paths if is_sweep(Path(p))})]


def _line(folder: Path, frame: pd.DataFrame) -> str:
    own = [run for run in frame["run_dir"].unique() if Path(run).resolve().parent == folder]
    inside = frame[frame["run_dir"].isin(own)]
    shown, state = inside.groupby("run_dir"), content_id(sorted(map(str, inside.groupby("run_dir").size().items())))
    others = _cells(folder, {Path(run).name for run, _ in shown}, set(inside["task_set"]))
    here = inside["cell"].nunique()
    arms = f"{len(others | set(inside['cell']))} arms on these tasks, of which {here} are shown here"
    if stored(folder) is not None:
        return (
            f"{folder.name} holds a verdict ({FILE}), whose p and interval allow for a look after each seed; those of "
            f"this table do not. It has {arms}; {_looked(folder, state)}."
        )
    return (
        f"{folder.name} holds {arms}; {_looked(folder, state)}. p is corrected for the comparisons of this table "
        "alone, not for arms that it leaves out, nor for looking again while a sweep grows."
    )


def _cells(folder: Path, shown: set[str], task_sets: set[str]) -> set[str]:
    """The cells (configurations, whatever their seed) with these tasks in a folder, of runs that are not shown."""
    cells = set()
    for manifest in folder.glob("*/manifest.json"):
        with suppress(UserError):  # a damaged run that the table does not show is no arm of it
            run = None if manifest.parent.name in shown else read_run(manifest.parent, episodes=False)
            cells |= {run.cell} if run and run.task_set in task_sets else set()
    return cells


def _looked(folder: Path, state: str) -> str:
    """Count a look at this state of the runs; says how many there were."""
    file = folder / LOOKS
    try:
        with file.open("a", encoding="utf-8", newline="\n") as lines:  # a line at once: another process may look too
            lines.write(f"{state}\n")
        seen = file.read_text(encoding="utf-8", errors="replace").split()
    except OSError as error:
        return f"how often it was looked at is not counted ({error.strerror})"
    times, n = "once" if len(seen) == 1 else f"{len(seen)} times", len(set(seen))
    states = "one state" if n == 1 else f"{n} states"
    return f"a table or report of it was made {times}, from {states} of its runs"
