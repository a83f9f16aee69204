"""A run as an Inspect log (.eval, version 2), for `inspect view`: a zip of JSON, as inspect_ai 0.3 writes it.

Written here, without inspect_ai, which wants an older fsspec than the pinned one. A test reads it with inspect_ai
0.3.285 in a venv of its own; it was looked at in that version's viewer.
"""

from __future__ import annotations

import json
import zipfile
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from analysis.runs import Run
from core.models.reply_text import without_surrogates
from core.run.arms import env_label
from core.run.files import TIMINGS, lines_of
from core.run.metrics import VALID
from core.run.records import evaluated, was_graded
from core.types import Usage

NO_TIME = 0.0  # of a run without timings.jsonl; an episode's line holds no clock time
STOP = {"length": "max_tokens", "content_filter": "content_filter"}
SCORE = {"success": "C", "failure": "I"}
USAGE = {  # Inspect's name: ours
    "input_tokens": "prompt_tokens",
    "output_tokens": "completion_tokens",
    "input_tokens_cache_read": "cached_tokens",
    "reasoning_tokens": "reasoning_tokens",
    "total_cost": "cost_usd",
}
ERROR = ("message", "traceback", "traceback_ansi")
Json = dict[str, Any]


def write_eval(run: Run, path: Path) -> None:
    """Write the log. Each attempt of an episode is an epoch of its sample; one that broke has an error and no score."""
    times = clock(run)
    samples = [
        sample(row, n, run, times.get(row["index"])) for row in run.rows for n in range(len(row["trajectories"]))
    ]
    began = min((start for start, _ in times.values()), default=NO_TIME)
    ended = max((end for _, end in times.values()), default=NO_TIME)
    start = {
        "version": 2,
        "eval": spec(run, began),
        "plan": {"name": run.choices.get("workflow") or "plan", "steps": [], "config": {}},
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:

        def put(name: str, value: Any) -> None:
            entry = zipfile.ZipInfo(name)  # its fixed date keeps the file the same from one export to the next
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, without_surrogates(json.dumps(value, ensure_ascii=False)))

        put("_journal/start.json", start)
        for each in samples:
            put(f"samples/{each['id']}_epoch_{each['epoch']}.json", each)
        put("summaries.json", [summary(each) for each in samples])
        whole = {"status": "success" if run.complete else "cancelled", **results(run, samples)}
        put("header.json", start | whole | {"stats": stats(run, began, ended)})


def clock(run: Run) -> dict[int, tuple[float, float]]:
    """{index of an episode: (begin, end) in seconds since 1970}."""
    rows = lines_of(run.path, TIMINGS)
    return {row["index"]: (row["ended"] - row["wall_s"], row["ended"]) for row in rows}


def iso(seconds: float) -> str:
    return datetime.fromtimestamp(round(seconds, 3), UTC).isoformat()


def spec(run: Run, began: float) -> Json:
    """What was run."""
    dataset, models = run.manifest["fingerprint"]["dataset"], run.manifest["models"]
    arm, sha = run.arm or "run", (run.manifest.get("git") or {}).get("sha")
    agent = models["agent"]
    decoding = {key: agent[key] for key in ("temperature", "max_tokens", "top_p") if agent.get(key) is not None}
    return {
        "eval_id": run.manifest["run"],
        "run_id": run.manifest["run"],
        "created": iso(began),
        "task": f"{env_label(run.choices.get('env') or 'env', run.config.get('env'))}-{arm}",
        "task_id": run.cell,
        "task_version": 0,
        "task_args": {"arm": arm, "seed": run.config["seed"], "setting": run.setting},
        "tags": [*run.overridden, run.setting, f"seed {run.config['seed']}"],
        "dataset": {"name": str(dataset.get("dataset", "")), "samples": run.n_tasks},
        "model": agent["model"],
        "model_generate_config": decoding,
        "model_roles": {
            role: {"model": each["model"], "config": {}, "args": {}} for role, each in models.items() if role != "agent"
        },
        "config": {"epochs": n_epochs(run)},
        "packages": run.manifest.get("packages", {}),
        "metadata": {"config": run.config, "git": run.manifest.get("git"), "arm": arm, "run_dir": str(run.path)},
        **({"revision": {"type": "git", "origin": "", "commit": sha}} if sha else {}),
    }


def n_epochs(run: Run) -> int:
    return max((len(row["trajectories"]) for row in run.rows), default=1)


def sample(row: Json, number: int, run: Run, time: tuple[float, float] | None) -> Json:
    """One attempt of an episode. time: when the episode began and ended, as far as that is known."""
    attempt, verdict = row["trajectories"][number], row["verdicts"][number]
    messages = [{"id": f"{attempt['id']}-{n}", **message} for n, message in enumerate(conversation(attempt))]
    last = attempt["steps"][-1] if attempt["steps"] else None
    choice = {
        "message": {"id": f"{attempt['id']}-out", "role": "assistant", "content": last["text"] if last else ""},
        "stop_reason": STOP.get(last["finish_reason"], "stop") if last else "unknown",
    }
    model, is_answer = run.manifest["models"]["agent"]["model"], number == row["chosen"]
    again = f"_{row['index']}" if run.config.get("stream", {}).get("passes", 1) > 1 else ""
    facts = ("index", "task_type", "status", "retrieved", "lessons", "learning_errors")
    others = {role: used(usage) for role, usage in row["usage"].items() if role != "agent" and usage["calls"]}
    return {
        "id": without_surrogates(row["task_id"]) + again,
        "epoch": attempt["sample"] + 1,
        "input": row["query"],
        "target": attempt["gold"],
        "messages": messages,
        "output": {"model": model, "choices": [choice], "completion": choice["message"]["content"]},
        "scores": scores(attempt, verdict),
        "metadata": {"is_the_answer": is_answer, "ended_by": attempt["ended_by"]} | {key: row[key] for key in facts},
        "store": {},
        "events": [],
        "model_usage": {model: used(attempt["usage"])},
        "role_usage": others if is_answer else {},  # what the whole episode took
        "attachments": {},
        **({} if time is None else {"started_at": iso(time[0]), "completed_at": iso(time[1])}),
        **({} if time is None or len(row["trajectories"]) > 1 else {"total_time": time[1] - time[0]}),
        **({"error": dict.fromkeys(ERROR, attempt["error"] or "")} if attempt["ended_by"] == "infra_error" else {}),
    }


def scores(attempt: Json, verdict: Json) -> Json:
    """`success`, the env's own evaluation if it made one, and what the judge said; nothing of an attempt that broke."""
    if attempt["ended_by"] == "infra_error":
        return {}
    steps = attempt["steps"]
    answer = attempt["answer"] or (steps[-1]["action"] if steps else "")
    why = f"ended by {attempt['ended_by']} after {len(steps)} step{'s' * (len(steps) != 1)}"
    outcome = {"value": "C" if attempt["success"] else "I", "answer": answer, "explanation": why}
    found = {"success": outcome} if was_graded(attempt) else {}
    if verdict["label"]:
        facts = {key: verdict[key] for key in ("source", "confidence", "parsed")}
        found["judge"] = {"value": SCORE[verdict["label"]], "explanation": verdict["reason"], "metadata": facts}
    return {name: score | {"history": []} for name, score in found.items()}


def conversation(attempt: Json) -> list[dict[str, str]]:
    """The messages of an attempt: its opening, and each step as reply and observation."""
    messages = list(attempt["opening"])
    for step in attempt["steps"]:
        messages.append({"role": "assistant", "content": step["text"]})
        if step["observation"]:
            messages.append({"role": "user", "content": step["observation"]})
    return messages


def summary(each: Json) -> Json:
    """A sample's line in the list."""
    kept = "id epoch input target scores model_usage role_usage started_at completed_at total_time".split()
    found = {key: each[key] for key in kept if key in each}
    broke = {"error": each["error"]["message"]} if "error" in each else {}
    return found | broke | {"completed": True, "message_count": len(each["messages"]), "metadata": {}}


def results(run: Run, samples: list[Json]) -> Json:
    """The success rate of the answers, infra errors left out, by the env and as judged; none where nothing is left."""
    valid = [row for row in run.rows if row["status"] in VALID and evaluated(row)]
    judged = [row["verdict"]["label"] for row in valid if row["verdict"]["label"]]
    found = []
    for scorer, labels in {"success": [row["status"] for row in valid], "judge": judged}.items():
        if labels:
            metric = {"name": "success_rate", "value": labels.count("success") / len(labels), "params": {}}
            found.append({"name": scorer, "scorer": scorer, "params": {}, "metrics": {"success_rate": metric}})
    whole = sum("error" not in each for each in samples)
    total = max(run.n_tasks * n_epochs(run), len(samples))
    return {"results": {"total_samples": total, "completed_samples": whole, "scores": found}}


def stats(run: Run, began: float, ended: float) -> Json:
    """Tokens and cost of the whole run, by model and by role."""
    roles = run.manifest["models"]
    by_role = {role: [row["usage"][role] for row in run.rows if role in row["usage"]] for role in roles}
    by_model: dict[str, list[Json]] = defaultdict(list)
    for role, usages in by_role.items():
        by_model[roles[role]["model"]] += usages
    return {
        "started_at": iso(began),
        "completed_at": iso(ended),
        "model_usage": {model: total(usages) for model, usages in by_model.items()},
        "role_usage": {role: total(usages) for role, usages in by_role.items() if any(u["calls"] for u in usages)},
    }


def used(usage: Json) -> Json:
    """A usage by Inspect's names."""
    found = {name: usage[own] for name, own in USAGE.items() if usage.get(own) is not None}
    tokens = Usage(**usage).tokens
    return found if tokens is None else found | {"total_tokens": tokens}


def total(usages: Iterable[Json]) -> Json:
    """Their sum; the cost is left out where a part of it is unknown."""
    each = [used(usage) for usage in usages]
    names = [name for name in (*USAGE, "total_tokens") if all(name in usage for usage in each)]
    return {name: sum(usage[name] for usage in each) for name in names}
