"""Estimate the calls, tokens and cost of a run or a sweep, without calling any model.

With dry_run=true a run prints its first prompts and its estimate, a sweep a table of its cells, and neither starts. A
sweep that does start first prints one line with the estimate of its remaining work.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from core.build import build_meter, build_models, build_roles, make, part, takes
from core.console import Console
from core.errors import UserError
from core.learning.attempts import Attempts
from core.models.base import ChatModel, Reply, Request, Role
from core.models.meter import Meter
from core.page import PAGE, has_page
from core.run.finalize import finalize
from core.run.manifest import recorded_config
from core.run.settle import settle
from core.run.sweep import planned
from core.run.sweep_watch import n_finished
from core.setting import TOLD
from core.types import Message, Selection, Step, Task, Trajectory, Usage, Verdict
from envs.pool import EnvPool
from workflows.build import build_workflow, open_envs, tasks_of
from workflows.reasoningbank import ReasoningBank
from workflows.stored_attempts import StoredRun, stored_run

# Assumptions. The real numbers are in a run's summary.json, after the run.
REPLY_TOKENS = {"agent": 400, "judge": 200, "extractor": 400, "selector": 100}
OBSERVATION_TOKENS = 60
LEFT_OUT_TOKENS = 10  # of the line that replaces an old page, and of an error message
PAGE_TO_JUDGE = 1500  # at most, of the last page in a judge's prompt: a quarter of what the judge reads
LESSON_TOKENS = 100  # title, description and 1 to 3 sentences
CHARS_PER_TOKEN = 4
NO_LIMIT = 10**9  # tokens
RETRIES = 0.05  # share of calls that are repeated: provider errors, and tasks that ended with an infra error
PLACEHOLDER = "(the attempt will stand here)"
ATTEMPT = Trajectory(
    id="",
    sample=0,
    opening=(),
    steps=(Step(text=PLACEHOLDER, thought="", action=PLACEHOLDER, observation=""),),
    answer=PLACEHOLDER,
    ended_by="end",
    reward=0.0,
    success=False,
    gold="",
)
A_PAGE = f"{PAGE}\n(a page will stand here)"
QUERY_CHARS = 300  # of a task that is not loaded
PATIENCE_S = 10.0  # time limit of the estimate before a sweep
CLOSING = "Nothing was called and nothing recorded."


@dataclass(kw_only=True)
class Listener(ChatModel):
    """Stand-in for a model: stores the messages of each call in `heard` and replies with an empty text."""

    name: str
    supports_schema: bool
    heard: list[list[Message]] = field(default_factory=list, init=False)

    def chat(self, request: Request) -> Reply:
        self.heard.append(request.messages)
        return Reply(text="", usage=Usage(), finish_reason="stop", model=self.name)


@dataclass(frozen=True, kw_only=True)
class Lessons:
    """Assumptions about the lessons in a prompt.

    records     number of retrieved records, at most (top_k); 0: no lessons
    items       lessons per record
    tokens      tokens per lesson
    most        maximum tokens of all lessons together; lessons beyond it are left out
    whole       a record is a whole attempt, not sentences about it
    from_start  a bank was given, so the first task retrieves lessons too
    """

    records: int = 0
    items: int = 0
    tokens: int = LESSON_TOKENS
    most: int = 0
    whole: bool = False
    from_start: bool = False

    def over(self, n_tasks: int) -> int:
        """Tokens of the lessons in one prompt per task, summed over all tasks. Unless `from_start`, the bank begins
        empty and grows by a record a task.
        """
        shown = (self.records if self.from_start else min(self.records, place) for place in range(n_tasks))
        return sum(min(self.most, n * self.items * self.tokens) for n in shown)

    def text(self) -> str:
        """The assumptions in words; "" if no lessons are shown."""
        if not self.records * self.items:
            return ""
        what = "whole attempt" if self.whole else "lesson"
        most = f"{self.records} x {self.items} x {self.tokens} tokens (records x {what}s x length)"
        most += f", {self.most} at most" if self.records * self.items * self.tokens > self.most else ""
        return most + ("" if self.from_start else "; the first task none")


@dataclass(kw_only=True)
class Plan:
    """A run's estimate before it starts, and what it is computed from.

    steps        maximum steps of one attempt; 0: none is made, the prompts in `asked` hold the longest stored ones
    asked        {role: the messages of each of its calls for one task}, without retrieved lessons and with a
                 placeholder for each attempt; an attempt counts as one call of the agent
    observation  tokens of one observation, except the first
    kept         how many of the newest pages a prompt of the agent contains, if observations are pages; None: all
    unseen       the agent's first prompt in `asked` lacks its page
    rounds       number of attempts that follow each other in one conversation
    lessons      assumptions about the lessons in the agent's prompts
    """

    tasks: list[Task]
    steps: int
    roles: dict[str, Role]
    asked: dict[str, list[list[Message]]]
    observation: int = OBSERVATION_TOKENS
    kept: int | None = None
    unseen: bool = False
    rounds: int = 1
    lessons: Lessons = Lessons()

    def estimate(self, role: str) -> Usage:
        """Upper bound of a role's usage in the run. The agent's prompt grows with each step; other roles read each
        attempt once.
        """
        first = sum(len(message["content"]) for message in self.asked[role][0]) // CHARS_PER_TOKEN
        reply = self.reply(role)
        attempts, calls = len(self.asked.get("agent", ())), len(self.asked[role])
        turn = reply + (self.observation if self.kept is None else LEFT_OUT_TOKENS)
        prompt = 0
        if role == "agent":
            steps, times = self.steps * self.rounds, len(self.tasks) * calls // self.rounds
            read = turn * steps * (steps - 1) // 2 + self.pages(steps)
            prompt = self.lessons.over(len(self.tasks)) * (calls // self.rounds) * steps
        else:
            steps, times = 1, len(self.tasks) * calls
            read = turn * self.steps * attempts // calls
            read += 0 if self.kept is None else min(self.observation, PAGE_TO_JUDGE)
        prompt += times * (steps * first + read)
        completion = times * steps * reply
        cost = self.roles[role].llm.price(prompt, completion)
        return Usage(calls=times * steps, prompt_tokens=prompt, completion_tokens=completion, cost_usd=cost)

    def pages(self, steps: int) -> int:
        """Tokens of the pages in the agent's prompts that `estimate` counts neither in `first` nor in a turn."""
        if self.kept is None:
            return self.observation * steps * self.unseen
        return self.observation * sum(min(n, self.kept) - (not self.unseen) for n in range(1, steps + 1))

    def reply(self, role: str) -> int:
        """Assumed tokens of a role's reply."""
        return min(REPLY_TOKENS[role], self.roles[role].max_tokens or REPLY_TOKENS[role])

    def retries(self) -> Usage:
        """Usage of repeated calls."""
        return times(self.calls(), RETRIES)

    def calls(self) -> Usage:
        """Usage of all roles, without retries."""
        return sum(map(self.estimate, self.asked), Usage())

    def total(self) -> Usage:
        """Usage of all roles, with retries."""
        return self.calls() + self.retries()

    def problems(self) -> list[str]:
        """Why its models cannot be called (`ChatModel.problem`), each reason once."""
        found = dict.fromkeys(self.roles[role].llm.problem() for role in self.asked)
        return [problem for problem in found if problem]


def dry_run(cfg: DictConfig, run_dir: Path, stack: ExitStack) -> Plan:
    """The plan of a single run with dry_run=true. run_dir: may hold an earlier start, with the models' names."""
    if (stored := stored_run(cfg)) is not None:
        envs, tasks = open_envs(cfg, stack, stored), stored.tasks
    else:
        envs, stream = open_envs(cfg, stack), make(cfg.stream)
        with envs.lease() as env:
            tasks = tasks_of(cfg, env, stream)
            if cfg.setting.name == TOLD:
                env.lessons()  # raises UserError where it has none
    models = build_models(cfg, stack, recorded_config(run_dir))
    return build_plan(cfg, envs, tasks, build_roles(cfg, models, build_meter(cfg)), stored=stored)


def build_plan(
    cfg: Any,
    envs: EnvPool,
    tasks: list[Task],
    roles: dict[str, Role],
    *,
    begin: bool = True,
    stored: StoredRun | None = None,
) -> Plan:
    """The plan of a run: the workflow's steps are run on placeholder attempts, with Listeners as models.

    begin   True: begin the first task in its env, so that the agent's first prompt is the real one; False: use the
            task's query in place of the first observation, and start no engine
    stored  with attempts_from: that run, whose longest attempts are read in place of placeholders; no agent is asked
    """
    listeners = {
        name: Listener(name=role.llm.name, supports_schema=role.llm.supports_schema) for name, role in roles.items()
    }
    listening = {name: replace(role, llm=listeners[name], meter=Meter()) for name, role in roles.items()}
    # The bank's class is passed instead of a bank: only its class attribute `learns` is read.
    workflow = build_workflow(cfg, envs, part(cfg.memory), listening, None, Meter(), stored)
    rounds = 1 + (workflow.r or 0)
    label = "success" if workflow.learn_from == "both" else workflow.learn_from
    n_attempts = (workflow.k or 1) * rounds
    attempts = stored.longest()[:n_attempts] if stored else [ATTEMPT] * n_attempts
    verdicts = [Verdict(label=label, source="none")] * len(attempts)
    first = Selection(index=0, by="first")
    made = Attempts(task=tasks[0], trajectories=attempts, evaluate=lambda _: verdicts, select=lambda _: first)
    if takes(cfg.judge, "role"):  # a part without this field calls no model
        workflow.evaluate(made)
    if takes(cfg.select, "role"):
        workflow.select(made)
    workflow.extract(made, [])
    heard = {name: each.heard for name, each in listeners.items() if each.heard}
    if stored is not None:
        return Plan(tasks=tasks, steps=0, roles=roles, asked=heard)
    with envs.lease() as env:
        page_tokens = env.page_tokens
        begin = begin and page_tokens is None
        observation = env.reset(tasks[0]) if begin else tasks[0].query + (f"\n\n{A_PAGE}" if page_tokens else "")
        opening = workflow.rollout.agent.opening(observation, env.instructions, [])
        steps = cfg.max_steps or env.max_steps
        length = page_tokens or (len(observation) // CHARS_PER_TOKEN if env.pages and begin else OBSERVATION_TOKENS)
    kept = workflow.rollout.agent.keep_observations if has_page(observation) else None
    n_agent = len(attempts) + workflow.judge.n_more
    asked = {"agent": [opening] * n_agent} | heard
    turns = steps * (REPLY_TOKENS["agent"] + (length if kept is None else LEFT_OUT_TOKENS))
    lessons = planned_lessons(
        cfg, workflow, n_attempts=len(attempts), n_asked=len(asked.get("extractor", ())), turns=turns
    )
    plan = {"tasks": tasks, "steps": steps, "roles": roles, "asked": asked, "rounds": rounds, "lessons": lessons}
    return Plan(**plan, observation=length, kept=kept, unseen=bool(page_tokens))


def planned_lessons(cfg: Any, workflow: ReasoningBank, *, n_attempts: int, n_asked: int, turns: int) -> Lessons:
    """Assumptions about the lessons in a prompt: top_k records of lessons of usual length.

    n_asked   number of the extractor's calls for one task; 0: no model writes lessons, attempts are stored whole
    turns     tokens of one attempt
    """
    if not (workflow.has_memory and workflow.bank.learns):
        return Lessons()
    chars = workflow.rollout.agent.max_memory_chars
    limits = [None if chars is None else chars // CHARS_PER_TOKEN, cfg.memory.get("max_tokens")]
    longest = turns if cfg.details.whole_attempts else min(turns, workflow.distiller.max_chars // CHARS_PER_TOKEN)
    whole = workflow.learns and not n_asked
    return Lessons(
        records=cfg.retrieval.get("top_k", 1),
        items=1 if cfg.memory.get("unit") == "item" else workflow.lesson_maker(n_attempts).max_items,
        tokens=longest if whole else LESSON_TOKENS,
        most=min(limit for limit in (*limits, NO_LIMIT) if limit is not None),
        whole=whole,
        from_start=cfg.memory.get("path") is not None,
    )


def print_plan(plan: Plan) -> None:
    """Print the first prompts, the estimate by role with its decoding, and the assumptions."""
    console = Console(soft_wrap=True)
    print_prompts(console, plan, set())
    console.print(_run_table(plan))
    print_problems(console, [plan])
    console.print(assumed([plan]))
    console.print(CLOSING)


def print_prompts(console: Console, plan: Plan, known: set[tuple[str, str]], whose: str = "") -> None:
    """Print the first prompt of each role, unless a prompt of this role with the same first message is `known`.

    known   (role, first message) of the prompts printed so far; added to
    whose   appended to the headings
    """
    for role, calls in plan.asked.items():
        kind = (role, calls[0][0]["content"])
        if kind in known:
            continue
        known.add(kind)
        for message in calls[0]:
            console.rule(f"{role}: first prompt, {message['role']}{whose}", align="left")
            console.print(Text(message["content"]))


def print_problems(console: Console, plans: list[Plan]) -> None:
    """Print why models cannot be called yet, each reason once."""
    for problem in dict.fromkeys(problem for plan in plans for problem in plan.problems()):
        console.print(f"to run it: {problem}", style="red")


def assumed(plans: list[Plan]) -> Table:
    """A table of the assumptions and their numbers."""
    table = Table(title="assumed", title_justify="left", show_header=False, box=None, pad_edge=False)
    steps = sorted({plan.steps for plan in plans})
    said = "{}: every attempt takes all it may" if any(steps) else "stored, each as long as the longest"
    table.add_row("steps of an attempt", said.format(" or ".join(map(str, steps))))
    for role in dict.fromkeys(role for plan in plans for role in plan.asked):
        lengths = sorted({plan.reply(role) for plan in plans if role in plan.asked})
        table.add_row(f"a reply of the {role}", f"{' or '.join(map(str, lengths))} tokens")
    if max(steps) > 1:
        lengths = sorted({plan.observation for plan in plans})
        kept = sorted({plan.kept for plan in plans if plan.kept})
        only = f"; of pages the newest {' or '.join(map(str, kept))} in a prompt" if kept else ""
        table.add_row("an observation", f"{' or '.join(map(str, lengths))} tokens{only}")
    texts = dict.fromkeys(text for plan in plans if (text := plan.lessons.text()))
    table.add_row("lessons in a prompt", "\n".join(texts) or "none")
    table.add_row("a token", f"{CHARS_PER_TOKEN} characters of the prompts shown")
    table.add_row("retries", f"{100 * RETRIES:g} % of all calls are made twice")
    table.add_row("not counted", "what a provider's prompt cache saves; embeddings; the bank's own work")
    return table


def _run_table(plan: Plan) -> Table:
    table = Table(title=f"{len(plan.tasks)} tasks, at most", title_justify="left")
    for heading in ("role", "model and decoding", "calls", "prompt", "reply", "USD"):
        table.add_column(heading, justify="left" if heading in ("role", "model and decoding") else "right")
    for name in plan.asked:
        role = plan.roles[name]
        decoding = {"temperature": role.temperature, "max_tokens": role.max_tokens, "seed": role.seed} | role.more
        given = " ".join(f"{key}={value}" for key, value in decoding.items() if value is not None)
        table.add_row(name, f"{role.llm.name}\n{given}", *_numbers(plan.estimate(name)))
    table.add_row("retries", f"{100 * RETRIES:g} %", *_numbers(plan.retries()))
    table.add_section()
    table.add_row("total", "", *_numbers(plan.total()))
    return table


def _numbers(used: Usage) -> list[str]:
    counts = (used.calls, used.prompt_tokens, used.completion_tokens)
    return [*(f"{n:,}" for n in counts), usd(used.cost_usd)]


class SweepEstimate(Callback):
    """Before a sweep: print the estimate of its remaining work in one line; with dry_run=true print the whole estimate
    and exit.
    """

    def on_multirun_start(self, config: DictConfig, **_kwargs: Any) -> None:
        if not config.hydra.sweeper._target_.endswith("BasicSweeper"):
            return  # another sweeper chooses its cells while it runs
        overrides = list(config.hydra.overrides.task)
        if str(_given(overrides, "dry_run")).lower() == "true":
            sys.exit(dry_run_sweep(config, overrides))  # Hydra turns other exceptions here into a warning
        estimate_sweep(config, overrides)


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


def estimate_sweep(config: DictConfig, overrides: list[str], console: Console | None = None) -> None:
    """Print one line with the calls, tokens and USD of a sweep's remaining work.

    config      the multirun's, as Hydra passes it to on_multirun_start
    overrides   the words of its command, with sweeps as they were typed

    Limited to about PATIENCE_S, and raises nothing: a failed estimate is reported in the line.
    """
    console = console or Console()
    try:
        text = _line(plan_sweep(config, overrides, quick=True))
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
            tasks = stream.every_pass(stand_ins(cfg.limit))
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
        raise UserError("its engine alone knows how many tasks there are: dry_run=true asks it, or give a limit")
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
        text += f"; without {sum(len(each.left) for each in missing)} cells that have none ({missing[0].problem})"
    return text + ". dry_run=true says how."


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
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def times(usage: Usage, factor: float) -> Usage:
    """The usage multiplied by a factor."""
    counts = ("calls", "prompt_tokens", "completion_tokens")
    cost = None if usage.cost_usd is None else usage.cost_usd * factor
    return Usage(**{name: round(getattr(usage, name) * factor) for name in counts}, cost_usd=cost)


def usd(value: float | None) -> str:
    """A cost as text; "unknown" for None."""
    return "unknown" if value is None else f"{value:.4f}" if value < 1 else f"{value:,.2f}"
