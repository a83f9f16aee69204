"""What a sweep would ask and cost: a line before it starts, or with dry_run=true a table of its cells in its place."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from core.build import build_meter, build_models, build_roles, make, part, select_tasks
from core.errors import UserError
from core.run.cells import settle
from core.run.dry_run import CLOSING, Plan, assumed, print_problems, print_prompts, times, usd
from core.run.sweep import planned
from core.run.sweep_watch import n_finished
from core.types import Task, Usage
from envs.pool import EnvPool
from workflows.build import build_plan

QUERY_CHARS = 300  # of a task that is not looked at
PATIENCE_S = 10.0  # how long a sweep that is about to start may be kept waiting for its estimate


class SweepEstimate(Callback):
    """Before a sweep: a line with what is still to be done. With dry_run=true the whole estimate, and no sweep."""

    def on_multirun_start(self, config: DictConfig, **_kwargs: Any) -> None:
        if not config.hydra.sweeper._target_.endswith("BasicSweeper"):
            return  # another one finds its cells as it goes
        overrides = list(config.hydra.overrides.task)
        if str(_given(overrides, "dry_run")).lower() == "true":
            sys.exit(dry_run_sweep(config, overrides))  # Hydra takes an exception here for a warning, but not this one
        estimate_sweep(config, overrides)


@dataclass(kw_only=True)
class Planned:
    """The cells of a sweep that differ in nothing but their seed.

    words     what tells them from other cells: {key: value}
    left      of each, the part of its tasks that is still to be done: 1.0 none has an episode, 0.0 finished
    problem   why there is no plan
    """

    words: dict[str, str]
    left: list[float] = field(default_factory=list)
    plan: Plan | None = None
    problem: str = ""

    @property
    def name(self) -> str:
        """As on the command line."""
        return " ".join(f"{key}={value}" for key, value in self.words.items())

    def still(self) -> Usage:
        """What its cells still ask for, all together."""
        return times(self.plan.total(), sum(self.left)) if self.plan else Usage(cost_usd=None)


def estimate_sweep(config: DictConfig, overrides: list[str], console: Console | None = None) -> None:
    """Print a line with the calls, tokens and USD of the cells of a sweep that are still to be done.

    config      of the multirun, as Hydra gives it to on_multirun_start
    overrides   the words of its command, sweeps as they were typed

    Quick, and never an error that would stop the sweep: what cannot be told is said so.
    """
    console = console or Console(highlight=False)
    try:
        text = _line(plan_sweep(config, overrides, quick=True))
    except Exception as error:  # noqa: BLE001 - the sweep itself will say what is wrong, and better
        text = f"estimate: not possible ({_first_line(error)})."
    console.print(text, markup=False, soft_wrap=True)


def dry_run_sweep(config: DictConfig, overrides: list[str]) -> int:
    """Print the prompts of each kind, a table of the cells, and their total. Returns 1 where a cell has no plan."""
    console = Console(highlight=False, soft_wrap=True)
    found = plan_sweep(config, overrides, quick=False)
    known: set[tuple[str, str]] = set()
    for each in found:
        if each.plan:
            print_prompts(console, each.plan, known, f" ({each.name})" if each.words else "")
    Console(highlight=False).print(_table(found))
    plans = [each.plan for each in found if each.plan]
    for each in found:
        if each.problem:
            console.print(f"{each.name}: {each.problem}", style="red", markup=False)
    print_problems(console, plans)
    if plans:
        Console(highlight=False).print(assumed(plans))
    console.print(CLOSING)
    return int(len(plans) < len(found))


def plan_sweep(config: DictConfig, overrides: list[str], *, quick: bool) -> list[Planned]:
    """The plan of each configuration of a sweep, once for all its seeds. quick: no engine is started for a prompt."""
    began, found = time.monotonic(), {}
    jobs = planned(config, overrides) or []
    fixed = set.intersection(*map(set, jobs)) if len(jobs) > 1 else set()
    with ExitStack() as stack:
        envs: dict[str, tuple[EnvPool, list[Task]]] = {}
        for number, job in enumerate(jobs):
            key = tuple(word for word in job if not word.startswith("seed="))
            words = dict(word.lstrip("+").split("=", 1) for word in key if word not in fixed)
            if key in found:
                each, cfg = found[key]
            else:
                each, cfg = found[key] = Planned(words=words), None
                try:
                    if quick and time.monotonic() - began > PATIENCE_S:
                        raise TimeoutError("not looked at")
                    cfg = composed(config, job)
                    with hydra_of(cfg, number, job):
                        each.plan = _plan(cfg, envs, stack, begin=not quick)
                    found[key] = each, cfg
                except Exception as error:  # noqa: BLE001 - of one cell: the others have their plan
                    each.problem = _first_line(error)
            each.left.append(1.0 if cfg is None else left_of(cfg, number, job, each.plan))
    return [each for each, _ in found.values()]


def composed(config: DictConfig, job: list[str]) -> DictConfig:
    """The configuration of a cell, with Hydra's own part."""
    return GlobalHydra.instance().config_loader().load_sweep_config(config, job)


@contextmanager
def hydra_of(cfg: DictConfig, number: int, job: list[str]) -> Iterator[None]:
    """HydraConfig as in the cell's own run, and then as it was."""
    before = HydraConfig.instance().cfg
    with read_write(cfg), read_write(cfg.hydra), open_dict(cfg):
        cfg.hydra.job.num, cfg.hydra.job.id = number, f"estimate_{number}"
        cfg.hydra.overrides.task = job
    try:
        HydraConfig.instance().set_config(cfg)
        yield
    finally:
        HydraConfig.instance().cfg = before


def left_of(cfg: DictConfig, number: int, job: list[str], plan: Plan | None) -> float:
    """The part of a cell's tasks that its folder has no episode of; 1.0 where that cannot be told."""
    seed = _given(job, "seed")
    try:
        if seed is not None:
            cfg.seed = int(seed)
        with hydra_of(cfg, number, job):
            folder = Path(str(cfg.hydra.sweep.dir)) / str(cfg.hydra.sweep.subdir)
        if not (folder / "manifest.json").is_file():
            return 1.0
        n_tasks = len(plan.tasks) if plan else len(json.loads((folder / "manifest.json").read_text())["task_ids"])
        return max(0.0, 1 - n_finished(folder / "episodes.jsonl") / max(1, n_tasks))
    except (OSError, ValueError, KeyError, TypeError, OmegaConfBaseException):  # its run will say so
        return 1.0


def _plan(cfg: DictConfig, envs: dict[str, tuple[EnvPool, list[Task]]], stack: ExitStack, *, begin: bool) -> Plan:
    with open_dict(cfg):
        cfg = OmegaConf.masked_copy(cfg, [key for key in cfg if key != "hydra"])
    settle(cfg)
    key = json.dumps([OmegaConf.to_container(node, resolve=True) for node in (cfg.env, cfg.stream)] + [cfg.limit])
    if key not in envs:
        pool = EnvPool(lambda: make(cfg.env), cfg.env.workers, cfg.episode_timeout_s)
        stack.callback(pool.close)
        stream = make(cfg.stream)
        if not begin and getattr(part(cfg.env), "slow_to_list", False):
            listed = stand_ins(cfg.limit)
        else:
            with pool.lease() as env:
                listed = select_tasks(stream.ordered(env.tasks(), cfg.seed), cfg.limit)
        envs[key] = pool, stream.every_pass(listed)
    pool, tasks = envs[key]
    roles = build_roles(cfg, build_models(cfg, stack), build_meter(cfg))
    return build_plan(cfg, pool, tasks, roles, begin=begin)


def stand_ins(limit: int | None) -> list[Task]:
    """As many tasks as are wanted, of a usual length, where asking the env for them would take too long."""
    if limit is None:
        raise UserError("its engine alone knows how many tasks there are: dry_run=true asks it, or give a limit")
    return [Task(id=f"task {n}", query="x" * QUERY_CHARS) for n in range(limit)]


def _line(found: list[Planned]) -> str:
    """The estimate in one line."""
    cells = [left for each in found for left in each.left]
    done, begun = sum(left == 0 for left in cells), sum(0 < left < 1 for left in cells)
    counts = f"{len(cells)} cells" + (f", {done} of them finished" if done else "")
    counts += f", {begun} begun" if begun else ""
    if done == len(cells):
        return f"estimate: {counts}: nothing is left to do."
    still = sum((each.still() for each in found if each.plan), Usage())
    cost = "USD unknown (no price known for the model)" if still.cost_usd is None else f"{usd(still.cost_usd)} USD"
    text = f"estimate: {counts}; at most {still.calls:,} calls, {_short(still.tokens)} tokens, {cost}"
    if missing := [each for each in found if not each.plan]:
        text += f"; without {sum(len(each.left) for each in missing)} cells that have none ({missing[0].problem})"
    return text + ". dry_run=true says how."


def _table(found: list[Planned]) -> Table:
    """A line a configuration: what tells it from the others, a column each, then what its seeds ask for together."""
    keys = list(dict.fromkeys(key for each in found for key in each.words))
    table = Table(
        title="at most, of what is still to be done",
        title_justify="left",
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
    )
    for heading in (*keys, "cells", "done", "calls", "tokens", "USD"):
        table.add_column(heading, justify="left" if heading in keys else "right", no_wrap=heading not in keys)
    for each in found:
        facts = [*(each.words.get(key, "") for key in keys), str(len(each.left)), str(sum(n == 0 for n in each.left))]
        table.add_row(*facts, *(_sums(each.still()) if each.plan else ["?"] * 3))
    table.add_section()
    total = sum((each.still() for each in found if each.plan), Usage())
    cells = [left for each in found for left in each.left]
    counts = [str(len(cells)), str(sum(left == 0 for left in cells))]
    table.add_row(*(["total", *[""] * len(keys)][: len(keys)]), *counts, *_sums(total))
    return table


def _sums(used: Usage) -> list[str]:
    return [f"{used.calls:,}", f"{used.tokens:,}", usd(used.cost_usd)]


def _given(words: list[str], key: str) -> str | None:
    """The value of a key in a command's words; None where it is not there."""
    return next((word.partition("=")[2] for word in reversed(words) if word.lstrip("+").startswith(f"{key}=")), None)


def _short(count: int) -> str:
    return f"{count / 1e6:.1f} M" if count >= 1e6 else f"{count:,}"


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__
