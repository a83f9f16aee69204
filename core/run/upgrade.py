"""The forms of a run's records: by them those of earlier versions are known. Files are never changed."""

from __future__ import annotations

from typing import Any

from core.errors import UserError

OWN_PACKAGES = ("core", "envs", "workflows")  # class names are unique in them (a test checks that)
OLDEST = 2  # schema of a row of episodes.jsonl that can be read: that of version 0.1.0, and today's


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


def check_schema(row: dict[str, Any]) -> None:
    """Raise UserError for a row of episodes.jsonl whose schema is older than OLDEST."""
    schema = row.get("schema")  # its type is checked with those of all other keys
    if isinstance(schema, int) and schema < OLDEST:
        raise UserError(
            f"an episode of schema {schema}, of before the first release: this version reads from {OLDEST}."
        )


def with_derived_keys(trajectory: dict[str, Any]) -> dict[str, Any]:
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
