"""A run as an Inspect log (.eval, version 2), for `inspect view`: a zip of JSON, as inspect_ai 0.3 writes it.

Written here, without inspect_ai, which wants an older fsspec than the pinned one. Read back by inspect_ai 0.3.285.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

from core.models.reply_text import storable
from results.load import Run

NO_TIME = "1970-01-01T00:00:00+00:00"  # an episode's line holds no clock time
STOP = {"length": "max_tokens"}


def write_eval(run: Run, path: Path) -> None:
    """Write the log. Each attempt of an episode is an epoch of its sample; those that broke have no score."""
    samples = [sample(row, attempt, run) for row in run.rows for attempt in row["trajectories"]]
    start = {
        "version": 2,
        "eval": spec(run),
        "plan": {"name": run.choices.get("workflow") or "plan", "steps": [], "config": {}},
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:

        def put(name: str, value: Any) -> None:
            entry = zipfile.ZipInfo(name)  # its fixed date keeps the file the same from one export to the next
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, storable(json.dumps(value, ensure_ascii=False)))

        put("_journal/start.json", start)
        for each in samples:
            put(f"samples/{each['id']}_epoch_{each['epoch']}.json", each)
        put("summaries.json", [summary(each) for each in samples])
        put("header.json", start | {"status": "success" if run.complete else "cancelled", **results(run)})


def spec(run: Run) -> dict[str, Any]:
    """What was run."""
    dataset = run.manifest["fingerprint"]["dataset"]
    arm = run.arm or "run"
    return {
        "eval_id": run.manifest["run"],
        "run_id": run.manifest["run"],
        "created": NO_TIME,
        "task": f"{run.choices.get('env') or 'env'}-{arm}",
        "task_id": run.cell,
        "task_version": 0,
        "dataset": {"name": str(dataset.get("dataset", "")), "samples": run.n_tasks},
        "model": run.manifest["models"]["agent"]["model"],
        "config": {"epochs": max((len(row["trajectories"]) for row in run.rows), default=1)},
        "packages": run.manifest.get("packages", {}),
        "metadata": {"config": run.config, "git": run.manifest.get("git"), "arm": arm},
    }


def sample(row: dict[str, Any], attempt: dict[str, Any], run: Run) -> dict[str, Any]:
    """One attempt."""
    messages = [{"id": f"{attempt['id']}-{n}", **message} for n, message in enumerate(conversation(attempt))]
    read, written = attempt["usage"]["prompt_tokens"], attempt["usage"]["completion_tokens"]
    last = attempt["steps"][-1] if attempt["steps"] else None
    broken = attempt["ended_by"] == "infra_error"
    choice = {
        "message": {"id": f"{attempt['id']}-out", "role": "assistant", "content": last["text"] if last else ""},
        "stop_reason": STOP.get(last["finish_reason"], "stop") if last else "unknown",
    }
    score = {"value": "C" if attempt["success"] else "I", "answer": attempt["answer"] or "", "history": []}
    model = run.manifest["models"]["agent"]["model"]
    again = f"_{row['index']}" if run.config.get("stream", {}).get("passes", 1) > 1 else ""
    facts = ("index", "task_type", "status", "verdict", "retrieved", "lessons", "chosen", "learning_errors")
    return {
        "id": storable(row["task_id"]) + again,
        "epoch": attempt["sample"] + 1,
        "input": row["query"],
        "target": attempt["gold"],
        "messages": messages,
        "output": {"model": model, "choices": [choice], "completion": choice["message"]["content"]},
        "scores": {} if broken else {"success": score | {"explanation": f"ended by {attempt['ended_by']}"}},
        "metadata": {key: row[key] for key in facts},
        "store": {},
        "events": [],
        "model_usage": {model: {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}},
        "role_usage": {},
        "attachments": {},
        **({"error": {"message": attempt["error"] or "", "traceback": "", "traceback_ansi": ""}} if broken else {}),
    }


def conversation(attempt: dict[str, Any]) -> list[dict[str, str]]:
    """The messages of an attempt: its opening, and each step as reply and observation."""
    messages = list(attempt["opening"])
    for step in attempt["steps"]:
        messages.append({"role": "assistant", "content": step["text"]})
        if step["observation"]:
            messages.append({"role": "user", "content": step["observation"]})
    return messages


def summary(each: dict[str, Any]) -> dict[str, Any]:
    """A sample's line in the list."""
    kept = {key: each[key] for key in ("id", "epoch", "input", "target", "scores", "model_usage")}
    return kept | {"completed": "error" not in each, "message_count": len(each["messages"]), "metadata": {}}


def results(run: Run) -> dict[str, Any]:
    """The headline: the success rate of the answers, infra errors left out; no score where nothing else is left."""
    valid = [row for row in run.rows if row["status"] != "infra_error"]
    scores = []
    if valid:
        rate = sum(row["status"] == "success" for row in valid) / len(valid)
        metric = {"success_rate": {"name": "success_rate", "value": rate, "params": {}}}
        scores = [{"name": "success", "scorer": "success", "params": {}, "metrics": metric}]
    counts = {"total_samples": run.n_tasks, "completed_samples": len(valid), "scores": scores}
    return {"results": counts, "stats": {"started_at": NO_TIME, "completed_at": NO_TIME, "model_usage": {}}}
