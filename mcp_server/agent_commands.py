"""Where the command line of a known agent carries its prompt, and the tokens that it reports.

Nothing is guessed: what is not certain is not found.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

from core.errors import UserError
from core.models.token_counts import counts_of

HOW = (
    "Give the task as --task TEXT or --task-file FILE (or in $REASONINGBANK_TASK). The command then finds the lessons "
    "in $REASONINGBANK_MEMORY and in the file $REASONINGBANK_MEMORY_FILE, on its stdin with --stdin memory|prompt, "
    "and wherever an argument is just {memory} or {prompt}."
)
SAYS_PROMPT = ("--task", "--prompt", "--instruction", "--instructions", "--query", "--question", "--goal")
PLACEHOLDERS = ("{memory}", "{prompt}")
# {program, with the subcommand that it needs: options that a prompt may stand right behind, because it is their value
# or because they take none}. Behind any other option an argument counts as that option's own value.
AGENTS = {
    "claude": "-p --print --verbose --dangerously-skip-permissions -c --continue",
    "codex": "--full-auto --json --yolo --skip-git-repo-check --search --oss",
    "gemini": "-p --prompt -i --prompt-interactive -y --yolo",
    "qwen": "-p --prompt -i --prompt-interactive -y --yolo",
    "opencode": "-p --prompt",
    "opencode run": "-c --continue",
    "ollama run": "--verbose --hidethinking",
    "llm": "-c --continue --no-stream",
    "llm prompt": "-c --continue --no-stream",
    "aider": "-m --message --msg",
    "goose run": "-t --text",
    "cursor-agent": "-p --print -f --force",
    "copilot": "-p --prompt -i --interactive",
    "crush run": "-q --quiet",
    "mini": "-t --task",
    "mini-swe-agent": "-t --task",
    "openhands": "-t --task",
}
ONLY_BY_OPTION = ("opencode", "aider", "goose run", "copilot", "mini", "mini-swe-agent", "openhands")


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A prompt in a command: from character `start` of the argument at `place` on."""

    text: str
    place: int
    start: int = 0

    def with_text(self, command: list[str], text: str) -> list[str]:
        """The command with `text` before its prompt; nothing else is changed."""
        word = command[self.place]
        return [*command[: self.place], word[: self.start] + text + word[self.start :], *command[self.place + 1 :]]


def agent_of(command: list[str]) -> str | None:
    """The known agent that a command starts, without its folder and Windows' suffix: a key of AGENTS, or None."""
    name = re.sub(r"\.(exe|cmd|bat|ps1)$", "", PureWindowsPath(PurePosixPath(command[0]).name).name.lower())
    return next((each for each in (" ".join((name, *command[1:2])), name) if each in AGENTS), None)


def prompt_in(command: list[str]) -> Prompt:
    """The prompt of a known agent's command: the only argument with a blank that is no other option's value.

    Raises UserError, which says how to name the task, where there is none or more than one.
    """
    if (agent := agent_of(command)) is None:
        raise UserError(f"which argument of {command[0]} is its prompt is not known here. {HOW}")
    found = [each for each in _arguments(command, agent) if re.search(r"\s", each.text.strip())]
    # "/review 12" is a command of the agent's own.
    if len(found) != 1 or re.match(r"/[\w:.-]+(?=\s|$)", found[0].text):
        which = f"of {len(found)} arguments" if found else "no argument"
        raise UserError(f"{which} of {agent} {'is' if found else 'with a blank is certain to be'} its prompt. {HOW}")
    return found[0]


def _arguments(command: list[str], agent: str) -> list[Prompt]:
    """The arguments that are no other option's value."""
    options = AGENTS[agent].split()
    found, before = [], ""
    for place, word in enumerate(command[1:], 1):
        name, equals, value = word.partition("=")
        if name in options and equals:
            found.append(Prompt(text=value, place=place, start=len(name) + 1))
        elif not word.startswith("-") and (before in options or _is_bare(before, agent)):
            found.append(Prompt(text=word, place=place))
        before = word
    return found


def _is_bare(before: str, agent: str) -> bool:
    """Whether an argument behind this word is no option's value, and such a one can be the prompt."""
    return agent not in ONLY_BY_OPTION and (before == "--" or not before.startswith("-"))


def prompt_named(command: list[str], task: str) -> Prompt | None:
    """The task where it stands in a command once, word for word: as an argument of a known agent, or as the value of
    an option such as --task of any other program."""
    found = []
    for place, word in enumerate(command[1:], 1):
        name, equals, value = word.partition("=")
        if equals and value == task and name in SAYS_PROMPT:
            found.append(Prompt(text=task, place=place, start=len(name) + 1))
        elif word == task and (agent_of(command) or command[place - 1] in SAYS_PROMPT):
            found.append(Prompt(text=task, place=place))
    return found[0] if task.strip() and len(found) == 1 and sum(task in word for word in command) == 1 else None


def tokens_reported(output: str) -> int | None:
    """The tokens that an agent says it read and wrote, cached ones among them; None: it says nothing.

    That is the `usage` of its lines of JSON: of Claude Code with --output-format json or stream-json, and of Codex with
    --json. A message's own usage within a line is a part of it.
    """
    said = []
    for line in output.splitlines():
        if line.startswith("{") and '"usage"' in line:
            try:
                said.append(json.loads(line).get("usage"))
            except ValueError:  # cut, or no JSON
                continue
    return sum(tokens_of(usage) for usage in said if isinstance(usage, dict)) or None


def tokens_recorded(entries: Iterable[dict[str, Any]]) -> int | None:
    """The tokens that a client's transcript says its model read and wrote so far; None: it says nothing.

    entries   its lines. Claude Code writes a message's usage on each of its lines, Codex a running total, Gemini CLI
              the tokens of each message
    """
    used: dict[Any, int] = {}
    for number, entry in enumerate(entries):
        message, tokens = entry.get("message"), entry.get("tokens")
        payload = entry.get("payload") if entry.get("type") == "event_msg" else None
        info = payload.get("info") if isinstance(payload, dict) else None
        running = info.get("total_token_usage") if isinstance(info, dict) else None
        if isinstance(message, dict) and isinstance(usage := message.get("usage"), dict):
            used[message.get("id") or number] = tokens_of(usage)
        elif isinstance(running, dict):
            used["running"] = max(used.get("running", 0), tokens_of(running))
        elif isinstance(tokens, dict) and isinstance(total := tokens.get("total"), int):
            used[entry.get("id") or number] = total
    return sum(used.values()) or None


def tokens_of(usage: dict[str, Any]) -> int:
    """The tokens of a usage object, cached ones among them."""
    apart = ("cache_read_input_tokens", "cache_creation_input_tokens")  # Anthropic's: not among its input_tokens
    counts = counts_of(usage)
    return counts.prompt + counts.completion + sum(n for name in apart if isinstance(n := usage.get(name), int))
