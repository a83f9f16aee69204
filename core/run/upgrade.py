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
from core.models.base import MORE
from prompts.registry import PROJECT

# Packages in which a class name means one class (a test holds that), and former names of classes.
OWN_PACKAGES = ("core", "envs", "workflows")
RENAMED = {"Life": "Consolidator"}
SINCE = {"strip_lessons": True, "scrub_episodes": False}
SINCE_OF_REFINING = {"keep_answer": False}  # of a workflow that refines
SINCE_OF_PART = {  # by class
    "Consolidator": {"keep_vectors": True},
    "Contradict": {"many": None, "often_used": 5, "against_many": "quarantine"},
    "Deduplicate": {"on_add": False},
    "Guard": {
        "provenance": False,
        "source": "task",
        "window": 30,
        "max_per_source": None,
        "burst": None,
        "opinion": None,
    },
    "Hybrid": {"threshold_on": "similarity"},
    "LLMAuthor": {"temperature": None},
    "LLMJudge": {"confidence": False},
    "LiteLLMModel": {"client": "litellm"},
    "MemoryBank": {"domain": None, "tags": None, "uses": None, "store": None},
    "OpenAIEmbedder": {"batch": 1},
    "Prune": {"delete_after_days": None},
    "ReActAgent": {"unread": "ask"},
    "Stream": {"mode": "in_order", "window": None, "split_by": None},
}
SINCE_OF_RETRIEVAL = {"min_confidence": None}


def named(config: Any) -> Any:
    """Nested dictionaries with each `_target_` shortened to the class name, so that modules may move.

    A class from outside this project keeps its whole path.
    """
    if not isinstance(config, dict):
        return [named(value) for value in config] if isinstance(config, list) else config
    found = {key: named(value) for key, value in config.items()}
    if isinstance(target := config.get("_target_"), str):
        own = target.partition(".")[0] in OWN_PACKAGES
        name = target.rpartition(".")[2] if own else target
        found["_target_"] = RENAMED.get(name, name)
    return found


def upgraded_manifest(manifest: dict[str, Any]) -> dict[str, Any]:
    """A manifest whose configuration names parts by their classes, see `named`, and is `completed`."""
    begun = manifest["fingerprint"]
    prompts = PROJECT.hashes() | begun["prompts"]
    fingerprint = begun | {"config": completed(named(begun["config"])), "prompts": prompts}
    return manifest | {"config": completed(manifest["config"]), "fingerprint": fingerprint}


def completed(config: dict[str, Any]) -> dict[str, Any]:
    """A run's configuration with the keys of `SINCE`, and of `SINCE_OF_PART` where it has such a part."""
    if "workflow" not in config:
        return config
    workflow = SINCE_OF_REFINING | config["workflow"] if "refine" in config["workflow"] else config["workflow"]
    roles = {name: dict.fromkeys(MORE) | role for name, role in config.get("roles", {}).items()}
    found = _parts_completed(config)
    models = {key: {"fallbacks": None} | node for key, node in found.items() if key in LLMS and node}
    return SINCE | found | {"workflow": workflow, "roles": roles} | models


def _parts_completed(config: dict[str, Any]) -> dict[str, Any]:
    found = {key: _parts_completed(value) if isinstance(value, dict) else value for key, value in config.items()}
    since = SINCE_OF_RETRIEVAL if "top_k" in config and "outcome" in config else {}  # a policy has both
    name = str(config.get("_target_")).rpartition(".")[2]
    return since | SINCE_OF_PART.get(RENAMED.get(name, name), {}) | found


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
