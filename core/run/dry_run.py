"""dry_run=true: what a run would ask and what it would cost, worked out without any call."""

from __future__ import annotations

from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table
from rich.text import Text

from core.models.base import ChatModel, Reply, Request, Role
from core.types import Message, Step, Task, Trajectory, Usage

# Assumptions. The real numbers are known only after a run, and are then in its summary.json.
REPLY_TOKENS = {"agent": 400, "judge": 200, "extractor": 400, "selector": 100}
OBSERVATION_TOKENS = 60
LEFT_OUT_TOKENS = 10  # of the line in the place of a page, and of an error
PAGE_TO_JUDGE = 1500  # of the last page, at most: a quarter of what a judge reads
LESSON_TOKENS = 100  # title, description and 1 to 3 sentences
CHARS_PER_TOKEN = 4
RETRIES = 0.05  # of all calls are made once more: the provider's errors, and tasks that broke
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


@dataclass(kw_only=True)
class Listener(ChatModel):
    """Stands in for a model: keeps the messages of each call that it would get, and says nothing."""

    name: str
    supports_schema: bool
    heard: list[list[Message]] = field(default_factory=list, init=False)

    def chat(self, request: Request) -> Reply:
        self.heard.append(request.messages)
        return Reply(text="", usage=Usage(), finish_reason="stop", model=self.name)


@dataclass(frozen=True, kw_only=True)
class Lessons:
    """What is assumed of the lessons in a prompt. records: retrieved at most (top_k); 0: no lessons.

    items      lessons of each record
    tokens     of each lesson
    most       tokens of all of them, what does not fit is left out
    whole      a record is a whole attempt, not sentences about it
    from_start a bank was given: the first task is shown lessons too
    """

    records: int = 0
    items: int = 0
    tokens: int = LESSON_TOKENS
    most: int = 0
    whole: bool = False
    from_start: bool = False

    def over(self, n_tasks: int) -> int:
        """Tokens of the lessons in one prompt of each task, all tasks together. A bank begins empty."""
        shown = (self.records if self.from_start else min(self.records, place) for place in range(n_tasks))
        return sum(min(self.most, n * self.items * self.tokens) for n in shown)

    def text(self) -> str:
        """The assumption in words, "" where no lessons are shown."""
        if not self.records * self.items:
            return ""
        what = "whole attempt" if self.whole else "lesson"
        most = f"{self.records} x {self.items} x {self.tokens} tokens (records x {what}s x length)"
        most += f", {self.most} at most" if self.records * self.items * self.tokens > self.most else ""
        return most + ("" if self.from_start else "; the first task none")


@dataclass(kw_only=True)
class Plan:
    """What is known before a run.

    steps        of one attempt, at most
    asked        by role, the messages of each call for one task: without retrieved lessons, and with a placeholder for
                 each attempt, which counts as one call of the agent
    observation  tokens of one, beside the first
    kept         observations in a prompt of the agent, the newest, where these are pages; None: all
    unseen       the agent's first prompt in `asked` lacks its page
    rounds       attempts that follow each other in one conversation
    lessons      that the agent's prompts hold besides
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
        """An upper bound over the run. The agent's prompt grows at each step; other roles read each attempt once."""
        first = sum(len(message["content"]) for message in self.asked[role][0]) // CHARS_PER_TOKEN
        reply = self.reply(role)
        attempts, calls = len(self.asked["agent"]), len(self.asked[role])
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
        """Tokens of the pages in the agent's prompts, beside that of the first prompt, where not all are kept."""
        if self.kept is None:
            return self.observation * steps * self.unseen
        return self.observation * sum(min(n, self.kept) - (not self.unseen) for n in range(1, steps + 1))

    def reply(self, role: str) -> int:
        """Tokens of a reply."""
        return min(REPLY_TOKENS[role], self.roles[role].max_tokens or REPLY_TOKENS[role])

    def retries(self) -> Usage:
        """What is called a second time."""
        return times(self.calls(), RETRIES)

    def calls(self) -> Usage:
        """All roles, without retries."""
        return sum(map(self.estimate, self.asked), Usage())

    def total(self) -> Usage:
        """All roles, with retries."""
        return self.calls() + self.retries()

    def problems(self) -> list[str]:
        """What keeps its models from being called."""
        found = dict.fromkeys(self.roles[role].llm.problem() for role in self.asked)
        return [problem for problem in found if problem]


def times(usage: Usage, factor: float) -> Usage:
    """So many times what was used."""
    counts = ("calls", "prompt_tokens", "completion_tokens")
    cost = None if usage.cost_usd is None else usage.cost_usd * factor
    return Usage(**{name: round(getattr(usage, name) * factor) for name in counts}, cost_usd=cost)


def print_plan(plan: Plan) -> None:
    """Roles with their decoding, the first prompts, then the estimate and what it assumes."""
    console = Console(soft_wrap=True)
    print_prompts(console, plan, set())
    console.print(_table(plan))
    print_problems(console, [plan])
    console.print(assumed([plan]))
    console.print(CLOSING)


CLOSING = "Nothing was called and nothing recorded."


def print_prompts(console: Console, plan: Plan, known: set[tuple[str, str]], whose: str = "") -> None:
    """The first prompt of each role, but for the kinds that are `known`: those of its role that begin alike."""
    for role, calls in plan.asked.items():
        kind = (role, calls[0][0]["content"])
        if kind in known:
            continue
        known.add(kind)
        for message in calls[0]:
            console.rule(f"{role}: first prompt, {message['role']}{whose}", align="left")
            console.print(Text(message["content"]))


def print_problems(console: Console, plans: list[Plan]) -> None:
    """What a run would need first."""
    for problem in dict.fromkeys(problem for plan in plans for problem in plan.problems()):
        console.print(f"to run it: {problem}", style="red", markup=False)


def assumed(plans: list[Plan]) -> Table:
    """Each assumption with its number."""
    table = Table(title="assumed", title_justify="left", show_header=False, box=None, pad_edge=False)
    steps = sorted({plan.steps for plan in plans})
    table.add_row("steps of an attempt", f"{' or '.join(map(str, steps))}: every attempt takes all it may")
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


def _table(plan: Plan) -> Table:
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


def usd(value: float | None) -> str:
    """A cost; "unknown" where a price is."""
    return "unknown" if value is None else f"{value:.4f}" if value < 1 else f"{value:,.2f}"
