"""Finished and unfinished runs, read without touching them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.memory.open import read_fact, read_records
from core.memory.records import id_in_bank
from core.models.meter import Meter
from core.run.columns import said_in
from core.run.files import (
    CALLS,
    EPISODES,
    MANIFEST,
    SUMMARY,
    TIMINGS,
    changed_files,
    lines_of,
    read_episodes,
    read_file,
    read_hydra,
)
from core.run.keys import ARM_KEYS, WRITTEN_INTO_OTHERS, without
from core.run.manifest import flat, identity, label_source
from core.run.metrics import VALID, summarise
from core.run.records import current
from core.terminal import say_once
from core.types import MemoryRecord, Usage, content_id

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

    @property
    def overridden(self) -> list[str]:
        """How the run departs from its arm, as command-line words (core/run/arms.py)."""
        return self.manifest["overridden"]

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
        known, env = self.manifest["fingerprint"], self.config.get("env") or {}
        data = (
            (known["dataset"].get("sha256"),) if env.get("path") or env.get("data") else ()
        )  # other files: other tasks
        return content_id(self._shared, self.task_set, known["prompts"], *data)

    @cached_property
    def _shared(self) -> dict[str, Any]:
        return identity(_seedless(self.config, self.composed), *WRITTEN_INTO_OTHERS)

    @cached_property
    def settings(self) -> str:
        """The settings that runs of one table should share, as JSON: {dotted key: text}, without the arms' own keys."""
        return json.dumps(flat(without(self._shared, ARM_KEYS)), sort_keys=True)

    @cached_property
    def banked(self) -> list[MemoryRecord]:
        """The records of the run's bank and of the one it was given, as far as they can be read; read once."""
        return read_banks(self, must=False)

    @cached_property
    def trace(self) -> str:
        """An id of what was said and done in every attempt, made from the words: recorded ids could be changed."""
        return content_id(sorted(map(said_in, self.rows)))

    @cached_property
    def task_set(self) -> str:
        """An id of the tasks, whatever their order."""
        return content_id(sorted(self.manifest["task_ids"]))


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


def read_run(path: str | Path, *, episodes: bool = True, must_be_as_left: bool = True) -> Run:
    """One run directory, read only: a run that is still going may be read. Raises UserError when it is damaged.

    episodes          read them; else `rows` is empty
    must_be_as_left   its files must be as the run left them (`changed_files`)
    """
    path = Path(path)
    if not (manifest := read_file(path, MANIFEST)):
        raise UserError(f"{path} is no run: its manifest.json is missing or is another program's.")
    with explaining(path):
        run = Run(
            path=path,
            manifest=manifest,
            summary={},
            hydra=read_hydra(path, "hydra.yaml"),
            composed=read_hydra(path, "config.yaml") or manifest["config"],
            rows=_rows(path, manifest) if episodes else [],
        )
        run = replace(run, summary=_summary(run))
        if must_be_as_left:
            for error in changed_files(path, run.summary):
                raise error
        return run


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
    paths = filter(None, (own_bank(run), run.memory.get("path")))
    return [record for path in paths for record in read_records_of(run, path, must=must, vectors=vectors)]


def read_records_of(run: Run, path: str | Path, *, must: bool = False, vectors: bool = False) -> list[MemoryRecord]:
    """The records of one bank of the run, in its namespace; arguments as in `read_banks`."""
    try:
        return read_records(path, run.memory.get("namespace", "default"), vectors=vectors)
    except UserError:
        if must:
            raise
        return []


def own_bank(run: Run) -> Path:
    """The file of the run's own bank."""
    return run.path / "bank.sqlite"


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
    return made | {"label_source": label_source(run.manifest, [row["verdict"]["source"] for row in rows])}


def _rows(path: Path, manifest: dict[str, Any]) -> list[dict[str, Any]]:
    every = read_episodes(path / EPISODES, manifest["task_ids"])
    return current([row for row in every if row["status"] != "stopped"])


def _rounds(run: Run) -> Usage | None:
    """What the run's bank has used of models, as the bank notes it; None if it asks none."""
    memory = run.memory
    if not memory.get("consolidate") and not (memory.get("hygiene") or {}).get("opinion"):
        return None
    given, namespace = memory.get("path"), memory.get("namespace", "default")
    key = f"consolidate:{id_in_bank(str(run.path.resolve())) if given else ''}:{namespace}"
    noted = read_fact(given or own_bank(run), namespace, key)
    opinions = (record.provenance.get("opinion") or {} for record in read_banks(run, must=False))
    used = [json.loads(noted)["usage"]] if noted else []
    used += [each["usage"] for each in opinions if each.get("run") == run.manifest["run"] and each.get("usage")]
    return sum((Usage(**each) for each in used), Usage())
