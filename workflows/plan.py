"""Estimate the calls, tokens and cost of a run, without calling any model. A sweep's: workflows/plan_sweep.py.

With dry_run=true a run prints its first prompts and its estimate, and does not start.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from rich.table import Table
from rich.text import Text

from core.build import build_meter, build_models, build_roles, make, part, takes
from core.console import Console
from core.errors import InfraError
from core.learning.attempts import Attempts
from core.models.base import ChatModel, Reply, Request, Role
from core.models.meter import Meter
from core.page import PAGE, has_page
from core.run.manifest import recorded_config
from core.setting import TOLD
from core.types import Message, Selection, Step, Task, Trajectory, Usage, Verdict
from envs.pool import EnvPool
from workflows.build import build_workflow, open_envs, tasks_of
from workflows.reasoningbank import ReasoningBank
from workflows.stored_attempts import StoredRun, stored_run

# Assumptions. The real numbers are in a run's summary.json, after the run.
REPLY_TOKENS = {"agent": 400, "judge": 200, "extractor": 400, "selector": 100, "grader": 60}
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
    if envs.open_answers is not None:
        with suppress(InfraError):  # what it hears is no verdict
            envs.open_answers(tasks[0], [PLACEHOLDER], PLACEHOLDER)
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


def times(usage: Usage, factor: float) -> Usage:
    """The usage multiplied by a factor."""
    counts = ("calls", "prompt_tokens", "completion_tokens")
    cost = None if usage.cost_usd is None else usage.cost_usd * factor
    return Usage(**{name: round(getattr(usage, name) * factor) for name in counts}, cost_usd=cost)


def usd(value: float | None) -> str:
    """A cost as text; "unknown" for None."""
    return "unknown" if value is None else f"{value:.4f}" if value < 1 else f"{value:,.2f}"
