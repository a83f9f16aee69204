"""reasoningbank COMMAND [ARGUMENTS]; `reasoningbank COMMAND --help` has the arguments."""

from __future__ import annotations

import sys

from core.errors import meant
from core.version import version_line
from scripts.command_line import start_module

COMMANDS = {
    "eval": ("main", "run or sweep an evaluation; the same as `python main.py`"),
    "tables": ("scripts.tables", "finished runs as a table"),
    "report": ("scripts.report", "finished runs as one HTML page, or as figures"),
    "compare": ("scripts.compare", "two runs, task by task; a gate on the cost per success"),
    "show": ("scripts.show", "the episodes of a run, or one of them in full"),
    "audit": ("scripts.audit", "look for leaks and broken invariants in runs"),
    "learn": ("scripts.learn", "lessons from finished runs with other parts, or --from old sessions"),
    "power": ("scripts.power", "the smallest difference that a study could find"),
    "export": ("scripts.export", "runs for other programs: csv, parquet, Inspect"),
    "fetch": ("scripts.fetch_data", "download the data of a benchmark"),
    "questions": ("single_turn_bench", "check a file of questions with answers; grade replies"),
    "doctor": ("scripts.doctor", "what this installation has, and what it lacks"),
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


def start(argv: list[str]) -> int:
    """The exit code: that of the command; 2 for a word that is none."""
    name, *rest = argv or ["--help"]
    if name == "--version" or (rest == ["--version"] and name in {**COMMANDS, **OF_SERVER}):
        print(version_line())
        return 0
    from_sessions = name == "learn" and any(word.partition("=")[0] == "--from" for word in rest)
    if name in COMMANDS and not from_sessions:
        return start_module(COMMANDS[name][0], f"reasoningbank {name}", rest)
    if name in OF_SERVER or from_sessions or "_" in name:  # the tools' names, such as retrieve_memory
        return start_module("mcp_server", "reasoningbank", argv)
    if name in ("-h", "--help", "help"):
        print(f"{__doc__}\n")
        for each, what in {**{key: what for key, (_, what) in COMMANDS.items()}, **OF_SERVER}.items():
            print(f"    {each:<9} {what}")
        return 0
    known = [*COMMANDS, *OF_SERVER]
    print(f"error: {name} is no command{meant(name, known)} `reasoningbank --help` lists them.", file=sys.stderr)
    return 2
