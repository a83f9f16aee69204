"""Estimate the calls, tokens and cost of a run without calling any model: each role's first prompt, multiplied.

With dry_run=true a run prints these prompts and its estimate, and does not start. A sweep's: workflows/plan_sweep.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from omegaconf import DictConfig
from rich.table import Table
from rich.text import Text

from core.build import build_bank, build_meter, build_models, build_roles
from core.console import Console
from core.errors import InfraError
from core.learning.attempts import Attempts
from core.make import make, make_with, part, plain_data, takes
from core.models.base import ChatModel, Reply, Request, Role
from core.models.embedding import HashingEmbedder
from core.models.meter import Meter
from core.run.launch import in_sweep
from core.run.manifest import recorded_config
from core.run.sweep_watch import duration
from core.setting import TOLD
from core.types import Lesson, Message, Selection, Step, Task, Trajectory, Usage, Verdict
from envs.pool import EnvPool
from workflows.build import AssembledRun, build_workflow, open_envs, tasks_of
from workflows.reasoningbank import ReasoningBank
from workflows.stored_attempts import StoredRun, stored_run

# Assumptions. The real numbers are in a run's summary.json, after the run.
REPLY_TOKENS = {"agent": 400, "judge": 200, "extractor": 400, "selector": 100, "grader": 60}
OBSERVATION_TOKENS = 60
LESSON_TOKENS = 100  # title, description and 1 to 3 sentences
CHARS_PER_TOKEN = 4
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
MANY_CALLS = 1000  # from so many on, a run says before it starts how many it may make
CLOSING = "Nothing was called and nothing recorded."
Opened = dict[str, tuple[EnvPool, list[Task]]]


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
class Plan:
    """What a run's estimate is computed from.

    steps        maximum steps of one attempt; 0: none is made, the prompts in `asked` hold stored ones
    asked        {role: the messages of each of its calls for one task}, without retrieved lessons and with a
                 placeholder for each attempt; an attempt counts as one call of the agent
    observation  tokens of one observation
    kept         how many of the newest observations a prompt of the agent contains; None: all
    unseen       the agent's first prompt in `asked` lacks the first observation, which has `observation` tokens
    rounds       number of attempts that follow each other in one conversation
    kinds        {how an answer is read (`BaseEnv.answer_kind`), with the first such answer: number of such tasks}
    others       {kind: the agent's first prompt for a task of it}, of all kinds but the first task's
    lessons      tokens of the lessons in a prompt of the agent, at most
    """

    n_tasks: int
    steps: int
    roles: dict[str, Role]
    asked: dict[str, list[list[Message]]]
    observation: int = OBSERVATION_TOKENS
    kept: int | None = None
    unseen: bool = False
    rounds: int = 1
    kinds: dict[str, int] = field(default_factory=dict)
    others: dict[str, list[Message]] = field(default_factory=dict)
    lessons: int = 0

    def estimate(self, role: str, *, least: bool = False) -> Usage:
        """Usage of a role in the run, at most: every attempt takes all its steps, every prompt is full of lessons.

        The agent's prompt grows with each step; other roles read each attempt once.

        least   if every attempt takes one step, and no lesson is shown
        """
        steps, lessons = (min(1, self.steps), 0) if least else (self.steps, self.lessons)
        first = sum(len(message["content"]) for message in self.asked[role][0]) // CHARS_PER_TOKEN
        calls = len(self.asked[role])
        if role == "agent":
            first += lessons + self.observation * self.unseen
            times, turns = self.n_tasks * calls // self.rounds, range(steps * self.rounds)
            prompts = [first + self.read(n, None if self.kept is None else self.kept - 1) for n in turns]
        else:
            times = self.n_tasks * calls
            prompts = [first + self.read(steps, self.kept) * len(self.asked.get("agent", ())) // calls]
        prompt, completion = times * sum(prompts), times * len(prompts) * self.reply(role)
        cost = self.roles[role].llm.price(prompt, completion)
        return Usage(calls=times * len(prompts), prompt_tokens=prompt, completion_tokens=completion, cost_usd=cost)

    def read(self, steps: int, kept: int | None) -> int:
        """Tokens of so many steps in a prompt: the replies, and the observations that are kept."""
        return steps * REPLY_TOKENS["agent"] + self.observation * (steps if kept is None else min(steps, kept))

    def reply(self, role: str) -> int:
        """Assumed tokens of a role's reply."""
        return min(REPLY_TOKENS[role], self.roles[role].max_tokens or REPLY_TOKENS[role])

    def calls(self, *, least: bool = False) -> Usage:
        """Usage of all roles, without repeated calls."""
        return sum((self.estimate(role, least=least) for role in self.asked), Usage())

    def retries(self) -> Usage:
        """Usage of repeated calls, at most."""
        return times(self.calls(), RETRIES)

    def total(self) -> Usage:
        """Usage of all roles with repeated calls, at most."""
        return self.calls() + self.retries()

    def problems(self) -> list[str]:
        """Why its models cannot be called (`ChatModel.problem`), each reason once."""
        found = dict.fromkeys(self.roles[role].llm.problem() for role in self.asked)
        return [problem for problem in found if problem]


def plan_of(cfg: DictConfig, stack: ExitStack, opened: Opened, *, run_dir: Path | None = None, begin: bool) -> Plan:
    """The plan of a run. cfg: its configuration, settled.

    opened   envs and tasks of the plans before this one, for runs with the same env; added to
    run_dir  may hold an earlier start, with the models' names
    begin    begin the first task in its env, so that the agent's first prompt is the real one; else the task's query
             stands in place of the first observation
    """
    stored = stored_run(cfg)
    key = str([plain_data(cfg.env, resolve=True), plain_data(cfg.stream, resolve=True), cfg.limit, cfg.attempts_from])
    if key not in opened:
        envs = open_envs(cfg, stack, stored)
        with envs.lease() as env:
            opened[key] = envs, stored.tasks if stored else tasks_of(cfg, env, make(cfg.stream))
            if cfg.setting.name == TOLD and not stored:
                env.lessons()  # raises UserError where it has none
    models = build_models(cfg, stack, recorded_config(run_dir) if run_dir else {})
    roles = build_roles(cfg, models, build_meter(cfg))
    return build_plan(cfg, *opened[key], roles, stack, begin=begin, stored=stored)


def build_plan(
    cfg: Any,
    envs: EnvPool,
    tasks: list[Task],
    roles: dict[str, Role],
    stack: ExitStack,
    *,
    begin: bool,
    stored: StoredRun | None = None,
) -> Plan:
    """The plan of a run: the workflow's steps are run on placeholder attempts, with Listeners as models.

    stored  with attempts_from: that run, whose longest attempts are read in place of placeholders; no agent is asked
    """
    listeners = {
        name: Listener(name=role.llm.name, supports_schema=role.llm.supports_schema) for name, role in roles.items()
    }
    listening = {name: replace(role, llm=listeners[name], meter=Meter()) for name, role in roles.items()}
    workflow = build_workflow(cfg, envs, _empty_bank(cfg, listening, stack), listening, None, Meter(), stored)
    rounds = 1 + (workflow.r or 0)
    label = "success" if workflow.learn_from == "both" else workflow.learn_from
    n_attempts = (workflow.k or 1) * rounds
    attempts = stored.longest()[:n_attempts] if stored else [ATTEMPT] * n_attempts
    labels = ("success", "failure") if cfg.contrast and takes(cfg.contrast, "bank") else (label,)
    verdicts = [Verdict(label=labels[number % len(labels)], source="none") for number in range(len(attempts))]
    first = Selection(index=0, by="first")
    made = Attempts(task=tasks[0], trajectories=attempts, evaluate=lambda _: verdicts, select=lambda _: first)
    if takes(cfg.judge, "role"):  # a part without this field calls no model
        workflow.evaluate(made)
    if takes(cfg.select, "role"):
        workflow.select(made)
    workflow.extract(made, [])
    if cfg.retrieval.get("by") == "model":  # of retrieval=corrupt, whose calls are counted with the extractor's here
        lesson = Lesson(title=PLACEHOLDER, description="", content=PLACEHOLDER)
        make_with(cfg.retrieval, {"role": listening["extractor"]}).ask(tasks[0], (lesson,))
    if (open_answers := envs.handed["open_answers"]) is not None:
        with suppress(InfraError):  # what it hears is no verdict
            open_answers(tasks[0], [PLACEHOLDER], PLACEHOLDER)
    heard = {name: each.heard for name, each in listeners.items() if each.heard}
    tries = 2 * workflow.gate.n if workflow.gate else 0  # of each task's lessons, with and without them, at most
    if tries and "judge" in heard:
        heard["judge"] += heard["judge"][:1] * tries
    if stored is not None:
        return Plan(n_tasks=len(tasks), steps=0, roles=roles, asked=heard)
    agent = workflow.rollout.agent
    with envs.lease() as env:
        begin = begin and env.page_tokens is None
        observation = env.reset(tasks[0]) if begin else tasks[0].query
        opening = agent.opening(observation, env.instructions, [])
        kinds, others, golds = Counter(map(env.answer_kind, tasks)), {}, {}
        for kind, task in {env.answer_kind(task): task for task in reversed(tasks)}.items() if begin else ():
            if kind:
                others[kind] = agent.opening(env.reset(task), env.instructions, [])
                golds[kind] = f" ({' '.join(str(env.get_ground_truth()).split())[:30]})"
        others.pop(env.answer_kind(tasks[0]), None)
        length = len(observation) // CHARS_PER_TOKEN if env.pages and begin else OBSERVATION_TOKENS
        steps, length, paged = cfg.max_steps or env.max_steps, env.page_tokens or length, env.page_tokens or env.pages
    plan = Plan(
        n_tasks=len(tasks),
        steps=steps,
        roles=roles,
        asked={"agent": [opening] * (len(attempts) + workflow.judge.n_more + tries)} | heard,
        observation=length,
        kept=agent.keep_observations if paged else None,
        unseen=bool(env.page_tokens),
        rounds=rounds,
        kinds={kind + golds.get(kind, ""): n for kind, n in kinds.items()} if kinds.keys() != {""} else {},
        others=others,
    )
    whole = workflow.learns and "extractor" not in heard  # no model writes lessons: a record is a whole attempt
    return replace(plan, lessons=lesson_tokens(cfg, workflow, len(attempts), plan.read(steps, None) if whole else None))


def reads_bank(cfg: Any) -> bool:
    """Whether what makes the lessons reads the bank, where it keeps notes of its own."""
    return any(takes(node, "bank") for node in (cfg.distiller, cfg.contrast) if node)


def _empty_bank(cfg: Any, roles: dict[str, Role], stack: ExitStack) -> Any:
    """An empty bank, for parts that read it; else its class is enough, whose attribute `learns` alone is read."""
    if not reads_bank(cfg):
        return part(cfg.memory)
    bank = build_bank(cfg, HashingEmbedder(), roles, f"{stack.enter_context(TemporaryDirectory())}/bank.sqlite")
    stack.callback(bank.close)
    return bank


def lesson_tokens(cfg: Any, workflow: ReasoningBank, n_attempts: int, attempt: int | None) -> int:
    """Tokens of the lessons in a prompt, at most: top_k records with all the lessons that they may have.

    attempt   tokens of an attempt, if a record is a whole one; else None
    """
    if not (workflow.has_memory and workflow.bank.learns):
        return 0
    most = [cfg.memory.get("max_tokens")]
    if (chars := workflow.rollout.agent.max_memory_chars) is not None:
        most.append(chars // CHARS_PER_TOKEN)
    if attempt is not None and not cfg.details.whole_attempts:
        attempt = min(attempt, workflow.distiller.max_chars // CHARS_PER_TOKEN)
    items = 1 if cfg.memory.get("unit") == "item" else workflow.lesson_maker(n_attempts).max_items
    shown = cfg.retrieval.get("top_k", 1) * items * (LESSON_TOKENS if attempt is None else attempt)
    known = [limit for limit in most if limit is not None]
    return min(known if known and reads_bank(cfg) else [shown, *known])  # notes grow until the prompt is full


def print_plan(plan: Plan) -> None:
    """Print what matters in three lines, the first prompts, the estimate by role with its decoding, and the
    assumptions."""
    console = Console(soft_wrap=True)
    for line in headline(plan):
        console.print(Text(line))
    print_prompts(console, plan, set())
    table = Table(title=f"{plan.n_tasks} tasks, at most", title_justify="left")
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
    table.add_row("at least", "", *_numbers(plan.calls(least=True)))
    console.print(table)
    print_notes(console, [plan])


def announcement(cfg: DictConfig, run: AssembledRun) -> str:
    """Before the first task of a run that may take long: how many calls that is, and how to make it smaller."""
    if in_sweep() or cfg.attempts_from or run.workflow.records.rows:
        return ""
    n_steps = cfg.max_steps or cfg.env.get("max_steps") or 1
    if (
        len(run.tasks) * (run.workflow.k or 1) * (n_steps + 3) < MANY_CALLS
    ):  # the plan asks all parts, and takes a while
        return ""
    with ExitStack() as stack:
        plan = build_plan(cfg, run.workflow.envs, run.tasks, run.session.roles, stack, begin=False)
    most, least = plan.total(), plan.calls(least=True)
    if most.calls < MANY_CALLS:
        return ""
    model, time = plan.roles["agent"].llm, ""
    if speed := model.tokens_per_s:
        long = " to ".join(duration(each.completion_tokens / speed) for each in (least, most))
        time = f", about {long} with {model.name} on this machine"
    smaller = ["limit=5"] + ["max_steps=10"] * (plan.steps > 10) + ["k=2"] * ((run.workflow.k or 0) > 2)
    return (
        f"{plan.n_tasks} tasks, {least.calls:,} to {most.calls:,} calls{time}. "
        f"To make it smaller: {' '.join(smaller)}. dry_run=true says how this is estimated."
    )


def headline(plan: Plan) -> list[str]:
    """How much is asked, what each answer is taken for, what it costs and whether it can be asked at all."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in plan.kinds.items())
    most, least = plan.total(), plan.calls(least=True)
    cost = "USD unknown" if most.cost_usd is None else f"{usd(least.cost_usd)} to {usd(most.cost_usd)} USD"
    return [
        f"{plan.n_tasks} tasks" + (f", their answers taken for: {kinds}" if kinds else ""),
        f"{least.calls:,} to {most.calls:,} calls, {least.tokens:,} to {most.tokens:,} tokens, {cost}",
        "; ".join(plan.problems()) or f"ready to run, with {', '.join({r.llm.name: 0 for r in plan.roles.values()})}",
    ]


def print_prompts(console: Console, plan: Plan, known: set[tuple[str, str]], whose: str = "") -> None:
    """Print the first prompt of each role, unless a prompt of this role with the same first message is `known`.

    known   (role, first message) of the prompts printed so far; added to
    whose   appended to the headings
    """
    of_kind = "agent: first prompt of an answer taken for"
    prompts = [(role, calls[0][0], f"{role}: first prompt", calls[0]) for role, calls in plan.asked.items()]
    prompts += [(kind, messages[-1], f"{of_kind} {kind}", messages) for kind, messages in plan.others.items()]
    for kind, told_by, heading, messages in prompts:
        if (shown := (kind, told_by["content"])) in known:
            continue
        known.add(shown)
        for message in messages:
            console.rule(f"{heading}, {message['role']}{whose}", align="left")
            console.print(Text(message["content"]))


def print_notes(console: Console, plans: list[Plan]) -> None:
    """Print why models cannot be called yet, each reason once, and what the estimates assume."""
    for problem in dict.fromkeys(problem for plan in plans for problem in plan.problems()):
        console.print(f"to run it: {problem}", style="red")
    replies = {role: plan.reply(role) for plan in plans for role in plan.asked}
    console.print(
        f"at most: {_either(plan.steps for plan in plans)} steps in an attempt, "
        f"{_either(plan.lessons for plan in plans)} tokens of lessons in a prompt, "
        f"{_either(plan.observation for plan in plans)} of an observation, replies of "
        f"{', '.join(f'{n} ({role})' for role, n in replies.items())}; {100 * RETRIES:g} % of calls made twice.\n"
        "at least: one step, no lessons, no call made twice.\n"
        f"A token is {CHARS_PER_TOKEN} characters of the prompts shown. Not counted: what a provider's prompt cache "
        "saves, embeddings, the bank's own work."
    )
    console.print(CLOSING)


def _either(numbers: Iterable[int]) -> str:
    return " or ".join(map(str, sorted({*numbers})))


def _numbers(used: Usage) -> list[str]:
    counts = (used.calls, used.prompt_tokens, used.completion_tokens)
    return [*(f"{n:,}" for n in counts), usd(used.cost_usd)]


def times(usage: Usage, factor: float) -> Usage:
    """The usage multiplied by a factor."""
    counts = ("calls", "prompt_tokens", "completion_tokens")
    cost = None if usage.cost_usd is None else usage.cost_usd * factor
    return Usage(**{name: round(getattr(usage, name) * factor) for name in counts}, cost_usd=cost)


def usd(value: float | None) -> str:
    """A cost as text; "unknown" for None."""
    return "unknown" if value is None else f"{value:.4f}" if value < 1 else f"{value:,.2f}"
