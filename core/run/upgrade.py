"""Convert records of earlier versions to the current form when they are read. Files are never changed.

Each line of episodes.jsonl has a schema number. STEPS[i] converts a row from schema OLDEST + i to the next; to change
the form of a row, raise SCHEMA and add a step.

Keys that an old manifest lacks get the value that matches the behaviour of that time (`completed`). Templates that an
old manifest lacks get their current hash: no run of that time used them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from core.build import LLMS
from core.errors import UserError
from core.run.keys import lasting, values_before
from prompts.registry import PROJECT

# Packages in which class names are unique (a test checks that), and {former class name: current one}.
OWN_PACKAGES = ("core", "envs", "workflows")
RENAMED = {"Life": "Consolidator"}


def by_class(config: Any) -> Any:
    """Nested dictionaries with each `_target_` shortened to the class name, so that classes can move between modules.

    A class from outside this project keeps its full path.
    """
    if not isinstance(config, dict):
        return [by_class(value) for value in config] if isinstance(config, list) else config
    found = {key: by_class(value) for key, value in config.items()}
    if isinstance(target := config.get("_target_"), str):
        own = target.partition(".")[0] in OWN_PACKAGES
        name = target.rpartition(".")[2] if own else target
        found["_target_"] = RENAMED.get(name, name)
    return found


def upgraded_manifest(manifest: dict[str, Any]) -> dict[str, Any]:
    """A manifest in the current form: its configurations are `completed`, its fingerprint's also `by_class`."""
    begun = manifest["fingerprint"]
    prompts = PROJECT.hashes() | begun["prompts"]
    fingerprint = begun | {"config": upgraded_identity(begun["config"]), "prompts": prompts}
    return manifest | {"config": completed(manifest["config"]), "fingerprint": fingerprint}


def upgraded_identity(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration of a fingerprint in the current form; keys that may have another value by now are left out."""
    return completed(by_class(lasting(config)))


def completed(config: dict[str, Any]) -> dict[str, Any]:
    """A run's configuration with the keys added since, also those of its parts (`before` in core/run/keys.py)."""
    if "workflow" not in config:
        return config
    workflow = config["workflow"]
    workflow = values_before("refining") | workflow if "refine" in workflow else workflow
    roles = {name: values_before("role") | role for name, role in config.get("roles", {}).items()}
    whole = _parts_completed(config)
    models = {key: values_before("chat model") | node for key, node in whole.items() if key in LLMS and node}
    return values_before() | whole | {"workflow": workflow, "roles": roles} | models


def _parts_completed(config: dict[str, Any]) -> dict[str, Any]:
    whole = {key: _parts_completed(value) if isinstance(value, dict) else value for key, value in config.items()}
    name = str(config.get("_target_")).rpartition(".")[2]
    of_policy = (
        values_before("policy") if "top_k" in config and "outcome" in config else {}
    )  # only policies have both keys
    return of_policy | values_before(RENAMED.get(name, name)) | whole


SCHEMA, OLDEST = 2, 2  # current schema of a row, and the oldest that can be read
STEPS: tuple[Callable[[dict[str, Any]], dict[str, Any]], ...] = ()


def upgraded_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row of episodes.jsonl in the current schema, its attempts `placed`. The row itself may be changed.

    Raises UserError for a schema older than OLDEST.
    """
    if (schema := row.get("schema", SCHEMA)) < OLDEST:
        raise UserError(
            f"an episode of schema {schema}, of before the first release: this version reads from {OLDEST}."
        )
    for step in STEPS[schema - OLDEST :]:
        row = step(row)
    for trajectory in row["trajectories"]:
        placed(trajectory)
    return row


def placed(trajectory: dict[str, Any]) -> dict[str, Any]:
    """Give the steps of an attempt `step_num`, from 1, and `status`: ongoing | success | failure. Returns the attempt.

    Both are derived. Only the last step of an attempt without an infra error is not `ongoing`.
    """
    for number, step in enumerate(trajectory["steps"], 1):
        step["step_num"], step["status"] = number, "ongoing"
    if trajectory["steps"] and trajectory["ended_by"] != "infra_error":
        trajectory["steps"][-1]["status"] = "success" if trajectory["success"] else "failure"
    return trajectory


def unplaced(trajectory: dict[str, Any]) -> dict[str, Any]:
    """An attempt without the keys that `placed` adds, so that its steps have only the fields of Step."""
    return trajectory | {"steps": [{k: v for k, v in s.items() if k not in _PLACE} for s in trajectory["steps"]]}


_PLACE = ("step_num", "status")
