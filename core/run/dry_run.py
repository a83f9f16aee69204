"""dry_run=true: what a run would ask and cost, worked out without asking anybody anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from core.models.base import Role
from core.types import Message, Task
from prompts import registry

# Assumed, because they are known only afterwards; the real ones stand in summary.json of any earlier run.
REPLY_TOKENS = {"agent": 400, "judge": 200, "extractor": 400, "selector": 100}
OBSERVATION_TOKENS = 60
CHARS_PER_TOKEN = 4
LATER = "(the attempt will stand here)"


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Calls and tokens of one role over the whole run; cost_usd None when the price is unknown."""

    calls: int
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None


@dataclass(kw_only=True)
class Plan:
    """What is known before a run. `calls`: the calls for one task by role, an attempt counting once for the agent."""

    tasks: list[Task]
    steps: int  # at most, of one attempt
    roles: dict[str, Role]
    calls: dict[str, int]
    opening: list[Message]  # of the first task, without retrieved lessons
    rounds: int = 1  # attempts that follow each other in one conversation

    def prompts(self) -> dict[str, list[Message]]:
        """The first prompt of each role that has a template, with a placeholder for what the attempt will be."""
        query = self.tasks[0].query
        made = {"agent": self.opening}
        if "judge" in self.calls:
            parts = {"trajectory": LATER, "final_state": LATER, "answer": LATER}
            made["judge"] = self._user("judge", registry.JUDGE_PROMPT, query=query, **parts)
        if "extractor" in self.calls:
            parts = {"trajectory": LATER, "max_items": 3}
            made["extractor"] = self._user("extractor", registry.EXTRACT_SUCCESS_PROMPT, query=query, **parts)
        return made

    def estimate(self, role: str) -> Estimate:
        """At most. The agent's prompt grows by reply and observation at each step; others read each attempt once."""
        messages = self.prompts().get(role, self.opening)
        first = sum(len(message["content"]) for message in messages) // CHARS_PER_TOKEN
        reply = min(REPLY_TOKENS[role], self.roles[role].max_tokens or REPLY_TOKENS[role])
        attempts, calls = self.calls["agent"], self.calls[role]
        turn = reply + OBSERVATION_TOKENS
        if role == "agent":
            steps, times = self.steps * self.rounds, len(self.tasks) * calls // self.rounds
            read = turn * steps * (steps - 1) // 2
        else:
            steps, times = 1, len(self.tasks) * calls
            read = turn * self.steps * attempts // calls
        prompt, completion = times * (steps * first + read), times * steps * reply
        cost = self.roles[role].llm.price(prompt, completion)
        return Estimate(calls=times * steps, prompt_tokens=prompt, completion_tokens=completion, cost_usd=cost)

    def _user(self, role: str, template: str, **values: Any) -> list[Message]:
        text = registry.render(template, structured=self.roles[role].llm.supports_schema, **values)
        return [{"role": "user", "content": text}]


def print_plan(plan: Plan) -> None:
    """Roles with their decoding, the first prompts, then the estimate and what it assumes."""
    console = Console(soft_wrap=True)
    for role, messages in plan.prompts().items():
        for message in messages:
            console.rule(f"{role}: first prompt, {message['role']}", align="left")
            console.print(Text(message["content"]))
    console.print(_table(plan))
    for problem in dict.fromkeys(plan.roles[role].llm.problem() for role in plan.calls):
        if problem:
            console.print(f"to run it: {problem}", style="red")
    replies = ", ".join(f"{REPLY_TOKENS[role]} tokens for {role}" for role in plan.calls)
    console.print(
        f"At most, if every attempt takes all its {plan.steps} steps. Assumed: replies of {replies}; observations of "
        f"{OBSERVATION_TOKENS}; {CHARS_PER_TOKEN} characters a token; no retrieved lessons, no retries. "
        "Nothing was called and nothing recorded."
    )


def _table(plan: Plan) -> Table:
    table = Table(title=f"{len(plan.tasks)} tasks", title_justify="left")
    for heading in ("role", "model and decoding", "calls", "prompt", "reply", "USD"):
        table.add_column(heading, justify="left" if heading in ("role", "model and decoding") else "right")
    total: float | None = 0.0
    for name in plan.calls:
        role, sums = plan.roles[name], plan.estimate(name)
        decoding = {"temperature": role.temperature, "max_tokens": role.max_tokens, "seed": role.seed}
        given = " ".join(f"{key}={value}" for key, value in decoding.items() if value is not None)
        counts = [f"{n:,}" for n in (sums.calls, sums.prompt_tokens, sums.completion_tokens)]
        table.add_row(name, f"{role.llm.name}\n{given}", *counts, _usd(sums.cost_usd))
        total = None if total is None or sums.cost_usd is None else total + sums.cost_usd
    table.add_section()
    table.add_row("total", *[""] * 4, _usd(total))
    return table


def _usd(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4f}"
