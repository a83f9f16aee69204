"""The console script `reasoningbank`: one word for each command of the project. It runs the same code as a checkout.

    reasoningbank eval env=gsm8k llm=vllm     python main.py env=gsm8k llm=vllm
    reasoningbank tables outputs/mine         python -m scripts.tables outputs/mine
    reasoningbank serve --bank FILE           python -m mcp_server --bank FILE

`reasoningbank COMMAND --help` shows the arguments of a command.
"""

from __future__ import annotations

import sys

from core.errors import meant
from core.version import version_line
from scripts.command_line import start_module

COMMANDS = {
    "eval": ("main", "run or sweep an evaluation (the arguments of main.py)"),
    "tables": ("scripts.tables", "the table of runs"),
    "report": ("scripts.report", "a page of runs, in one HTML file"),
    "learn": ("scripts.learn", "lessons from the attempts of finished runs, with other parts"),
    "judge_report": ("scripts.judge_report", "judges against the truth, on the attempts of finished runs"),
    "compare": ("scripts.compare", "what memory changed between two runs"),
    "audit": ("scripts.audit", "look for leaks and broken invariants in runs"),
    "show": ("scripts.show", "episodes and lessons of a run"),
    "power": ("scripts.power", "how many seeds could show a difference"),
    "export": ("scripts.export", "runs in formats of other programs"),
    "doctor": ("scripts.doctor", "what this installation has, and what it lacks"),
    "fetch": ("scripts.fetch_data", "download the data of a benchmark"),
    "bank": ("core.memory", "look at a memory bank, and keep it"),
    "serve": ("mcp_server", "serve a memory bank over MCP"),
}
# These are words of the server's own command line, which takes them first.
OF_SERVER = {
    "run": "lessons around any command, such as a coding agent",
    "runs": "the metrics of those commands",
    "client": "what to write into the settings of an MCP client",
    "hook": "for the hooks of an MCP client",
    "token": "a token of one tenant of the server",
}


def run() -> None:
    """The console script."""
    sys.exit(start(sys.argv[1:]))


def start(argv: list[str]) -> int:
    """The exit code: that of the command; 2 for a word that is none."""
    name, *rest = argv or ["--help"]
    if name == "--version" or (rest == ["--version"] and name in {**COMMANDS, **OF_SERVER}):
        print(version_line())
        return 0
    if name in COMMANDS:
        return start_module(COMMANDS[name][0], f"reasoningbank {name}", rest)
    if name in OF_SERVER or "_" in name:  # the tools' names, such as retrieve_memory
        return start_module("mcp_server", "reasoningbank", argv)
    if name in ("-h", "--help", "help"):
        print(__doc__)
        for each, what in {**{key: what for key, (_, what) in COMMANDS.items()}, **OF_SERVER}.items():
            print(f"    {each:<12} {what}")
        return 0
    known = [*COMMANDS, *OF_SERVER]
    print(f"error: {name} is no command{meant(name, known)} `reasoningbank --help` lists them.", file=sys.stderr)
    return 2
