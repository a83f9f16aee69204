"""A run grows: made with `limit=8`, the same command with `limit=12` runs four tasks more, and is the same in the end.

Its order is that of the larger run, whose first tasks it has done. What came at its end only because it ended there
would stand elsewhere, and is refused; the lessons of an incomplete last batch, which the batch's other tasks must not
see, are taken back (`rewind`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from core.errors import UserError


def check_growth(
    path: Path, before: dict[str, Any], now: dict[str, Any], task_ids: Sequence[str], rows: list[dict]
) -> int:
    """How many tasks the run had. Raises UserError where it would not be what the larger run had been.

    before     its manifest
    now        the fingerprint of the larger run
    task_ids   of the larger run
    rows       its episodes
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
    """Remove the run's bank, which is then made again from the episodes, where it knows what it must not know yet.

    taken_back   the rows of an incomplete last batch, whose other tasks are yet to come
    bank         its file; None where it belongs to others too
    summary      summary.json

    Raises UserError where the bank cannot be made again, or not without paying for it.
    """
    if not any(row["records"] or row["retrieved"] for row in taken_back):
        return
    last = f"run_dir={path} cannot grow: its last batch was incomplete, and what its {len(taken_back)} tasks taught"
    if bank is None:
        raise UserError(f"{last} is in memory.path, which is not this run's alone; give its limit, or another run_dir.")
    if summary is None or (summary["consolidation"] or {}).get("tokens"):
        raise UserError(f"{last} went into rounds that asked a model, which would be paid again; give another run_dir.")
    for file in bank.parent.glob(f"{bank.name}*"):
        file.unlink()


def _word(config: dict[str, Any]) -> str:
    return "null" if config.get("limit") is None else str(config["limit"])
