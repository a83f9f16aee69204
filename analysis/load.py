"""Finished and unfinished runs, read without touching them: run directories -> rows, and one table of all episodes."""

from __future__ import annotations

import json
import os
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, replace
from functools import cached_property, partial
from io import StringIO
from multiprocessing import get_all_start_methods, get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.funnel_steps import kinds_of, lesson_step
from analysis.kept_columns import kept, made_and_kept
from analysis.made_of import made_of
from analysis.notes import non_default_memory_settings
from core.build import LLMS, ROLES
from core.checksum import has_checksum, say_once, say_unchecked
from core.errors import UserError
from core.memory.by_type import BANKS
from core.memory.open import file_of, read_fact, read_records
from core.memory.records import id_in_bank
from core.models.meter import Meter
from core.models.reply_text import storable
from core.run.arms import overridden
from core.run.files import CALLS, EPISODES, MANIFEST, SUMMARY, TIMINGS, lines_of, read_episodes, read_file, read_hydra
from core.run.keys import ARM_KEYS, COLUMNS, RUN_KEYS, WRITTEN_INTO_OTHERS, without
from core.run.launch import env_label
from core.run.manifest import flat, identity, label_source
from core.run.metrics import VALID, n_tampered, steps, summarise, tokens
from core.run.records import answer_of, current, evaluated, outcomes_of, place_of
from core.run.upgrade import upgraded_manifest
from core.setting import labels_of
from core.types import MemoryRecord, Usage, content_id

if TYPE_CHECKING:
    import pandas as pd

STREAM = {  # {column: the usual value}
    column: RUN_KEYS[key].usual for column, key in COLUMNS.items() if key.startswith("stream.")
}


MUCH = 50_000_000  # bytes of episodes that are worth starting processes for
MADE_ANEW = "made_anew"  # key of a summary that the reader made, because the run's own is damaged or missing


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run directory. `rows` are its finished episodes, one a task, in order; nothing of a torn or a stopped one."""

    path: Path
    manifest: dict[str, Any]
    summary: dict[str, Any]  # {} while the run has not ended once
    hydra: dict[str, Any]  # Hydra's own configuration of the run
    composed: dict[str, Any]  # the configuration with its interpolations as written
    rows: list[dict[str, Any]]

    @property
    def config(self) -> dict[str, Any]:
        """The resolved configuration."""
        return self.manifest["config"]

    @property
    def setting(self) -> str:
        return self.config["setting"]["name"]

    @property
    def memory(self) -> dict[str, Any]:
        """The configuration of its memory; {} where it has none."""
        return self.config.get("memory") or {}

    @property
    def choices(self) -> dict[str, str | None]:
        """{config group: option}."""
        return self.hydra.get("runtime", {}).get("choices", {})

    @cached_property
    def overridden(self) -> list[str]:
        """How the run departs from its arm, as command-line words (core/run/arms.py)."""
        if "overridden" in self.manifest:
            return self.manifest["overridden"]
        return overridden(self.choices.get("arm"), self.hydra, self.config)  # of a run before this was noted

    @property
    def arm(self) -> str | None:
        """The arm that was chosen, or the workflow."""
        return self.choices.get("arm") or self.choices.get("workflow")

    @property
    def n_tasks(self) -> int:
        """The number of tasks that the run was started with."""
        return len(self.manifest["task_ids"])

    @property
    def complete(self) -> bool:
        """Whether every task has an episode. One that broke is no result: the run's command tries it again."""
        return len(self.rows) == self.n_tasks

    @cached_property
    def cell(self) -> str:
        """An id that all seeds of one cell of a table share: configuration less the seed, prompts, and set of tasks."""
        return content_id(self._shared, self.task_set, self.manifest["fingerprint"]["prompts"])

    @cached_property
    def _shared(self) -> dict[str, Any]:
        return identity(_seedless(self.config, self.composed), *WRITTEN_INTO_OTHERS)

    @cached_property
    def settings(self) -> str:
        """The settings that runs of one table should share, as JSON: {dotted key: text}, without the arms' own keys."""
        return json.dumps(flat(without(self._shared, ARM_KEYS)), sort_keys=True)

    @cached_property
    def trace(self) -> str:
        """An id of what was said and done in every attempt, made from the words: recorded ids could be changed."""
        return content_id(sorted(self.said))

    @cached_property
    def said(self) -> list[str]:
        """For each row an id of its task and of what was said and done in its attempts."""
        return [content_id(row["task_id"], [_words(each) for each in row["trajectories"]]) for row in self.rows]

    @cached_property
    def task_set(self) -> str:
        """An id of the tasks, whatever their order."""
        return content_id(sorted(self.manifest["task_ids"]))


def load_runs(paths: Iterable[str | Path]) -> pd.DataFrame:
    """One row an episode of every run below the paths; see `run_columns`, `episode_columns`, `lesson_step`."""
    return _frame(_columns_at(find_runs(paths)))


def find_runs(paths: Iterable[str | Path]) -> list[Path]:
    """Every run directory at or below the paths, sorted, each once. Raises UserError for a path without one."""
    found: dict[Path, Path] = {}
    for path in map(Path, paths):
        path = path.parent if path.is_file() else path
        below = [path] if (path / "manifest.json").is_file() else [m.parent for m in path.rglob("manifest.json")]
        if not below:
            raise UserError(f"{path} holds no run: there is no manifest.json in it or below it.")
        found |= {each.resolve(): each for each in sorted(below)}
    return list(found.values())


def read_run(path: str | Path, *, episodes: bool = True) -> Run:
    """One run directory, read only: a run that is still going may be read. Raises UserError when it is damaged.

    episodes   read them; else `rows` is empty
    """
    path = Path(path)
    if not (manifest := read_file(path, MANIFEST)):
        raise UserError(f"{path} is no run: its manifest.json is missing or is another program's.")
    with explaining(path):
        run = Run(
            path=path,
            manifest=upgraded_manifest(manifest),
            summary={},
            hydra=read_hydra(path, "hydra.yaml"),
            composed=read_hydra(path, "config.yaml") or manifest["config"],
            rows=_rows(path, manifest) if episodes else [],
        )
        run = replace(run, summary=_summary(run))
        if not has_checksum(path / MANIFEST):
            say_unchecked()
        return run


def _words(attempt: dict[str, Any]) -> list[Any]:
    steps = [(step["text"], step["observation"]) for step in attempt["steps"]]
    return [attempt["opening"], steps, attempt["success"]]


@contextmanager
def explaining(path: Path) -> Iterator[None]:
    """Context manager for reading a run's records: raises UserError for a field that is missing or of a wrong type."""
    try:
        yield
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        what = f"lacks {error}" if isinstance(error, KeyError) else f"holds a field that cannot be read ({error})"
        raise UserError(f"{path} is no whole run: its manifest.json or an episode {what}.") from error


def read_banks(run: Run, *, must: bool, vectors: bool = False) -> list[MemoryRecord]:
    """The records of the run's bank and of the one it was given, as far as they are there.

    must      raise UserError for a file that is no bank, or damaged; else it is passed over
    vectors   with embeddings
    """
    paths = filter(None, (*own_banks(run), run.memory.get("path")))
    return [record for path in paths for record in read_records_of(run, path, must=must, vectors=vectors)]


def read_records_of(run: Run, path: str | Path, *, must: bool = False, vectors: bool = False) -> list[MemoryRecord]:
    """The records of one bank of the run, in its namespace; arguments as in `read_banks`."""
    try:
        return read_records(path, run.memory.get("namespace", "default"), vectors=vectors)
    except UserError:
        if must:
            raise
        return []


def own_banks(run: Run) -> list[Path]:
    """The file of the run's own bank, or with stream.split_by of each of them."""
    return sorted((run.path / BANKS).glob("*.sqlite")) or [run.path / "bank.sqlite"]


def bank_labels(run: Run) -> list[str]:
    """The sources of the labels in the bank that a run was given; ["unknown"] where that can no longer be told."""
    if "bank_labels" in run.manifest or not run.memory.get("path"):
        return run.manifest.get("bank_labels", [])
    found = set().union(*map(labels_of, read_banks(run, must=False)))  # of an earlier version: as the bank is today
    return sorted(found) if Path(run.memory["path"]).is_file() else ["unknown"]


def frame_of(runs: Iterable[Run]) -> pd.DataFrame:
    """The table of some runs; a run without an episode has one row, of status "none", so that it is not overlooked."""
    return _frame(map(_columns_of, runs))


def _columns_at(paths: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """`_columns_of` each run, of which those are read whose columns are not kept."""
    known = {path: kept(path) for path in paths}
    made = _read([path for path, columns in known.items() if columns is None])
    for path, columns in known.items():
        columns = columns or next(made)
        yield columns | {"run": columns["run"] | {"run_dir": str(path)}}  # kept under another name of the directory


def _read(paths: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """`_columns_of` runs that are read now: if they hold MUCH data, by a process for each core."""
    files = (path / EPISODES for path in paths)
    n = min(os.cpu_count() or 1, len(paths)) if sum(f.stat().st_size for f in files if f.is_file()) > MUCH else 1
    if n < 2 or "fork" not in get_all_start_methods():
        yield from (made_and_kept(path, partial(_columns_in, path)) for path in paths)
        return
    with ProcessPoolExecutor(n, mp_context=get_context("fork")) as pool:
        try:
            for columns, notes, fault in pool.map(_read_apart, paths):
                for note in notes:
                    say_once(note)
                if fault is not None:
                    raise UserError(fault)
                yield columns
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _read_apart(path: Path) -> tuple[dict[str, Any], list[str], str | None]:
    """(columns of a run, what was said of it, why it cannot be read), for the process that asked."""
    say_once.cache_clear()  # it knows what this process has said before, which that one may not have heard
    with redirect_stderr(StringIO()) as said:
        try:
            columns, fault = made_and_kept(path, partial(_columns_in, path)), None
        except UserError as error:
            columns, fault = {}, str(error)
    return columns, said.getvalue().splitlines(), fault


def _columns_in(path: Path) -> dict[str, Any]:
    return _columns_of(read_run(path))


def _columns_of(run: Run) -> dict[str, Any]:
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


def _frame(found: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """The table of what `_columns_of` says of some runs."""
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
        "label_source": label_source(run.manifest | {"bank_labels": bank_labels(run)}, run.rows),
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
        "task_id": storable(row["task_id"]),
        "task_type": storable(row["task_type"]),
        "status": row["status"],
        "retried": "retries" in row,  # it broke, and this is the try at the end of the stream
        "success": float(row["status"] == "success") if row["status"] in VALID else float("nan"),
        "reward": row["reward"],
        "steps": steps(row),
        "measures": json.dumps(chosen.get("info", {}).get("measures", {})),  # {name: [sum, over how many]}
        "n_invalid": sum(not step["valid"] for step in chosen["steps"]),
        "n_tampered": n_tampered(row),
        "ended_by": chosen["ended_by"],
        "error": storable((chosen["error"] or "").split(":")[0]),
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


def _seedless(config: Any, composed: Any) -> Any:
    """The resolved configuration without the seed; a value that is made from it stands there as it is written."""
    if not isinstance(config, dict) or not isinstance(composed, dict):
        return config
    made = {key: text for key, text in composed.items() if isinstance(text, str) and "${seed}" in text}
    return {
        key: made.get(key) or _seedless(value, composed.get(key))
        for key, value in config.items()
        if made.get(key) != "${seed}"
    }


def _summary(run: Run) -> dict[str, Any]:
    """The run's summary, of a damaged or lost one what its records say; {} while the run has not ended once."""
    try:
        if (found := read_file(run.path, SUMMARY)) is not None:
            return found
        if not run.rows or not run.complete or any(row["status"] not in VALID for row in run.rows):
            return {}
        fault = f"{run.path / SUMMARY} is missing"
    except UserError as error:
        fault = str(error).removesuffix(".")
    say_once(f"note: {fault}: it is made anew from the run's records.")
    rows = run.rows or _rows(run.path, run.manifest)
    meter = Meter.over(lines_of(run.path, CALLS))
    wall_s = sum(row.get("wall_s", 0.0) for row in lines_of(run.path, TIMINGS))
    made: dict[str, Any] = {MADE_ANEW: True} | summarise(rows, run.n_tasks, wall_s, _rounds(run))
    made |= {"calls": meter.totals(), "drift": meter.drift(), "fallbacks": meter.fallbacks()} | meter.odd()
    return made | {"label_source": label_source(run.manifest, rows)}


def _rows(path: Path, manifest: dict[str, Any]) -> list[dict[str, Any]]:
    every = read_episodes(path / EPISODES, manifest.get("task_ids"))
    return current([row for row in every if row["status"] != "stopped"])


def _rounds(run: Run) -> Usage | None:
    """What the run's bank has used of models, as the bank notes it; None if it asks none."""
    memory = run.memory
    if not memory.get("consolidate") and not (memory.get("hygiene") or {}).get("opinion"):
        return None
    given, namespace = memory.get("path"), memory.get("namespace", "default")
    key = f"consolidate:{id_in_bank(str(run.path.resolve())) if given else ''}:{namespace}"
    noted = [read_fact(path, namespace, key) for path in ([given] if given else own_banks(run))]
    opinions = (record.provenance.get("opinion") or {} for record in read_banks(run, must=False))
    used = [json.loads(text)["usage"] for text in noted if text]
    used += [each["usage"] for each in opinions if each.get("run") == run.manifest["run"] and each.get("usage")]
    return sum((Usage(**each) for each in used), Usage())
