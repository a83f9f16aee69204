"""dry_run=true: what a run would ask and what it would cost, worked out without any call."""

from __future__ import annotations

from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table
from rich.text import Text

from core.models.base import ChatModel, Reply, Role
from core.types import Message, Step, Task, Trajectory, Usage

# Assumptions. The real numbers are known only after a run, and are then in its summary.json.
REPLY_TOKENS = {"agent": 400, "judge": 200, "extractor": 400, "selector": 100}
OBSERVATION_TOKENS = 60
CHARS_PER_TOKEN = 4
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

    def chat(
        self,
        messages: list[Message],
        *,
        role,
        sample=0,
        seed=None,
        temperature=0.0,
        max_tokens=None,
        schema=None,
        more=None,
    ) -> Reply:
        self.heard.append(messages)
        return Reply(text="", usage=Usage(), finish_reason="stop", model=self.name)


@dataclass(kw_only=True)
class Plan:
    """What is known before a run.

    steps     of one attempt, at most
    asked     by role, the messages of each call for one task: without retrieved lessons, and with a placeholder for
              each attempt, which counts as one call of the agent
    rounds    attempts that follow each other in one conversation
    """

    tasks: list[Task]
    steps: int
    roles: dict[str, Role]
    asked: dict[str, list[list[Message]]]
    rounds: int = 1

    def estimate(self, role: str) -> Usage:
        """An upper bound over the run. The agent's prompt grows at each step; other roles read each attempt once."""
        first = sum(len(message["content"]) for message in self.asked[role][0]) // CHARS_PER_TOKEN
        reply = min(REPLY_TOKENS[role], self.roles[role].max_tokens or REPLY_TOKENS[role])
        attempts, calls = len(self.asked["agent"]), len(self.asked[role])
        turn = reply + OBSERVATION_TOKENS
        if role == "agent":
            steps, times = self.steps * self.rounds, len(self.tasks) * calls // self.rounds
            read = turn * steps * (steps - 1) // 2
        else:
            steps, times = 1, len(self.tasks) * calls
            read = turn * self.steps * attempts // calls
        prompt, completion = times * (steps * first + read), times * steps * reply
        cost = self.roles[role].llm.price(prompt, completion)
        return Usage(calls=times * steps, prompt_tokens=prompt, completion_tokens=completion, cost_usd=cost)


def print_plan(plan: Plan) -> None:
    """Roles with their decoding, the first prompts, then the estimate and what it assumes."""
    console = Console(soft_wrap=True)
    for role, calls in plan.asked.items():
        for message in calls[0]:
            console.rule(f"{role}: first prompt, {message['role']}", align="left")
            console.print(Text(message["content"]))
    console.print(_table(plan))
    for problem in dict.fromkeys(plan.roles[role].llm.problem() for role in plan.asked):
        if problem:
            console.print(f"to run it: {problem}", style="red")
    replies = ", ".join(f"{REPLY_TOKENS[role]} tokens for {role}" for role in plan.asked)
    console.print(
        f"At most, if every attempt takes all its {plan.steps} steps. Assumed: replies of {replies}; observations of "
        f"{OBSERVATION_TOKENS}; {CHARS_PER_TOKEN} characters a token; no retrieved lessons, no retries. "
        "Nothing was called and nothing recorded."
    )


def _table(plan: Plan) -> Table:
    table = Table(title=f"{len(plan.tasks)} tasks", title_justify="left")
    for heading in ("role", "model and decoding", "calls", "prompt", "reply", "USD"):
        table.add_column(heading, justify="left" if heading in ("role", "model and decoding") else "right")
    total = Usage()
    for name in plan.asked:
        role, sums = plan.roles[name], plan.estimate(name)
        decoding = {"temperature": role.temperature, "max_tokens": role.max_tokens, "seed": role.seed} | role.more
        given = " ".join(f"{key}={value}" for key, value in decoding.items() if value is not None)
        counts = [f"{n:,}" for n in (sums.calls, sums.prompt_tokens, sums.completion_tokens)]
        table.add_row(name, f"{role.llm.name}\n{given}", *counts, _usd(sums.cost_usd))
        total += sums
    table.add_section()
    table.add_row("total", *[""] * 4, _usd(total.cost_usd))
    return table


def _usd(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4f}"
