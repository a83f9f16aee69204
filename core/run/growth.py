"""Continue a run with a larger `limit`: after `limit=8`, `limit=12` runs four more tasks, as if begun with 12.

The smaller run's tasks are the first ones of the larger run. Growth is refused if the larger run would have ordered its
episodes differently, e.g. retries at the end, or would have learned from them at other moments (`stream.batch`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from core.errors import UserError


def check_growth(
    path: Path, before: dict[str, Any], now: dict[str, Any], task_ids: Sequence[str], rows: list[dict]
) -> None:
    """Raise UserError if a smaller run cannot become a larger one.

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
        return
    stream = now["config"].get("stream", {})
    if (batch := stream.get("batch", 1)) > 1:
        why = f"with stream.batch={batch} the new tasks may belong to its last batch"
    elif (passes := stream.get("passes", 1)) > 1:
        why = f"with stream.passes={passes} the new tasks belong before the second pass"
    elif any("retries" in row for row in rows):
        why = "tasks that broke were tried again at its end, after which the new tasks would come"
    elif new[: len(old)] != old:
        why = "its tasks are not the first of the larger run"
    else:
        return
    raise UserError(f"{limits}: run_dir={path} cannot grow, because {why}; {end}")


def _word(config: dict[str, Any]) -> str:
    return "null" if config.get("limit") is None else str(config["limit"])
