"""The frame around a run's stream: writes manifest, .hydra and summary, shows progress and feeds the tracker.

At the end it suggests the next commands: the same run with or without memory, then the comparison of the two.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from core.errors import StopRun
from core.memory.protocol import Memory
from core.models.base import Role
from core.models.meter import Meter
from core.run.arms import Name, env_label, key_of
from core.run.display import RunProgress, print_summary
from core.run.keys import METHOD_KEYS
from core.run.launch import (
    again,
    choice,
    command_line,
    hydra_config,
    in_sweep,
    resume_hint,
    run_name,
    save_hydra,
    short,
    tool,
)
from core.run.manifest import continued, label_source, manifest, versions
from core.run.metrics import VALID, by_pass, summarise
from core.run.records import RunRecords, current, not_shown
from core.run.tracking import Guarded, NoTracker, Tally, TrackedRun, Tracker, episode_table, tracked_run
from core.types import Episode, Task

log = logging.getLogger("run")
ENDINGS = ("-vanilla", "-memory")  # suffixes of the partner run's directory
# Keys that are not copied into the partner's command: a run without memory ignores or refuses them, or it sets its own.
_DROPPED = ("arm", *METHOD_KEYS)


@dataclass(kw_only=True)
class Session:
    """A context manager around the stream. `episode` is called after each task; `summary` is set on exit.

    composed      the configuration as composed by Hydra, for .hydra
    config        the same, resolved
    make_tracker  makes the tracker; called once, and only if tasks are left
    fingerprint   what must be equal when the run is resumed (core/run/manifest.py)
    stream        the stream's settings, for the summary (`Stream.described`)
    bank_labels   label sources in the given bank (core/setting.py)
    has_memory    whether the run stores lessons
    plays_gold    whether the agent plays the reference answers
    """

    composed: DictConfig
    config: dict[str, Any]
    make_tracker: Callable[[], Tracker]
    fingerprint: dict[str, Any]
    tasks: list[Task]
    stream: dict[str, Any]
    records: RunRecords
    roles: dict[str, Role]
    meter: Meter
    bank: Memory
    has_memory: bool
    plays_gold: bool
    bank_labels: set[str] = field(default_factory=set)
    summary: dict[str, Any] = field(default_factory=dict, init=False)
    _name: Name = field(init=False, repr=False)
    _tracker: Tracker = field(init=False, repr=False)
    _tally: Tally = field(default_factory=Tally, init=False, repr=False)
    _progress: RunProgress = field(init=False, repr=False)

    def __enter__(self) -> Session:
        self._name = run_name(self.composed)
        whole = sum(row["status"] in VALID for row in current(self.records.rows))
        tracker = self.make_tracker() if whole < len(self.tasks) else NoTracker()
        self._log_start(whole)
        save_hydra(self.composed, self.records)
        if whole < len(self.tasks):  # restarting a finished run does not change its manifest
            self._write_manifest()
        self._tracker = Guarded(tracker=tracker, option=choice("tracker"))
        self._tracker.start(self._tracked())
        label = self._title() if in_sweep() else f"{self._name.arm} on {self._env}"
        self._progress = RunProgress(len(self.tasks), self.records.rows, label, quiet=in_sweep()).__enter__()
        return self

    def episode(self, episode: Episode) -> None:
        """Show and track an episode that was just recorded."""
        row = self.records.rows[episode.index]
        self._progress.update(row)
        if not_shown(row):
            self._progress.warn(
                "not every retrieved lesson fits into the prompt: raise agent.max_memory_chars or memory.max_tokens. "
                "What was left out is n_not_shown in summary.json."
            )
        for asked in self.meter.drift():
            self._progress.warn(f"{asked} is not served by the same model throughout: see drift in summary.json.")
        for name in self.meter.fallbacks():
            self._progress.warn(f"calls are answered by the fallback {name}: see failed in calls.jsonl.")
        if episode.status != "stopped":  # its task will run again
            self._tracker.log(episode.index, self._tally.values(row))

    def __exit__(self, broke: type[BaseException] | None, *_exc: object) -> None:
        """Write and track the summary in any case; print it if no exception ended the stream.

        Raises StopRun if tasks ended with an infra error: the same command tries them again.
        """
        self._progress.__exit__()
        rows, n_tasks = current(self.records.rows), len(self.tasks)
        self.summary = summarise(rows, n_tasks, self.records.wall_s(), self.bank.spent())
        self.summary["broken"] = self.records.safe(self.summary["broken"])
        self.summary |= {"calls": self.meter.totals(), "drift": self.meter.drift()}
        self.summary["fallbacks"] = self.meter.fallbacks()
        self.summary |= self.meter.odd()
        self.summary |= {"stream": self.stream, "by_pass": by_pass(rows, n_tasks, self.stream["passes"])}
        sources = [row["verdict"]["source"] for row in rows]
        self.summary["label_source"] = label_source(self.records.read_json("manifest.json") or {"config": {}}, sources)
        about = {"arm": str(self._name), "setting": self.config["setting"]["name"]}
        about["seed"] = self.config["seed"]
        self.records.write_summary(self.summary | about)
        if any(role.sent for role in self.roles.values()):
            self._write_manifest()  # again, with the parameters that were really sent
        tracked = self.records.safe([self.summary, episode_table(rows)])
        self._tracker.finish(*tracked, failed=broke is not None)
        log.info(
            "%s: %d of %d tasks, %d successes, %d broken, %.1f s",
            "ended" if broke is None else f"stopped by {broke.__name__}",
            *(self.summary[name] for name in ("n", "n_tasks", "n_success", "n_infra_error", "wall_s")),
        )
        if broke is None:
            if not in_sweep():  # a sweep prints one table of all its runs
                print_summary(self.summary, self._title(), self.records.path, self._next_step(), rows)
                if not self.summary["complete"] and (reason := self.meter.exhausted()):
                    print(f"stopped: {reason}.{resume_hint(self.records.path, used_up=reason.split(' (')[0])}")
            if kinds := self.summary["infra_errors"]:
                causes = ", ".join(f"{count} by {kind}" for kind, count in kinds.items())
                broken = f"{self.summary['n_infra_error']} of {n_tasks} tasks broken"
                raise StopRun(f"{broken} ({causes}) and in no number: the run is not complete, its command tries again")

    def _next_step(self) -> list[str]:
        if not self.summary["complete"] or self.config["attempts_from"]:  # nothing was played: no partner to compare
            return []
        needs_bank = not self.config["setting"]["learn"] and self.config["memory"].get("path") is None
        return next_step(
            self.records.path, has_memory=self.has_memory, needs_bank=needs_bank, plays_gold=self.plays_gold
        )

    def _log_start(self, whole: int) -> None:
        """Log the command, models and versions to main.log, and how much an earlier start has done."""
        log.info("%s: %s", self._title(), shlex.join(self.records.safe(command_line())))
        log.info("models: %s", self.records.safe(", ".join(f"{n} {role.llm.name}" for n, role in self.roles.items())))
        log.info("versions: %s", versions())
        if self.records.rows:
            log.info("continued: %d of %d tasks are done", whole, len(self.tasks))

    @property
    def _env(self) -> str:
        return env_label(choice("env"), self.config["env"])

    def _title(self) -> str:
        return f"{self._name} on {self._env}, setting={choice('setting')}, seed={self.config['seed']}"

    def _tracked(self) -> TrackedRun:
        return tracked_run(
            run=self.records.run,
            run_dir=self.records.path,
            config=self.records.safe(self.config),
            hydra=hydra_config(),
            arm=str(self._name),
            model=self.roles["agent"].llm.name,
            earlier=[(row["index"], self._tally.values(row)) for row in self.records.rows],
        )

    def _write_manifest(self) -> None:
        roles = {name: role.describe() for name, role in self.roles.items()}
        now = manifest(self.fingerprint, self.config, command_line(), self.tasks, roles, sorted(self.bank_labels))
        now["overridden"] = list(self._name.words)
        self.records.write_json("manifest.json", continued(self.records.read_json("manifest.json"), now))


def next_step(run_dir: Path, *, has_memory: bool, needs_bank: bool, plays_gold: bool) -> list[str]:
    """Lines that suggest the same run with or without memory, and the comparison of the two; [] if neither applies.

    has_memory   whether the finished run stores lessons
    needs_bank   whether its setting needs a given bank to run with memory, and none is given
    plays_gold   whether its agent plays the reference answers
    """
    before = run_dir.with_name(run_dir.name.removesuffix(ENDINGS[has_memory]))
    is_second = before != run_dir and (before / "summary.json").exists()
    if not is_second and (plays_gold or (needs_bank and not has_memory)):
        return []
    partner = before if is_second else run_dir.with_name(run_dir.name + ENDINGS[not has_memory])
    runs = (partner, run_dir) if has_memory else (run_dir, partner)  # the run without memory is the baseline
    compare = _script("compare", *runs)
    if is_second:
        page = _script("report", *runs, "-o", run_dir.parent / "report.html")
        return ["next, what memory changed, and every episode on one page:", compare, page]
    dropped = _DROPPED if has_memory else (*_DROPPED, "memory")
    words = [word for word in command_line()[1:] if key_of(word).partition(".")[0] not in dropped]
    said, show = "without memory" if has_memory else "with memory", _script("show", run_dir)
    command = again(partner, [*words, _method_of_partner(has_memory)])
    return [f"next, the same {said}, what memory changed, and the run itself:", command, compare, show]


def _method_of_partner(has_memory: bool) -> str:
    """The word that sets the partner's method: an arm if this run has one, else a workflow."""
    arm = choice("arm")
    if has_memory:
        return "arm=no_memory" if arm else "workflow=vanilla"
    named = arm.removesuffix("_no_memory") if arm else ""
    return f"arm={'reasoningbank' if named == 'no_memory' else named}" if named else "workflow=reasoningbank"


def _script(name: str, *words: Path | str) -> str:
    """Another command of `reasoningbank`, to paste."""
    return shlex.join([tool(), name, *(str(short(word)) if isinstance(word, Path) else word for word in words)])
