"""The prompt in an agent's command: its place is certain, or the command is refused; nothing else is ever changed."""

from __future__ import annotations

import pytest

from core.errors import UserError
from mcp_server.agent_commands import AGENTS, Grammar, prompt_in

P = "Fix the bug"
PROMPTS = [
    ["claude", "-p", P],
    ["claude", "-p", "--model", "x", P],
    ["claude", "--model=x", P, "-p"],
    ["claude", "-p", P, "--allowedTools", "Bash", "Read"],
    ["claude", "--allowedTools", "Bash(git log:*)", "Read", "-p", P],
    ["claude", "-cp", P],
    ["/usr/bin/claude", "-p", "--", P],
    ["codex", "exec", "-m", "gpt-5", P],
    ["codex", "-m", "gpt-5", "exec", P],
    ["codex", "exec", "-c", 'a="b c"', "--full-auto", P],
    ["codex", "e", "-mgpt", P],
    ["codex", "exec", P, "-i", "a.png", "b.png"],
    ["gemini", "-p", P, "-m", "x"],
    ["gemini", "--prompt=" + P],
    ["gemini", "-p=" + P],
    ["gemini", "-yp", P],
    ["gemini", "-y", P],
    ["gemini", P, "-w", "tree", "--skip-trust"],
    ["gemini", "--session-file", "a.json", "-p", P],
    ["qwen", "-p", P],
    ["qwen", "--system-prompt", "be brief", "-y", P],
    ["qwen", P, "--add-dir", "a", "b"],
    ["claude", "--bg", "--remote-control", "box", "--safe-mode", P],
    ["claude", "-p", P, "--prompt-suggestions", "true"],
    ["codex", "exec", "--thread-source", "ci", "--ignore-rules", "--worktree", P],
    ["codex", "exec", "resume", "0b7c", P],
    ["codex", "--remote", "ws://h:1", "--no-daemon", P],
    ["llm", "--json", "-u", P],
    ["aider", "-m" + P],
    ["goose", "run", "--text=" + P],
    ["copilot", "-C", "dir", "-p", P],
    ["opencode", "run", "--agent", "build", "--auto", "--", P],
    ["opencode", "run", "-m", "a/b", "Fix", "the", "bug"],
    ["opencode", "run", P],
    ["ollama", "run", "llama3:8b", P],
    ["ollama", "run", "--format", "json", "llama3", P],
    ["llm", P],
    ["llm", "-m", "gpt-4o", "-o", "temperature", "0", P],
    ["llm", "prompt", "-s", "be brief", P],
    ["llm", "-mgpt", P],
    ["aider", "--yes", "-m", P, "a.py"],
    ["aider", "--message=" + P],
    ["aider", "--model", "x", "--message", P],
    ["goose", "run", "--no-session", "-t", P],
    ["cursor-agent", "-p", P, "--output-format", "text"],
    ["copilot", "-p", P, "--allow-all-tools"],
    ["mini", "-y", "-t", P],
    ["openhands", "-t", P],
    ["crush", "run", "-q", P],
]
REFUSED = [
    ["psql", "-c", "select 1"],
    ["docker", "run", "-p", "80:80", "x"],
    ["ssh", "-p", "22", "h", "run it"],
    ["npm", "run", "build"],
    ["bash", "-c", "claude -p 'x y'"],
    ["git", "commit", "-m", "a b"],
    ["claude"],
    ["claude", "mcp", "list"],
    ["claude", "update"],
    ["claude", "newcommand"],
    ["codex", "login"],
    ["codex", "exec", "-"],
    ["codex", "exec"],
    ["claude", "--new", "opus", P],
    ["gemini", "-p"],
    ["gemini", "-p", "--yolo"],
    ["aider", "-f", "a.txt"],
    ["goose", "run", "-i", "f.md"],
    ["ollama", "list"],
    ["ollama", "run", "llama3"],
    ["llm", "logs", "-n", "3"],
    ["claude", "-p", P, "and more"],
    ["gemini", "-p", P, "more words"],
    ["aider", "-m", P, "--message", P],
    ["claude", "-p", ""],
    ["opencode", P],
    ["codex", "exec", "resume", P],
    ["codex", "exec", "fork", "0b7c", P],
    ["codex", "exec", "newcommand"],
    ["codex", "exec", "fork"],
    ["gemini", "-p" + P],  # yargs reads flags
    ["gemini", "gemma"],
    ["qwen", "review", "1"],
    ["opencode", "run", "--command", "review", P],
    ["llm", P, "--save", "mend"],
    ["claude", "-p", "/review 12"],
    ["gemini", "-p", "/init"],
    ["aider", "-m", "/commit"],
    ["claude", "-p", "{memory}"],
    ["npx", "claude", "-p", P],
    ["env", "A=1", "claude", "-p", P],
    ["timeout", "60", "claude", "-p", P],
    ["uvx", "llm", P],
    ["python", "-m", "llm", P],
    ["sudo", "-u", "me", "claude", "-p", P],
    ["make", "-t", "run"],
    ["curl", "-m", "10", "-p", "x"],
]


def test_lessons_change_the_prompt_and_nothing_else(subtests):
    for command in PROMPTS:
        with subtests.test(" ".join(command)):
            found = prompt_in(command)
            assert found.text == P
            changed = found.with_text(command, "Lessons.\n\n")
            differing = [now for before, now in zip(command, changed, strict=True) if before != now]
            assert differing == [changed[found.place]]
            assert " ".join(changed).replace("Lessons.\n\n", "") == " ".join(command)


def test_what_is_not_certain_is_refused_with_the_way_to_say_it(subtests):
    for command in REFUSED:
        with subtests.test(" ".join(command)), pytest.raises(UserError, match="--task TEXT"):
            prompt_in(command)


def grammars(grammar: Grammar):
    yield grammar
    for each in grammar.commands.values():
        yield from grammars(each)


def test_each_option_is_listed_once(subtests):
    kinds = ("prompt", "flags", "values", "pairs", "lists", "maybe")
    for name, agent in AGENTS.items():
        with subtests.test(name):
            for grammar in grammars(agent):
                options = [option for kind in kinds for option in getattr(grammar, kind).split()]
                assert len(options) == len(set(options)) and all(option.startswith("-") for option in options)
