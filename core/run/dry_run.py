"""dry_run=true: what a run would ask and what it would cost, worked out without any call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from core.models.base import Role
from core.types import Message, Task
from prompts import registry

# Assumptions. The real numbers are known only after a run, and are then in its summary.json.
REPLY_TOKENS = {"agent": 400, "judge": 200, "extractor": 400, "selector": 100}
OBSERVATION_TOKENS = 60
CHARS_PER_TOKEN = 4
PLACEHOLDER = "(the attempt will stand here)"


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Calls and tokens of one role over the whole run; cost_usd None when the price is unknown."""

    calls: int
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None


@dataclass(kw_only=True)
class Plan:
    """What is known before a run.

    steps     of one attempt, at most
    calls     for one task, by role; an attempt counts as one call of the agent
    opening   the first messages of the first task, without retrieved lessons
    rounds    attempts that follow each other in one conversation
    """

    tasks: list[Task]
    steps: int
    roles: dict[str, Role]
    calls: dict[str, int]
    opening: list[Message]
    rounds: int = 1

    def prompts(self) -> dict[str, list[Message]]:
        """The first prompt of the agent, the judge and the extractor, with a placeholder for the attempt."""
        query = self.tasks[0].query
        made = {"agent": self.opening}
        if "judge" in self.calls:
            parts = {"trajectory": PLACEHOLDER, "final_state": PLACEHOLDER, "answer": PLACEHOLDER}
            made["judge"] = self._user("judge", registry.JUDGE_PROMPT, query=query, **parts)
        if "extractor" in self.calls:
            parts = {"trajectory": PLACEHOLDER, "max_items": 3}
            made["extractor"] = self._user("extractor", registry.EXTRACT_SUCCESS_PROMPT, query=query, **parts)
        return made

    def estimate(self, role: str) -> Estimate:
        """An upper bound. The agent's prompt grows at each step; the other roles read each attempt once."""
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
