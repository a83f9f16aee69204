"""Bring records of earlier versions to the current form when they are read. Files are never changed.

Each line of episodes.jsonl has a schema number. STEPS[i] converts a row from schema OLDEST + i to the next; to change
the form of a row, raise SCHEMA and add a step. OLDEST is the schema of version 0.1.0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from core.errors import UserError

OWN_PACKAGES = ("core", "envs", "workflows")  # class names are unique in them (a test checks that)
SCHEMA, OLDEST = 2, 2  # current schema of a row, and the oldest that can be read
STEPS: tuple[Callable[[dict[str, Any]], dict[str, Any]], ...] = ()


def by_class(config: Any) -> Any:
    """Nested dictionaries with each `_target_` shortened to the class name, so that classes can move between modules.

    A class from outside this project keeps its full path.
    """
    if not isinstance(config, dict):
        return [by_class(value) for value in config] if isinstance(config, list) else config
    found = {key: by_class(value) for key, value in config.items()}
    if isinstance(target := config.get("_target_"), str) and target.partition(".")[0] in OWN_PACKAGES:
        found["_target_"] = target.rpartition(".")[2]
    return found


def upgraded_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row of episodes.jsonl in the current schema. The row itself may be changed.

    Raises UserError for a schema older than OLDEST.
    """
    if not isinstance(schema := row.get("schema"), int):
        return row  # its type is checked with those of all other keys
    if schema < OLDEST:
        raise UserError(
            f"an episode of schema {schema}, of before the first release: this version reads from {OLDEST}."
        )
    for step in STEPS[schema - OLDEST :]:
        row = step(row)
    return row


def placed(trajectory: dict[str, Any]) -> dict[str, Any]:
    """Give the steps of an attempt `step_num`, from 1, and `status`: ongoing | success | failure. Returns the attempt.

    Both are derived. Only the last step of an attempt without an infra error is not `ongoing`.
    """
    for number, step in enumerate(trajectory["steps"], 1):
        step["step_num"], step["status"] = number, "ongoing"
    if trajectory["steps"] and trajectory["ended_by"] != "infra_error":
        trajectory["steps"][-1]["status"] = "success" if trajectory["success"] else "failure"
    if not trajectory.get("recalled", True):
        del trajectory["recalled"]
    return trajectory
