"""MaTTS with any chat model and a memory over MCP: k attempts or r checks, one answer, lessons from the comparison.

    python -m scripts.matts_controller "TASK" --bank PATH llm=openai llm.model=openai/gpt-4o-mini
    python -m scripts.matts_controller "TASK" --bank PATH --pattern sequential --rounds 2 llm=gemini
    python -m scripts.matts_controller "TASK" --url http://127.0.0.1:8765/mcp llm=gemini

With --bank it starts its own server on that bank (`reasoningbank-mcp --tools all`), whose judge and distiller use the
same model. With --url it uses a running server, which needs `--tools all` and a model of its own. An agent with tools
of its own can import `solve_apart` and `solve_in_rounds` and pass its own `attempt`: docs/matts_playbook.md.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from core.build import build_models
from core.concurrency import ordered_map
from core.errors import InfraError, UserError
from core.models.base import Role
from mcp_server.cli import running_server, talk
from mcp_server.config import TOKEN_ENV, load_config
from prompts import registry
from prompts.registry import PROJECT
from scripts.command_line import REPO, parser, plain_errors

Turns = list[dict[str, Any]]  # {role, content} of each step, as extract_memory takes them
Ask = Callable[..., Awaitable[dict[str, Any]]]  # (tool, **arguments) -> its data
FORM = "State the final result in full at the end."


async def solve_apart(ask: Ask, task: str, attempt: Callable[[str, int], Turns], k: int) -> dict[str, Any]:
    """Parallel scaling with self-contrast: k attempts at once, lessons from all of them, the best is the answer.

    ask       calls a tool of the server
    attempt   (retrieved lessons as text, number of the attempt) -> its steps, the last of them the assistant's result;
              called from k threads. One that raises InfraError is left out

    Returns {answer, attempts, ...} with what contrast_attempts says. InfraError where every attempt broke.
    """
    lessons = (await ask("retrieve_memory", query=task))["formatted_prompt"]

    def one(number: int) -> Turns | InfraError:
        try:
            return attempt(lessons, number)
        except InfraError as error:
            return error

    made = await asyncio.to_thread(lambda: list(ordered_map(one, range(k), k)))
    whole = [turns for turns in made if not isinstance(turns, InfraError)]
    if not whole:
        raise next(error for error in made if isinstance(error, InfraError))
    return await learn_from(ask, task, whole, "parallel")


async def solve_in_rounds(
    ask: Ask, task: str, attempt: Callable[[str, list[Turns]], Turns], rounds: int
) -> dict[str, Any]:
    """Sequential scaling with self-refinement: an attempt, then checks of it; the last round is the answer.

    attempt   (retrieved lessons as text, the rounds so far) -> the steps of the next one. Where a check raises
              InfraError, the round before it is the answer
    """
    lessons = (await ask("retrieve_memory", query=task))["formatted_prompt"]
    made = [await asyncio.to_thread(attempt, lessons, [])]
    for _ in range(rounds):
        try:
            made.append(await asyncio.to_thread(attempt, lessons, list(made)))
        except InfraError:
            break
    return await learn_from(ask, task, made, "sequential")


async def learn_from(ask: Ask, task: str, made: list[Turns], pattern: str) -> dict[str, Any]:
    """Write all attempts into the memory together. A single one is extracted alone."""
    if len(made) == 1:
        told = await ask("extract_memory", query=task, trajectory=made[0], async_mode=False)
    else:
        attempts = [{"trajectory": turns} for turns in made]
        told = await ask("contrast_attempts", query=task, attempts=attempts, pattern=pattern, async_mode=False)
    best = told.get("best", 1)
    return {"answer": made[best - 1][-1]["content"], "attempts": len(made), **told}


def chat_attempts(role: Role, task: str) -> tuple[Callable[[str, int], Turns], Callable[[str, list[Turns]], Turns]]:
    """The `attempt` of both patterns for a chat model that answers in one turn."""

    def opening(lessons: str) -> Turns:
        block = f"\n\n{lessons}" if lessons else ""
        return [{"role": "system", "content": f"Solve the task. {FORM}{block}"}, {"role": "user", "content": task}]

    def shown(lessons: str) -> Turns:
        """The ids alone: the server then knows which lessons were used, and does not learn their texts again."""
        heads = [line for line in lessons.splitlines() if line.startswith("[") and "id=" in line]
        return [{"role": "system", "content": "\n".join(heads)}] if heads else []

    def apart(lessons: str, number: int) -> Turns:
        reply = role.chat(opening(lessons), task=task, sample=number, seed=number)
        return [*shown(lessons), {"role": "user", "content": task}, {"role": "assistant", "content": reply.text}]

    def in_rounds(lessons: str, before: list[Turns]) -> Turns:
        if not before:
            return apart(lessons, 0)
        messages = [*opening(lessons), before[0][-1], *(turn for turns in before[1:] for turn in turns)]
        words = {"first": len(before) == 1, "query": task, "answer_format": FORM, "observation": ""}
        check = {"role": "user", "content": PROJECT.render(registry.MATTS_SEQUENTIAL_CHECK_PROMPT, **words)}
        reply = role.chat([*messages, check], task=task, sample=len(before), seed=len(before))
        return [check, {"role": "assistant", "content": reply.text}]

    return apart, in_rounds


def connect(given: Any) -> Any:
    """The SDK's client: of a server that it starts on the bank, or of the one at the address."""
    if given.url is None:
        from mcp.client.client import Client
        from mcp.client.stdio import StdioServerParameters

        words = ["-m", "mcp_server", "--bank", str(given.bank.expanduser().resolve()), "--tools", "all"]
        words += [*(("--embedder", given.embedder) if given.embedder else ()), *given.overrides]
        folders = [str(REPO), *filter(None, [os.environ.get("PYTHONPATH")])]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
        return Client(StdioServerParameters(command=sys.executable, args=words, env=env))
    return running_server(given.url, os.environ.get(TOKEN_ENV, ""))


async def solve(given: Any, role: Role, client: Any) -> dict[str, Any]:
    """Run the pattern that was asked for. client: of the memory server."""

    async def ask(tool: str, **arguments: Any) -> dict[str, Any]:
        told = await client.call_tool(tool, arguments | ({"agent_id": given.agent_id} if given.agent_id else {}))
        if told.is_error:
            raise UserError(f"{tool}: {told.content[0].text}")
        return told.structured_content

    apart, in_rounds = chat_attempts(role, given.task)
    if given.pattern == "parallel":
        return await solve_apart(ask, given.task, apart, given.k)
    return await solve_in_rounds(ask, given.task, in_rounds, given.rounds)


@plain_errors()
def main(arguments: list[str] | None = None) -> None:
    made = parser(__doc__)
    made.add_argument("task", metavar="TASK")
    where = made.add_mutually_exclusive_group(required=True)
    where.add_argument("--bank", type=Path, metavar="PATH", help="the bank's SQLite file; a server is started on it")
    where.add_argument("--url", metavar="URL", help=f"a running server; its token in {TOKEN_ENV}")
    made.add_argument("--pattern", choices=("parallel", "sequential"), default="parallel")
    made.add_argument("--k", type=int, default=3, help="attempts of the parallel pattern, 1 to 20")
    made.add_argument("--rounds", type=int, default=1, help="checks of the sequential pattern, 0 to 19")
    made.add_argument("--temperature", type=float, default=0.7, help="of the attempts")
    made.add_argument("--max-tokens", type=int, metavar="N", help="of a reply of the attempts")
    made.add_argument("--agent-id", default="", metavar="NAME", help="whose memory")
    made.add_argument("--embedder", metavar="NAME", help="of a new bank")
    made.add_argument("--json", action="store_true", help="everything, instead of answer and lessons")
    made.add_argument("overrides", nargs="*", metavar="key=value", help="the model, as for main.py: llm=NAME ...")
    given = made.parse_intermixed_args(arguments)
    if not (1 <= given.k <= 20 and 0 <= given.rounds <= 19):
        raise UserError("give --k 1 to 20 and --rounds 0 to 19.")
    cfg = load_config(given.overrides)
    if cfg.get("llm") is None:
        raise UserError("say which model makes the attempts, e.g. llm=openai llm.model=openai/gpt-4o-mini.")
    with ExitStack() as stack:
        model = build_models(cfg, stack)["agent"]
        if problem := model.problem():
            raise UserError(problem)
        told = run(given, Role(name="agent", llm=model, temperature=given.temperature, max_tokens=given.max_tokens))
    if given.json:
        print(json.dumps(told, ensure_ascii=False))
        return
    print(told["answer"])
    print(f"\nof {told['attempts']} attempts, number {told.get('best', 1)}; learned ({told['memory_id']}):")
    for lesson in told["memories"]:
        print(f"- {lesson['title']}: {lesson['description']}")


def run(given: Any, role: Role) -> dict[str, Any]:
    """`solve` with the server that was asked for."""
    return talk(given.url or str(given.bank), connect(given), lambda client: solve(given, role, client))


if __name__ == "__main__":
    sys.exit(main())
