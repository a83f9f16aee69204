"""Records of earlier versions, read in the present form. The files themselves are never changed.

Schema 1: parts were named by their modules; `verdicts` and `selection` stood in an episode only where it had several
attempts; the answer's `record` stood beside `other_records`; `errors` were learning errors; an attempt that broke ended
by `error`; `aside` was a step's `hint_chars`.

Keys that a manifest does not know have the value that runs of its time behaved by (`completed`). A template that has
come since was used by none of them, so a run is the same with it.
"""

from __future__ import annotations

from typing import Any

from core.build import LLMS
from core.run.keys import values_before
from prompts.registry import PROJECT

# Packages in which a class name means one class (a test holds that), and former names of classes.
OWN_PACKAGES = ("core", "envs", "workflows")
RENAMED = {"Life": "Consolidator"}


def by_class(config: Any) -> Any:
    """Nested dictionaries with each `_target_` shortened to the class name, so that modules may move.

    A class from outside this project keeps its whole path.
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
    """A manifest whose configuration names parts by their classes, see `by_class`, and is `completed`."""
    begun = manifest["fingerprint"]
    prompts = PROJECT.hashes() | begun["prompts"]
    fingerprint = begun | {"config": completed(by_class(begun["config"])), "prompts": prompts}
    return manifest | {"config": completed(manifest["config"]), "fingerprint": fingerprint}


def completed(config: dict[str, Any]) -> dict[str, Any]:
    """A run's configuration with the keys that have come since, of all its parts too (core/run/keys.py)."""
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
    of_policy = values_before("policy") if "top_k" in config and "outcome" in config else {}  # a policy has both
    return of_policy | values_before(RENAMED.get(name, name)) | whole


def upgraded_row(row: dict[str, Any]) -> dict[str, Any]:
    """A line of episodes.jsonl in schema 2, the steps of its attempts with their places."""
    row = _row_of_2(row)
    return row | {"trajectories": [placed(trajectory) for trajectory in row["trajectories"]]}


def placed(trajectory: dict[str, Any]) -> dict[str, Any]:
    """An attempt whose steps have `step_num`, from 1, and `status`: ongoing | success | failure.

    They follow from the rest. Only the last step of an attempt that came to its end is not ongoing.
    """
    last = len(trajectory["steps"]) if trajectory["ended_by"] != "infra_error" else 0
    end = "success" if trajectory["success"] else "failure"
    steps = enumerate(trajectory["steps"], 1)
    return trajectory | {
        "steps": [step | {"step_num": n, "status": end if n == last else "ongoing"} for n, step in steps]
    }


def unplaced(trajectory: dict[str, Any]) -> dict[str, Any]:
    """An attempt without what `placed` adds: the fields of a Step alone."""
    return trajectory | {"steps": [{k: v for k, v in s.items() if k not in _PLACE} for s in trajectory["steps"]]}


_PLACE = ("step_num", "status")


def _row_of_2(row: dict[str, Any]) -> dict[str, Any]:
    if row.get("schema") != 1:
        return row
    row = dict(row)
    records = (row.pop("record"), *row.pop("other_records", ()))
    return row | {
        "trajectories": [upgraded_trajectory(trajectory) for trajectory in row["trajectories"]],
        "verdicts": row.get("verdicts") or [row["verdict"]],
        "selection": row.get("selection"),
        "learning_errors": row.pop("errors"),
        "records": [record for record in records if record],
        "schema": 2,
    }


def upgraded_trajectory(trajectory: dict[str, Any]) -> dict[str, Any]:
    """An attempt in schema 2; one that is in schema 2 already stays as it is."""
    steps = [
        {"hint_chars" if key == "aside" else key: value for key, value in step.items()} for step in trajectory["steps"]
    ]
    ended_by = "infra_error" if trajectory["ended_by"] == "error" else trajectory["ended_by"]
    return trajectory | {"steps": steps, "ended_by": ended_by}
