"""Estimate a sweep's calls, tokens and cost before it starts: one plan for each configuration, shared by its seeds.

With dry_run=true a sweep prints a table of its cells and does not start. One that does start first prints one line with
the estimate of its remaining work.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from hydra.utils import get_method
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException
from rich.box import SIMPLE_HEAD
from rich.table import Table

from core.build import build_meter, build_models, build_roles, make, part
from core.console import Console
from core.errors import UserError, extra_for
from core.mistakes import sentence_for
from core.run.finalize import finalize
from core.run.settle import settle
from core.run.sweep import planned
from core.run.sweep_watch import n_finished
from core.terminal import started
from core.types import Task, Usage
from envs.pool import EnvPool
from workflows.build import open_envs, tasks_of
from workflows.plan import CLOSING, Plan, assumed, build_plan, print_problems, print_prompts, times, usd

QUERY_CHARS = 300  # of a task that is not loaded
Reach = Callable[[int, int, int], str]
PATIENCE_S = 10.0  # time limit of the estimate before a sweep


class SweepEstimate(Callback):
    """Before a sweep: print the estimate of its remaining work in one line; with dry_run=true print the whole estimate
    and exit.

    reach   dotted name of a function (tasks, seeds, comparisons) that says what a study of this size could find
    """

    def __init__(self, reach: str) -> None:
        self.reach = reach

    def on_multirun_start(self, config: DictConfig, **_kwargs: Any) -> None:
        if not config.hydra.sweeper._target_.endswith("BasicSweeper"):
            return  # another sweeper chooses its cells while it runs
        started()
        _ = config.hydra.sweep.dir  # which the cells' configurations take over: else each would make a new one
        overrides = list(config.hydra.overrides.task)
        if str(_given(overrides, "dry_run")).lower() == "true":
            sys.exit(dry_run_sweep(config, overrides))  # Hydra turns other exceptions here into a warning
        estimate_sweep(config, overrides, reach=get_method(self.reach))


@dataclass(kw_only=True)
class SeedGroup:
    """The cells of a sweep that differ in nothing but their seed.

    words     the overrides that distinguish it from other groups: {key: value}
    left      for each cell, the share of its tasks without an episode: 1.0 not begun, 0.0 finished
    problem   why there is no plan; "" if there is one
    """

    words: dict[str, str]
    left: list[float] = field(default_factory=list)
    plan: Plan | None = None
    problem: str = ""

    @property
    def name(self) -> str:
        """Its overrides as on the command line."""
        return " ".join(f"{key}={value}" for key, value in self.words.items())

    def still(self) -> Usage:
        """Estimated usage of the remaining tasks of its cells, summed."""
        return times(self.plan.total(), sum(self.left)) if self.plan else Usage(cost_usd=None)


def estimate_sweep(
    config: DictConfig, overrides: list[str], console: Console | None = None, reach: Reach | None = None
) -> None:
    """Print one line with the calls, tokens and USD of a sweep's remaining work, and one with what it could find.

    config      the multirun's, as Hydra passes it to on_multirun_start
    overrides   the words of its command, with sweeps as they were typed
    reach       as of `SweepEstimate`; None: that line is left out

    Limited to about PATIENCE_S, and raises nothing: a failed estimate is reported in the line.
    """
    console = console or Console()
    try:
        found = plan_sweep(config, overrides, quick=True)
        text = "\n".join([_line(found), *(_findable(found, reach) if reach else ())])
    except Exception as error:  # noqa: BLE001 - the sweep itself reports it, with more detail
        text = f"estimate: not possible ({_first_line(error)})."
    console.print(text, soft_wrap=True)


def dry_run_sweep(config: DictConfig, overrides: list[str]) -> int:
    """Print the prompts of each kind, a table of the cells and their total. Returns 1 if a cell has no plan, else 0."""
    console = Console(soft_wrap=True)
    found = plan_sweep(config, overrides, quick=False)
    known: set[tuple[str, str]] = set()
    for each in found:
        if each.plan:
            print_prompts(console, each.plan, known, f" ({each.name})" if each.words else "")
    Console().print(_sweep_table(found))
    plans = [each.plan for each in found if each.plan]
    for each in found:
        if each.problem:
            console.print(f"{each.name}: {each.problem}", style="red")
    print_problems(console, plans)
    if plans:
        Console().print(assumed(plans))
    console.print(CLOSING)
    return int(len(plans) < len(found))


def plan_sweep(config: DictConfig, overrides: list[str], *, quick: bool) -> list[SeedGroup]:
    """One plan for each configuration of a sweep, shared by its seeds.

    quick   start no engine, and skip the configurations that are left after PATIENCE_S
    """
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
                each, cfg = found[key] = SeedGroup(words=words), None
                try:
                    if quick and time.monotonic() - began > PATIENCE_S:
                        raise TimeoutError("not looked at")
                    cfg = composed(config, job)
                    with hydra_of(cfg, number, job):
                        each.plan = plan_cell(cfg, envs, stack, begin=not quick)
                    found[key] = each, cfg
                except Exception as error:  # noqa: BLE001 - concerns one cell: the others keep their plan
                    each.problem = _first_line(error)
            each.left.append(1.0 if cfg is None else left_of(cfg, number, job, each.plan))
    return [each for each, _ in found.values()]


def composed(config: DictConfig, job: list[str]) -> DictConfig:
    """The composed configuration of a cell, including the node `hydra`."""
    return GlobalHydra.instance().config_loader().load_sweep_config(config, job)


@contextmanager
def hydra_of(cfg: DictConfig, number: int, job: list[str]) -> Iterator[None]:
    """Set HydraConfig as in the cell's own run; restore it on exit."""
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
    """The share of a cell's tasks without an episode in its folder; 1.0 if that cannot be determined."""
    seed = _given(job, "seed")
    try:
        if seed is not None:
            cfg.seed = int(seed)
        with hydra_of(cfg, number, job):
            folder = Path(str(cfg.hydra.sweep.dir)) / str(cfg.hydra.sweep.subdir)
        if not (folder / "manifest.json").is_file():
            return 1.0
        n_tasks = len(plan.tasks) if plan else len(json.loads((folder / "manifest.json").read_bytes())["task_ids"])
        return max(0.0, 1 - n_finished(folder / "episodes.jsonl") / max(1, n_tasks))
    except (OSError, ValueError, KeyError, TypeError, OmegaConfBaseException):  # the cell's run reports it
        return 1.0


def plan_cell(cfg: DictConfig, envs: dict[str, tuple[EnvPool, list[Task]]], stack: ExitStack, *, begin: bool) -> Plan:
    """The plan of one cell. envs: a cache over all cells, {configuration: (envs, tasks)}; added to."""
    with open_dict(cfg):
        cfg = OmegaConf.masked_copy(cfg, [key for key in cfg if key != "hydra"])
    finalize(cfg)
    settle(cfg)
    key = json.dumps([OmegaConf.to_container(node, resolve=True) for node in (cfg.env, cfg.stream)] + [cfg.limit])
    if key not in envs:
        pool, stream = open_envs(cfg, stack), make(cfg.stream)
        if not begin and part(cfg.env).slow_to_list:
            tasks = stream.every_pass(stream.ordered(stand_ins(cfg.limit or stream.first), cfg.seed)[: cfg.limit])
        else:
            with pool.lease() as env:
                tasks = tasks_of(cfg, env, stream)
        envs[key] = pool, tasks
    pool, tasks = envs[key]
    roles = build_roles(cfg, build_models(cfg, stack), build_meter(cfg))
    return build_plan(cfg, pool, tasks, roles, begin=begin)


def stand_ins(limit: int | None) -> list[Task]:
    """`limit` placeholder tasks of QUERY_CHARS, for an env that takes too long to list its tasks."""
    if limit is None:
        raise UserError("only its engine knows how many tasks there are: dry_run=true asks it, or give a limit")
    return [Task(id=f"task {n}", query="x" * QUERY_CHARS) for n in range(limit)]


def _line(found: list[SeedGroup]) -> str:
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
        n = sum(len(each.left) for each in missing)
        text += f"; {n} more cells could not be estimated ({missing[0].problem})"
    return text + ". dry_run=true says how."


def _findable(found: list[SeedGroup], reach: Reach) -> list[str]:
    """What each benchmark of a sweep could find with its tasks and seeds; [] where nothing is compared."""
    by_env: dict[str, list[SeedGroup]] = {}
    for each in found:
        by_env.setdefault(each.words.get("env", ""), []).append(each)
    lines = []
    for env, groups in by_env.items():
        planned = [each for each in groups if each.plan]
        if len(planned) > 1:
            n_tasks = min(len(each.plan.tasks) for each in planned if each.plan)
            try:
                said = reach(n_tasks, min(len(each.left) for each in planned), len(planned) - 1)
            except ModuleNotFoundError as error:
                sentence = extra_for(error) or f"{error}."
                return [f"neither what it could find nor a table at its end can be computed yet: {sentence}"]
            lines.append(f"{f'{env}: ' if env else ''}{said} (reasoningbank power).")
    return lines


def _sweep_table(found: list[SeedGroup]) -> Table:
    """One row per configuration: a column for each key that varies, then the estimate summed over its seeds."""
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
    """The value of a key in a command's words; None if it is missing."""
    return next((word.partition("=")[2] for word in reversed(words) if word.lstrip("+").startswith(f"{key}=")), None)


def _short(count: int) -> str:
    return f"{count / 1e6:.1f} M" if count >= 1e6 else f"{count:,}"


def _first_line(error: BaseException) -> str:
    if isinstance(error, HydraException):
        return sentence_for(error, sys.argv[1:]).removeprefix("error: ").partition(" Choose ")[0].rstrip(".")
    return next(iter(str(error).splitlines()), "") or type(error).__name__
