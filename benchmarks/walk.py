"""The walk of a new user: every command of README.md and of docs/, in order, in a fresh clone.

    python -m benchmarks.walk [PAGE...] [--list] [--setup]

A command is run as it stands on its page, unless benchmarks/data/walk.yaml says otherwise: words that make it short
and free (no model, two tasks), real names in the place of RUNS or BANK, or why it cannot be run here. A server of one
fixed answer stands in for a provider, and the problems that ship with the project for the datasets that a user would
fetch. --setup makes the clone's own .venv, else this one is used. Prints a line a command; exit status 1 where one
fails. The preregistration is no page to follow: its commands are of the past.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from benchmarks.latency_server import running
from scripts.command_line import REPO, parser, plain_errors
from scripts.reasoningbank import COMMANDS, OF_SERVER

RULES = Path(__file__).parent / "data" / "walk.yaml"
PROGRAMS = "python make reasoningbank reasoningbank-mcp jq pip git npx claude vllm export".split()
# An arm has this name, too, in a table that a page shows.
A_ROW = re.compile(rf"    reasoningbank (?!({'|'.join((*COMMANDS, *OF_SERVER))})\b)")
TIMEOUT_S = 600
SHOWN = 1500  # characters of the output of a command that failed


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command of a page. text: as it is typed, continued lines joined and the comment behind it gone."""

    page: str
    line: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What is done with the commands of which `match` finds a part: the first that matches counts.

    add    words at its end
    run    another command in its place; \\1 is a group of `match`
    skip   why it is not run
    needs  modules and programs without which it is not run
    """

    match: str
    add: str = ""
    run: str = ""
    skip: str = ""
    needs: str = ""

    @property
    def why_not(self) -> str:
        """Why a command is not run here; "": it is."""
        missing = (each for each in self.needs.split() if find_spec(each) is None and shutil.which(each) is None)
        return self.skip or next((f"needs {each}" for each in missing), "")

    def applied(self, command: str) -> str:
        """The command as the walk runs it."""
        if not self.run:
            return f"{command} {self.add}".strip()
        found = re.search(self.match, command)
        return found.expand(self.run) if found else command


def pages() -> list[str]:
    """README.md, then the pages that it names in its order, then any others."""
    named = re.findall(r"\]\((docs/\w+\.md)\b", (REPO / "README.md").read_text(encoding="utf-8"))
    others = sorted(path.relative_to(REPO).as_posix() for path in (REPO / "docs").glob("*.md"))
    return list(dict.fromkeys(["README.md", *named, *others]))


def commands(page: str) -> Iterator[Command]:
    """The commands in the indented and fenced blocks of a page."""
    begun, text = 0, ""
    for number, line in enumerate((REPO / page).read_text(encoding="utf-8").splitlines(), start=1):
        word = line.split()[0] if line.split() else ""
        if A_ROW.match(line) or not (text or (word.removeprefix(".venv/bin/") in PROGRAMS and line.startswith("    "))):
            continue
        begun = begun or number
        text += " " * bool(text) + re.split(r"\s{2,}#|\s# ", line.strip())[0].rstrip()
        if text.endswith("\\"):
            text = text[:-1].rstrip()
            continue
        yield Command(page=page, line=begun, text=text)
        begun, text = 0, ""


def rules() -> list[Rule]:
    """The rules of walk.yaml, in order."""
    import yaml

    return [Rule(**each) for each in yaml.safe_load(RULES.read_text(encoding="utf-8"))]


def rule_for(command: Command, known: list[Rule]) -> Rule:
    """The first rule that matches; without one the command is run as it stands."""
    return next((rule for rule in known if re.search(rule.match, command.text)), Rule(match=""))


def fresh_clone(folder: Path, *, setup: bool) -> Path:
    """The committed tree in a folder of its own, with its own .venv or a link to this one."""
    subprocess.run(["git", "clone", "-q", str(REPO), str(folder)], check=True)
    if setup:
        subprocess.run(["make", "setup"], cwd=folder, check=True)
    else:
        (folder / ".venv").symlink_to(Path(sys.prefix), target_is_directory=True)
        for name in ("pyproject.toml", "constraints.txt"):  # older than the .venv: make has nothing to install
            os.utime(folder / name, (0, 0))
    return folder


def names_for(server: str, clone: Path) -> dict[str, str]:
    """What the rules put in the place of names: the model's server, and the tutorial's file of questions."""
    page = (REPO / "docs" / "tutorial.md").read_text(encoding="utf-8")
    questions = clone.parent / "questions.jsonl"
    questions.write_text("".join(re.findall(r"^    (\{.*\}\n)", page, re.MULTILINE)), encoding="utf-8")
    return {"SERVER": server, "QUESTIONS": str(questions)}


def in_bash(line: str, *, cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """A line as a shell runs it."""
    words = ["timeout", str(TIMEOUT_S), "bash", "-c", line]
    return subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, check=False, errors="replace")


def walk(
    found: list[Command],
    clone: Path,
    known: list[Rule],
    names: dict[str, str],
    start: Callable[..., subprocess.CompletedProcess[str]] = in_bash,
) -> int:
    """Run the commands one after another, each by `start`. Returns how many failed."""
    failed = 0
    env = os.environ | {"HOME": str(clone.parent), "PATH": f"{clone}/.venv/bin:{os.environ['PATH']}"} | names
    env["PYTHONPATH"] = str(clone)  # an editable install in a borrowed .venv leads to another tree
    for command in found:
        rule = rule_for(command, known)
        where = f"{command.page}:{command.line}"
        if rule.why_not:
            print(f"{where:<24} not run  {command.text[:90]}   ({rule.why_not})", flush=True)
            continue
        began = time.monotonic()
        line = rule.applied(command.text)
        done = start(line, cwd=clone, env=env)
        failed += done.returncode != 0
        verdict = "ok" if done.returncode == 0 else f"FAILED ({done.returncode})"
        print(f"{where:<24} {verdict} {time.monotonic() - began:5.1f} s  {line[:140]}", flush=True)
        if done.returncode:
            print((done.stdout + done.stderr)[-SHOWN:], flush=True)
    return failed


@plain_errors()
def main(arguments: list[str] | None = None) -> int:
    options = parser(__doc__)
    options.add_argument("pages", nargs="*", metavar="PAGE")
    options.add_argument("--list", action="store_true", help="show what would be run")
    options.add_argument("--setup", action="store_true", help="make the clone's own .venv")
    given = options.parse_args(arguments)
    found, known = [each for page in given.pages or pages() for each in commands(page)], rules()
    if given.list:
        for each in found:
            rule = rule_for(each, known)
            print(f"{each.page}:{each.line}  {f'- {rule.why_not}' if rule.why_not else rule.applied(each.text)}")
        return 0
    with tempfile.TemporaryDirectory() as folder, running(0.01) as server:
        clone = fresh_clone(Path(folder) / "reasoningbank", setup=given.setup)
        failed = walk(found, clone, known, names_for(server, clone))
    print(f"{len(found)} commands, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
