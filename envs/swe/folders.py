"""env=folders: your own tasks for a coding agent, each a folder.

    TASK/task.md      what is to be done
    TASK/repo/        the folder that it is done in; the agent gets a copy
    TASK/check        an executable, run in the copy as the agent left it: exit status 0 if the task is solved
    TASK/lesson.md    the ideal lesson, for arm=told_lesson: its first line is the title. It may be missing

The agent never sees `check`. It runs in the same sandbox, on a fresh copy with the agent's changes, without a network.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from core.errors import UserError
from core.textfile import read_bytes, read_text
from core.types import Lesson, Task
from envs.swe.data import Instance, lesson_in
from envs.swe.env import SweEnv, make_sandbox
from envs.swe.evaluation import APPLY_S, Result, begin
from envs.swe.sandbox import GIVEN, as_text

APPLY = f"git apply --whitespace=nowarn {GIVEN}/answer.patch"
CHECK = f"cp {GIVEN}/check /tmp/check && chmod +x /tmp/check && exec /tmp/check"


@dataclass(kw_only=True)
class FoldersEnv(SweEnv):
    """As env=swe, but for what a task is and how it is graded. path: the folder of the tasks' folders."""

    path: str

    def __post_init__(self) -> None:
        self.data = str(Path(self.path).expanduser())
        super().__post_init__()

    def lessons(self) -> list[tuple[Task, Lesson]]:
        found = []
        for task in self.tasks():
            file = self._folder(task.id) / "lesson.md"
            if file.is_file():
                found.append((task, lesson_in(file, f"A lesson for tasks like {task.id}.")))
        if not found:
            raise UserError(f"env.path={self.path}: no task has a lesson.md, so there is no lesson to tell.")
        return found

    def _folder(self, task_id: str) -> Path:
        return Path(self.data) / self._instance(task_id).id

    def _instances_of(self) -> list[Instance]:
        folder = Path(self.data)
        if not folder.is_dir():
            raise UserError(f"env.path={self.path}: there is no such folder.")
        tasks = sorted(each for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))
        if not tasks:
            raise UserError(
                f"env.path={self.path}: it holds no folder. Each task is one, with task.md, repo/ and check."
            )
        return [self._read(each) for each in tasks]

    def _read(self, folder: Path) -> Instance:
        if (folder / "instruction.md").is_file() and not (folder / "task.md").is_file():
            raise UserError(f"{folder} is a task in Harbor's layout: env=harbor plays it, in docker or podman.")
        for name, is_there in (("task.md", Path.is_file), ("repo", Path.is_dir), ("check", Path.is_file)):
            if not is_there(folder / name):
                raise UserError(
                    f"{folder} is no task: {name} is missing. A task is a folder with task.md, repo/ and check."
                )
        if not (folder / "check").stat().st_mode & 0o100:
            raise UserError(f"{folder / 'check'} cannot be executed: chmod +x it.")
        gold = folder / "gold.patch"
        return Instance(
            id=folder.name,
            repo=folder.name,
            type=folder.name,
            issue=read_text(folder / "task.md").strip(),
            tests=((), ()),
            gold=as_text(read_bytes(gold)) if gold.is_file() else "",
            test_patch="",
            folder=folder / "repo",
        )

    def _check(self, it: Instance) -> None:
        if self.sandbox != "bwrap":
            raise UserError("env=folders needs env.sandbox=bwrap.")

    def _evaluated(self, patch: str) -> Result:
        """What `check` says of a fresh copy with the patch."""
        self._tested_in = box = make_sandbox(self.sandbox, self.limits)
        try:
            self._check_going_on()
            begin(box, self._source(), self._playing)
            if patch.strip():
                box.give("answer.patch", patch)
                if box.run(APPLY, APPLY_S).returncode != 0:
                    return Result(solved=False, patch="does not apply", failed=1)
            box.give("check", as_text(read_bytes(self._folder(f"swe/{self._playing.id}") / "check")))
            ran = box.run(CHECK, self.test_timeout_s)
            box.check_room()
        finally:
            self._tested_in = None
            box.close()
        self._check_going_on()
        solved = ran.returncode == 0
        return Result(
            solved=solved, patch="applied" if patch.strip() else "empty", failed=int(not solved), killed=ran.killed
        )
