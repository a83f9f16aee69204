"""One table of all episodes of some runs: which columns it has, and how they are read."""

from __future__ import annotations

import json
import os
import shlex
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import redirect_stderr
from functools import partial
from io import StringIO
from multiprocessing import get_all_start_methods, get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from analysis.funnel_steps import kinds_of, lesson_step
from analysis.kept_columns import kept, made_and_kept
from analysis.made_of import made_of
from analysis.notes import non_default_memory_settings
from analysis.runs import Run, explaining, find_runs, read_banks, read_run
from core.build import LLMS, ROLES
from core.errors import UserError
from core.memory.open import file_of
from core.models.reply_text import without_surrogates
from core.run.arms import env_label
from core.run.files import CALLS, EPISODES, lines_of
from core.run.keys import COLUMNS, RUN_KEYS
from core.run.manifest import label_source
from core.run.metrics import VALID, n_tampered, steps, tokens
from core.run.records import answer_of, evaluated, outcomes_of, place_of
from core.terminal import say_once
from core.types import content_id

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")

STREAM = {  # {column: the usual value}
    column: RUN_KEYS[key].usual for column, key in COLUMNS.items() if key.startswith("stream.")
}


MUCH = 50_000_000  # bytes of episodes that are worth starting processes for


def load_runs(paths: Iterable[str | Path]) -> pd.DataFrame:
    """One row an episode of every run below the paths; see `run_columns`, `episode_columns`, `lesson_step`."""
    return frame_of_columns(_columns_at(find_runs(paths)))


def frame_of(runs: Iterable[Run]) -> pd.DataFrame:
    """The table of some runs; a run without an episode has one row, of status "none", so that it is not overlooked."""
    return frame_of_columns(map(columns_of, runs))


def for_each(paths: Sequence[Path], make: Callable[[Path], T]) -> Iterator[T]:
    """What `make`, a function of a module, returns for each run; of MUCH data, by a process for each core."""
    files = (path / EPISODES for path in paths)
    n = min(os.cpu_count() or 1, len(paths)) if sum(f.stat().st_size for f in files if f.is_file()) > MUCH else 1
    # A fork of a process with several threads may hang.
    if n < 2 or "fork" not in get_all_start_methods() or threading.active_count() > 1:
        yield from map(make, paths)
        return
    ctrl_c = {"initializer": signal.signal, "initargs": (signal.SIGINT, signal.SIG_IGN)}  # this process answers it
    with ProcessPoolExecutor(n, mp_context=get_context("fork"), **ctrl_c) as pool:
        try:
            for made, notes, fault in pool.map(partial(_apart, make), paths):
                for note in notes:
                    say_once(note)
                if fault is not None:
                    raise UserError(fault)
                yield made
        except BrokenProcessPool:
            raise UserError(
                "a process that read runs was killed, likely for want of memory: give fewer runs."
            ) from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _apart(make: Callable[[Path], T], path: Path) -> tuple[T | None, list[str], str | None]:
    """(what is made of a run, what was said of it, why it cannot be read), for the process that asked."""
    say_once.cache_clear()  # it knows what this process has said before, which that one may not have heard
    with redirect_stderr(StringIO()) as said:
        try:
            made, fault = make(path), None
        except UserError as error:
            made, fault = None, str(error)
    return made, said.getvalue().splitlines(), fault


def _columns_at(paths: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """`columns_of` each run, of which those are read whose columns are not kept."""
    known = {path: kept(path) for path in paths}
    made = for_each([path for path, columns in known.items() if columns is None], _read)
    for path, columns in known.items():
        columns = columns or next(made)
        yield columns | {"run": columns["run"] | {"run_dir": str(path)}}  # kept under another name of the directory


def _read(path: Path) -> dict[str, Any]:
    return made_and_kept(path, lambda: columns_of(read_run(path)))


def columns_of(run: Run) -> dict[str, Any]:
    """The columns of a run, as JSON data: {run: {column: value}, episodes: {column: values}, bank, keep}."""
    seen: Counter[str] = Counter()
    episodes = []
    with explaining(run.path):
        facts = run_columns(run)
        kinds = kinds_of(run.rows, partial(read_banks, run, must=False))
        for row, said in zip(run.rows, run.said, strict=True):
            about = {"lesson_step": lesson_step(row, kinds), "visit": seen[row["task_id"]], "said": said}
            episodes.append(episode_columns(row) | about)
            seen[row["task_id"]] += 1
        if not run.rows:
            episodes.append({"index": -1, "status": "none"})
    bank = run.memory.get("path")
    columns = {key: [each[key] for each in episodes] for key in episodes[0]}
    keep = run.complete and bool(run.summary) and (not bank or file_of(bank) is not None)
    return {"run": facts, "episodes": columns, "bank": bank, "keep": keep}


def frame_of_columns(found: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """The table of what `columns_of` says of some runs."""
    import pandas as pd

    facts, columns, owners = [], {}, []
    for number, each in enumerate(found):
        facts.append(each["run"])
        for key in each["episodes"]:
            columns.setdefault(key, [float("nan")] * len(owners))
        owners += [number] * len(each["episodes"]["index"])
        for key, values in columns.items():
            values += each["episodes"].get(key, [float("nan")] * (len(owners) - len(values)))
    shared = _as_frame({key: [each.get(key) for each in facts] for key in (facts or [{}])[0]})
    frame = pd.concat([_as_frame(columns), shared.iloc[owners].reset_index(drop=True)], axis=1)
    frame.loc[~frame["evaluated"], "success"] = float("nan")
    return frame


def _as_frame(columns: dict[str, list[Any]]) -> pd.DataFrame:
    """A table whose texts are objects: pandas' own type would hold a run's long ones once for each of its episodes."""
    import pandas as pd

    texts = {key for key, values in columns.items() if any(isinstance(value, str) for value in values)}
    return pd.DataFrame({key: pd.Series(v, dtype=object if key in texts else None) for key, v in columns.items()})


def run_columns(run: Run) -> dict[str, Any]:
    """The columns that are the same for every episode of a run."""
    config, choices = run.config, run.choices
    workflow, retrieval, stream = (config.get(name) or {} for name in ("workflow", "retrieval", "stream"))
    rounds = run.summary.get("consolidation") or {"tokens": 0, "cost_usd": 0.0}
    n_calls, fallbacks = answered_by_fallbacks(run)
    return {
        "run_dir": str(run.path),
        "run": run.path.name,
        "cell": run.cell,
        "task_set": run.task_set,
        "task_order": content_id(run.manifest["task_ids"]),
        "given_bank": given_bank(run),
        "arm": run.arm or "unknown",
        "overridden": " ".join(run.overridden),
        "env": env_label(choices.get("env") or "unknown", config.get("env")),
        **{group: choices.get(group) or "-" for group in ("agent", "workflow", "memory", "retrieval", "judge", "llm")},
        "model": run.manifest["models"]["agent"]["model"],
        "seed": config["seed"],
        "setting": run.setting,
        "label_source": label_source(run.manifest, run.rows),
        "knobs": json.dumps(non_default_memory_settings(config)),
        "part": part_of(config.get("env") or {}),
        "version": (config.get("env") or {}).get("version"),  # of the benchmark, where there are several
        "bank": config.get("bank"),
        "k": workflow.get("k"),
        "r": workflow.get("r"),
        "top_k": retrieval.get("top_k"),
        "learn_from": workflow.get("learn_from"),
        **{key: stream.get(key, usual) for key, usual in STREAM.items()},
        "n_tasks": run.n_tasks,
        "evaluated": all(map(evaluated, run.rows)),  # False: success is not known of any episode
        "complete": run.complete,
        "trace": run.trace,
        "tokens_consolidation": rounds["tokens"],  # of the bank's own work
        "cost_consolidation": float("nan") if rounds["cost_usd"] is None else rounds["cost_usd"],
        "n_calls": n_calls,  # of models, where some of them have fallbacks
        "fallbacks": json.dumps(fallbacks),  # {model: calls that it answered}
        "command": shlex.join(run.manifest["command"][1:]),
        **made_of(run.manifest),
        "data": run.manifest["fingerprint"]["dataset"].get("sha256"),
        "settings": run.settings,
    }


def given_bank(run: Run) -> str | None:
    """An id of the bank that a run was given: of its content where it is only read, else of where it is; None: none."""
    if not (path := run.memory.get("path")):
        return None
    return content_id(run.manifest["fingerprint"].get("frozen_bank") or path, run.memory.get("namespace"))


def part_of(env: dict[str, Any]) -> str | None:
    """The part of the benchmark that was run: its site or split; None if it has no parts."""
    found = env.get("site") or env.get("split")
    return found if isinstance(found, str) else None


def answered_by_fallbacks(run: Run) -> tuple[int | None, dict[str, int]]:
    """(answers of models, {fallback: how many of them it gave}); (None, {}) of a run whose models have no fallback."""
    if not any((run.config.get(key) or {}).get("fallbacks") for key in LLMS):
        return None, {}
    if not (run.path / CALLS).is_file():
        totals = run.summary.get("calls", {})
        n = sum(totals[role]["calls"] + totals[role]["from_cache"] for role in ROLES if role in totals)
        return n, run.summary.get("fallbacks", {})
    calls = [row for row in lines_of(run.path, CALLS) if row["role"] in ROLES and not row["error"]]
    return len(calls), dict(sorted(Counter(row["fallback"] for row in calls if row.get("fallback")).items()))


def episode_columns(row: dict[str, Any]) -> dict[str, Any]:
    """The columns of one episode. success is 1.0, 0.0 or NaN (infra_error); a cost of NaN is unknown.

    attempts has an outcome an attempt: success | failure | infra_error; verdicts the label of each, None where it was
    not judged; confidences the judge's in that label, None where it gave none.
    `visit` (see frame_of) counts earlier passes over a task.
    """
    chosen, spent = answer_of(row), tokens([row])
    costs = [used["cost_usd"] for used in row["usage"].values()]
    return {
        "index": place_of(row),
        "task_id": without_surrogates(row["task_id"]),
        "task_type": without_surrogates(row["task_type"]),
        "status": row["status"],
        "retried": "retries" in row,  # it broke, and this is the try at the end of the stream
        "success": float(row["status"] == "success") if row["status"] in VALID else float("nan"),
        "reward": row["reward"],
        "steps": steps(row),
        "measures": json.dumps(chosen.get("info", {}).get("measures", {})),  # {name: [sum, over how many]}
        "n_invalid": sum(not step["valid"] for step in chosen["steps"]),
        "n_tampered": n_tampered(row),
        "ended_by": chosen["ended_by"],
        "error": without_surrogates((chosen["error"] or "").split(":")[0]),
        "attempts": outcomes_of(row),
        "verdicts": [verdict["label"] for verdict in row["verdicts"]],
        "confidences": [verdict["confidence"] for verdict in row["verdicts"]],
        "tokens": spent["total"],
        **{f"tokens_{role}": spent.get(role, 0) for role in ROLES},
        "cost": float("nan") if None in costs else sum(costs),
        "n_retrieved": len(row["retrieved"]),
        "top_score": row["retrieved"][0]["score"] if row["retrieved"] else float("nan"),
        "n_lessons": len(row["lessons"]),
        "n_dropped": row["n_dropped"],
        "n_learning_errors": len(row["learning_errors"]),
        "verdict": row["verdict"]["label"],
        "verdict_source": row["verdict"]["source"],
        "verdict_parsed": row["verdict"]["parsed"],
    }
