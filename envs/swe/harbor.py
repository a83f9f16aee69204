"""env=harbor: tasks in the layout of Harbor (harborframework.com/docs/tasks), as of Terminal-Bench 2.

    TASK/instruction.md, task.toml      what is to be done; of [environment] docker_image and allow_internet are read
    TASK/environment/Dockerfile         the image, where there is no docker_image
    TASK/tests/test.sh                  run in the container as the agent left it; writes a number to /logs/verifier/
    TASK/solution/solve.sh              for agent=gold; it may be missing, as may lesson.md (envs/swe/folders.py)

A reward of 1 or more is a success. The limits are those of env.limits and env.test_timeout_s.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.errors import UserError, check_choice
from core.outfit import SUBMIT_LEFT, Outfit
from core.textfile import read_text
from core.types import Task
from envs.swe.container import Container
from envs.swe.data import Instance
from envs.swe.env import SANDBOXES, SUBMIT
from envs.swe.evaluation import APPLY_S, Result
from envs.swe.folders import FoldersEnv
from envs.swe.sandbox import GIVEN

LOGS = "/logs/verifier"
REWARD = f"cat {LOGS}/reward.txt 2>/dev/null || cat {LOGS}/reward.json"
NUMBER = re.compile(r"-?\d+(\.\d+)?")


@dataclass(kw_only=True)
class HarborEnv(FoldersEnv):
    """As env=folders, but in a container, of which the state counts and not a patch."""

    sandbox: str = "docker"
    _box: Container = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_choice(self, "env", "sandbox", SANDBOXES[1:])
        super().__post_init__()

    def walkthrough(self) -> list[str]:
        return [self._playing.gold, SUBMIT]

    def _read(self, folder: Path) -> Instance:
        if list((folder / "environment").glob("docker-compose.y*ml")):
            raise UserError(
                f"{folder}: its environment is several containers (docker-compose), and one is played here."
            )
        for name in ("instruction.md", "task.toml", "tests/test.sh"):
            if not (folder / name).is_file():
                raise UserError(f"{folder} is no task in Harbor's layout: {name} is missing.")
        _environment(folder)
        solution, issue = folder / "solution" / "solve.sh", read_text(folder / "instruction.md").strip()
        gold = read_text(solution) if solution.is_file() else ""
        about = {"repo": folder.name, "type": folder.name, "tests": ((), ()), "test_patch": ""}
        return Instance(id=folder.name, issue=issue, gold=gold, **about)

    def _check(self, it: Instance) -> None:
        """Nothing: what it needs was read."""

    def _reset(self, task: Task) -> str:
        self._playing, self._solved, self._outfit = self._instance(task.id), False, None
        folder = self._folder(task.id)
        about = _environment(folder)
        image = about.get("docker_image") or self._box.build(folder / "environment")
        self._box.open(image, online=about.get("allow_internet", True))
        self._box.check_room()
        return task.query

    def _step_of_command(self, outfit: Outfit, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        files = [(shlex.quote(name), f"{GIVEN}/was_{number}") for number, name in enumerate(outfit.placed)]
        if action == SUBMIT_LEFT:
            back = [f"rm -f {name}; [ ! -e {was} ] || cp {was} {name}" for name, was in files]
            self._box.run("; ".join(back) or ":", APPLY_S)
            return self._submitted("")
        self._box.run("; ".join(f"cp {name} {was}" for name, was in files) or ":", APPLY_S)
        return super()._step_of_command(outfit, action)

    def _evaluated(self, patch: str) -> Result:
        self._box.copy(None, LOGS)
        self._box.copy(self._folder(f"swe/{self._playing.id}") / "tests", "/tests")
        ran = self._box.run("bash /tests/test.sh", self.test_timeout_s)
        found = NUMBER.search(self._box.run(REWARD, APPLY_S).output)
        self._check_going_on()
        solved = not ran.killed and found is not None and float(found[0]) >= 1
        said = "rewarded" if found else "no reward was written"
        return Result(solved=solved, patch=said, failed=int(not solved), killed=ran.killed)

    def _received(self, patch: str) -> str:
        return "What was done is submitted."


def _environment(folder: Path) -> dict[str, Any]:
    """[environment] of a task's settings."""
    try:
        return tomllib.loads(read_text(folder / "task.toml")).get("environment", {})
    except ValueError as error:
        raise UserError(f"{folder / 'task.toml'}: {error}.") from None
