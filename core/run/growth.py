"""Continue a run with a larger `limit`: after `limit=8`, `limit=12` runs four more tasks, as if begun with 12.

The smaller run's tasks are the first ones of the larger run. Growth is refused if the larger run would have ordered its
episodes differently, e.g. retries at the end. If the last batch was incomplete, the bank is rebuilt without the lessons
of that batch, because its other tasks must not retrieve them (`rewind`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from core.errors import UserError


def check_growth(
    path: Path, before: dict[str, Any], now: dict[str, Any], task_ids: Sequence[str], rows: list[dict]
) -> int:
    """The number of tasks of the smaller run. Raises UserError if it cannot become the larger run.

    before     manifest of the smaller run
    now        fingerprint of the larger run
    task_ids   task ids of the larger run
    rows       episodes of the smaller run
    """
    old, new = before["task_ids"], list(task_ids)
    limits = f"limit={_word(before['fingerprint']['config'])} -> {_word(now['config'])}"
    end = "give its limit, or another run_dir."
    if len(new) < len(old):
        raise UserError(f"{limits}: run_dir={path} has {len(old)} tasks, and a run only grows; {end}")
    if new == old:
        return len(old)
    passes = now["config"].get("stream", {}).get("passes", 1)
    if passes > 1:
        why = f"with stream.passes={passes} the new tasks belong before the second pass"
    elif any("place" in row for row in rows):
        why = "with stream.mode=async its last tasks had fewer beside them than they would have had"
    elif any("retries" in row for row in rows):
        why = "tasks that broke were tried again at its end, after which the new tasks would come"
    elif new[: len(old)] != old:
        why = "its tasks are not the first of the larger run"
    else:
        return len(old)
    raise UserError(f"{limits}: run_dir={path} cannot grow, because {why}; {end}")


def rewind(path: Path, taken_back: list[dict], bank: Path | None, summary: dict[str, Any] | None) -> None:
    """Delete the run's bank if it holds lessons of an incomplete batch; `restore` then rebuilds it from the episodes.

    taken_back   rows of the incomplete last batch, whose other tasks have not run yet
    bank         the bank's file; None if other runs use it too
    summary      content of summary.json

    Raises UserError if the bank cannot be rebuilt, or only with paid calls.
    """
    if not any(row["records"] or row["retrieved"] for row in taken_back):
        return
    last = f"run_dir={path} cannot grow: its last batch was incomplete, and what its {len(taken_back)} tasks taught"
    if bank is None:
        raise UserError(f"{last} is in memory.path, which is not this run's alone; give its limit, or another run_dir.")
    if summary is None or (summary.get("consolidation") or {}).get("tokens"):
        raise UserError(f"{last} went into rounds that asked a model, which would be paid again; give another run_dir.")
    for file in bank.parent.glob(f"{bank.name}*"):
        file.unlink()


def _word(config: dict[str, Any]) -> str:
    return "null" if config.get("limit") is None else str(config["limit"])
