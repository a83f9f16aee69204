"""Estimate a sweep's calls, tokens and cost before it starts: one plan for each configuration, shared by its seeds.

With dry_run=true a sweep prints the prompts and a table of its configurations, and does not start. One that does start
first prints the estimate in one line.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from hydra.utils import get_method
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from core.console import Console
from core.errors import UserError, extra_for
from core.make import plain_data
from core.mistakes import sentence_for
from core.models.cache import recorded_by
from core.run.finalize import finalize
from core.run.launch import program
from core.run.manifest import identity
from core.run.settle import settle
from core.run.sweep import planned
from core.terminal import prose, started
from core.types import Usage, content_id
from workflows.plan import Opened, Plan, plan_of, print_notes, print_prompts, times, usd

HOW = ". dry_run=true says how."


class SweepEstimate(Callback):
    """Before a sweep: print its estimate in one line; with dry_run=true print the whole estimate and exit.

    reach   dotted name of a function (tasks, seeds, comparisons) that says what a study of this size could find
    """

    def __init__(self, reach: str) -> None:
        self.reach = reach

    def on_multirun_start(self, config: DictConfig, **_kwargs: Any) -> None:
        if not config.hydra.sweeper._target_.endswith("BasicSweeper"):
            return  # another sweeper chooses its cells while it runs
        started()
        if (config.get("llm") or {}).get("cache") == "replay" and not config.get("dry_run"):
            with suppress(UserError):  # the file cannot be read: each cell says so
                print(prose(replayed(config.llm)), flush=True)
            return
        _ = config.hydra.sweep.dir  # which the cells' configurations take over: else each would make a new one
        jobs = planned(config, list(config.hydra.overrides.task)) or []
        found = plan_sweep(config, jobs, begin=bool(config.get("dry_run")))
        if config.get("dry_run"):
            sys.exit(print_sweep(found))  # Hydra turns other exceptions here into a warning
        lines = [in_one_line(found), *alike(found), *findable(found, get_method(self.reach))]
        started()  # a server was asked meanwhile
        print(prose("\n".join(lines)), flush=True)


def replayed(llm: DictConfig) -> str:
    """Where the replies of a sweep that calls no model come from, and how they are made anew. Raises UserError."""
    models, days = recorded_by(llm.cache_path)
    words = [word for word in sys.argv[1:] if not word.startswith(("llm.cache=", "run_dir="))]
    command = shlex.join([*program(), *words, "llm.cache=read_write"])
    where = f", with its server at {llm.api_base}" if llm.get("api_base") else ""
    return (
        f"No model is called: the replies were recorded, from {models} on {days} ({llm.cache_path}). All else runs, "
        f"and a prompt that differs stops it. To record anew what differs{where}:\n  {command}"
    )


@dataclass(kw_only=True)
class SeedGroup:
    """The cells of a sweep that differ in nothing but their seed.

    words     the overrides that distinguish it from other groups: {key: value}
    n_cells   number of its cells
    problem   why there is no plan; "" if there is one
    content   an id of its configuration; "" where there is no plan
    """

    words: dict[str, str]
    n_cells: int = 0
    plan: Plan | None = None
    problem: str = ""
    content: str = ""

    @property
    def name(self) -> str:
        """Its overrides as on the command line."""
        return " ".join(f"{key}={value}" for key, value in self.words.items())

    def usage(self, *, least: bool = False) -> Usage:
        """Estimated usage of all its cells, at most or at least; nothing without a plan."""
        if self.plan is None:
            return Usage()
        return times(self.plan.calls(least=True) if least else self.plan.total(), self.n_cells)


def plan_sweep(config: DictConfig, jobs: list[list[str]], *, begin: bool) -> list[SeedGroup]:
    """One plan for each configuration of a sweep, shared by its seeds. No error of one stops the others.

    config   the multirun's, as Hydra passes it to on_multirun_start
    jobs     the words of each cell
    begin    as of `plan_of`
    """
    found, opened = {}, Opened()
    fixed = set.intersection(*map(set, jobs)) if len(jobs) > 1 else set()
    with ExitStack() as stack:
        for number, job in enumerate(jobs):
            key = tuple(word for word in job if not word.startswith("seed="))
            if key not in found:
                words = dict(word.lstrip("+").split("=", 1) for word in key if word not in fixed)
                each = found[key] = SeedGroup(words=words)
                try:
                    cfg = GlobalHydra.instance().config_loader().load_sweep_config(config, job)
                    with hydra_of(cfg, number, job):
                        with open_dict(cfg):
                            cfg = OmegaConf.masked_copy(cfg, [name for name in cfg if name != "hydra"])
                        finalize(cfg)
                        settle(cfg)
                        each.plan = plan_of(cfg, stack, opened, begin=begin)
                        each.content = content_id(identity(plain_data(cfg, resolve=True)))
                except Exception as error:  # noqa: BLE001 - concerns one cell: the others keep their plan
                    each.problem = _first_line(error)
            found[key].n_cells += 1
    return list(found.values())


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


def in_one_line(found: list[SeedGroup]) -> str:
    """The estimate of a whole sweep; what is finished is not asked again."""
    most, least = _sum(found), _sum(found, least=True)
    cost = "USD unknown (no price known for the model)"
    if most.cost_usd is not None:
        cost = f"{usd(least.cost_usd)} to {usd(most.cost_usd)} USD"
    text = f"estimate: {sum(each.n_cells for each in found)} cells; {least.calls:,} to {most.calls:,} calls, "
    text += f"{_short(least.tokens)} to {_short(most.tokens)} tokens, {cost}"
    if missing := [each for each in found if not each.plan]:
        n = sum(each.n_cells for each in missing)
        text += f"; without {n} of them, which could not be estimated ({missing[0].problem})"
    return text + HOW


def alike(found: list[SeedGroup]) -> list[str]:
    """A sentence for each configuration that several groups have, as arms do that a word makes equal."""
    names: dict[str, list[str]] = {}
    for each in found:
        names.setdefault(each.content or each.name, []).append(each.name)
    return [
        f"{' and '.join(same)} are one configuration here: a table has one row for them."
        for same in names.values()
        if len(same) > 1
    ]


def findable(found: list[SeedGroup], reach: Callable[[int, int, int], str]) -> list[str]:
    """What each benchmark of a sweep could find with its tasks and seeds; [] where nothing is compared."""
    by_env: dict[str, list[SeedGroup]] = {}
    for each in found:
        if each.plan:
            by_env.setdefault(each.words.get("env", ""), []).append(each)
    lines = []
    for env, groups in by_env.items():
        if len(groups) > 1:
            n_tasks = min(each.plan.n_tasks for each in groups if each.plan)
            try:
                said = reach(n_tasks, min(each.n_cells for each in groups), len(groups) - 1)
            except ModuleNotFoundError as error:
                sentence = extra_for(error) or f"{error}."
                return [f"neither what it could find nor a table at its end can be computed yet: {sentence}"]
            lines.append(f"{f'{env}: ' if env else ''}{said}, by the guesses of reasoningbank power.")
    return lines


def print_sweep(found: list[SeedGroup]) -> int:
    """Print the prompts of each kind, a table of the configurations and their total. Returns 1 if one has no plan."""
    console = Console(soft_wrap=True)
    plans = [each.plan for each in found if each.plan]
    kinds = {", ".join(f"{count} {kind}" for kind, count in plan.kinds.items()): 0 for plan in plans if plan.kinds}
    problems = {problem: 0 for plan in plans for problem in plan.problems()}
    first = [in_one_line(found).removesuffix(HOW), *(f"answers taken for: {each}" for each in kinds), *problems]
    for line in first:
        console.print(Text(line))
    known: set[tuple[str, str]] = set()
    for each in found:
        if each.plan:
            print_prompts(console, each.plan, known, f" ({each.name})" if each.words else "")
    keys = list(dict.fromkeys(key for each in found for key in each.words)) or [""]
    table = Table(title="at most", title_justify="left", box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for heading in (*keys, "cells", "calls", "tokens", "USD"):
        table.add_column(heading, justify="left" if heading in keys else "right", no_wrap=heading not in keys)
    for each in found:
        amounts = _amounts(each.usage()) if each.plan else ["?"] * 3
        table.add_row(*(each.words.get(key, "") for key in keys), str(each.n_cells), *amounts)
    table.add_section()
    for name, least in {"total": False, "at least": True}.items():
        n_cells = str(sum(each.n_cells for each in found))
        table.add_row(name, *[""] * (len(keys) - 1), n_cells, *_amounts(_sum(found, least=least)))
    Console().print(table)
    for each in found:
        if each.problem:
            console.print(f"{each.name}: {each.problem}", style="red")
    if plans:
        print_notes(console, plans)
    return int(len(plans) < len(found))


def _sum(found: list[SeedGroup], *, least: bool = False) -> Usage:
    return sum((each.usage(least=least) for each in found), Usage())


def _amounts(used: Usage) -> list[str]:
    return [f"{used.calls:,}", f"{used.tokens:,}", usd(used.cost_usd)]


def _short(count: int) -> str:
    return f"{count / 1e6:.1f} M" if count >= 1e6 else f"{count:,}"


def _first_line(error: BaseException) -> str:
    if isinstance(error, HydraException):
        return sentence_for(error, sys.argv[1:]).removeprefix("error: ").partition(" Choose ")[0].rstrip(".")
    return next(iter(str(error).splitlines()), "") or type(error).__name__
