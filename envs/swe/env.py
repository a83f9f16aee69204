"""env=swe: an issue of a repository is to be fixed by bash commands, as in SWE-bench (Jimenez et al. 2024).

    task        average() of an empty list raises ZeroDivisionError ...
    action      grep -rn "def average" .
    feedback    <returncode>0</returncode>
                <output>
                ./stats/mean.py:4:def average(values):
                </output>

The loop is that of mini-swe-agent 1.10, which the paper used: each command in a new shell, 60 s, long output cut to its
first and last 5 000 characters, a patch that is submitted by a command whose output begins with a known line. Whether
the tests pass is found out after that, on a fresh copy; neither the agent nor its judge reads of it.
"""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import dataclass, field
from typing import Any

from core.errors import InfraError, UserError, check_choice, check_positive
from core.outfit import SUBMIT_LEFT, Outfit
from core.types import Lesson, Task
from envs.base import BaseEnv
from envs.swe.bubblewrap import Bubblewrap
from envs.swe.container import Container
from envs.swe.data import Instance, data_digest, family_lessons, load, place
from envs.swe.evaluation import APPLY_S, Result, begin, left_by, put, resolve, with_bytes
from envs.swe.sandbox import Limits, Ran, Sandbox, as_bytes, as_text, is_text

SANDBOXES = ("bwrap", "docker", "podman")
SUBMITTED = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
SUBMIT = f"echo {SUBMITTED} && git add -A && git diff --cached"
HALF = 5_000  # characters that are shown of the beginning and of the end of a long output
SHORT = 2 * HALF
TAMPERED = " It was found to be tampered: it changes how the tests are run or reported, and counts as a failure."
KILLED = {
    "time": "it took longer than {command_timeout_s:g} seconds",
    "memory": "its processes used more than {memory_mb} MB of memory",
    "disk": "it wrote more than the {disk_mb} MB that there are. Nothing can be written until enough is removed",
    "files": "it made more than the {files} files that there may be. Nothing can be written until enough is removed",
    "output": "it printed more than {output_mb} MB",
}


@dataclass(kw_only=True)
class SweEnv(BaseEnv):
    """One command a step. Its keys: config/env/swe.yaml."""

    data: str = "bundled"
    sandbox: str = "bwrap"
    evaluation: str = "tests"
    types: list[str] | None = None
    ids: list[str] | None = None
    image: str = "docker.io/swebench/sweb.eval.x86_64.{id}:latest"
    command_timeout_s: float = 60.0
    test_timeout_s: float = 600.0
    limits: Limits = field(default_factory=Limits)
    _instances: dict[str, Instance] = field(default_factory=dict, init=False, repr=False)
    _box: Sandbox = field(init=False, repr=False)
    _tested_in: Sandbox | None = field(default=None, init=False, repr=False)  # while a patch is evaluated
    _playing: Instance | None = field(default=None, init=False, repr=False)
    _solved: bool = field(default=False, init=False, repr=False)
    _outfit: Outfit | None = field(default=None, init=False, repr=False)  # of agent=command, for the running episode

    def __post_init__(self) -> None:
        check_choice(self, "env", "sandbox", SANDBOXES)
        check_choice(self, "env", "evaluation", ("tests", "none"))
        check_positive(self, "env", "command_timeout_s", "test_timeout_s")
        self._box = make_sandbox(self.sandbox, self.limits)

    def lessons(self) -> list[tuple[Task, Lesson]]:
        """For each family a task of it and its convention; the tasks of a file have none."""
        lessons = family_lessons(self.data)
        first = self.first_of_type()
        return [(first[name], lessons[name]) for name in first if name in lessons] or super().lessons()

    def walkthrough(self) -> list[str]:
        gold, end = self._playing.gold, "END_OF_GOLD_PATCH"
        apply = f"git apply --whitespace=nowarn - <<'{end}'"
        if not is_text(gold):  # a command is
            gold = b64encode(as_bytes(gold)).decode()
            apply = f"base64 -d <<'{end}' | git apply --whitespace=nowarn -"
        return [f"{apply}\n{gold}\n{end}", SUBMIT]

    def admissible(self) -> list[str]:
        return ["ls -la", "git log --oneline", "git ls-files", "python -m pytest -q", SUBMIT]

    def describe(self) -> dict[str, Any]:
        """Identify the tasks. sha256: of all of env.data, even if only a part is played."""
        return {
            "dataset": f"swe {place(self.data).name}",
            "sha256": data_digest(self.data),
            "evaluation": self.evaluation,
        }

    def files(self, answers: dict[str, str | None], model: str) -> dict[str, str]:
        """The predictions, as the official harness of SWE-bench reads them."""
        rows = [
            {"instance_id": self._instance(name).id, "model_name_or_path": model, "model_patch": patch or ""}
            for name, patch in answers.items()
        ]
        return {"predictions.jsonl": "".join(json.dumps(row) + "\n" for row in rows)}

    def get_ground_truth(self) -> str:
        return self._playing.gold

    def evaluate(self, prediction: str | None) -> bool:
        return self._solved

    def close(self) -> None:
        """With what another thread does here: Ctrl-C waits for none."""
        super().close()
        self._end()

    def abort(self) -> None:
        super().abort()
        self._end()

    def _tasks(self, split: str | None) -> list[Task]:
        self._load()
        return [Task(id=name, query=each.issue, type=each.type) for name, each in self._instances.items()]

    def _reset(self, task: Task) -> str:
        self._playing, self._solved, self._outfit = self._instance(task.id), False, None
        begin(self._box, self._source(), self._playing)
        return f"Please solve this issue of the repository in the current folder:\n\n{task.query}"

    def equip(self, outfit: Outfit) -> None:
        self._outfit = outfit
        self._box.wear(outfit)
        for name, text in outfit.given.items():
            self._box.give(name, text)
        for number, text in enumerate(outfit.placed.values()):
            self._box.give(f"placed_{number}", text)

    def _step(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        if self._outfit is not None:
            return self._step_of_command(self._outfit, action)
        ran = self._box.run(action, self.command_timeout_s)
        self._check_going_on()
        first, _, patch = as_text(ran.data).lstrip().partition("\n")
        if first.strip() != SUBMITTED or ran.killed:
            return self._shown(ran), 0.0, False, {"valid": not ran.refused, "won": False}
        patch = with_bytes(self._box, patch, ascii_only=self.evaluation == "none")
        self._check_going_on()
        return self._submitted(patch)

    def _step_of_command(self, outfit: Outfit, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        """Of agent=command: the command, and then the submission of what it left, whether it ended well or not."""
        if action == SUBMIT_LEFT:
            # Caches in its home folder may have filled what there is: nothing could be written then.
            self._box.run("find /tmp -mindepth 1 -maxdepth 1 -exec rm -rf {} +", APPLY_S)
            ran = self._box.run(left_by(outfit.placed), APPLY_S)
            self._check_going_on()
            if ran.returncode == 0:
                return self._submitted(as_text(ran.data))
            self._box.check_room()  # else it is by its own doing that nothing can be read any more
            observation, *rest = self._submitted("")
            return f"{observation} What was left could not be read: {ran.output.strip()[-500:] or ran.killed}", *rest
        ran = self._box.run(f"{put(outfit.placed)}; {outfit.before}; {action}", outfit.timeout_s, outfit=outfit)
        self._check_going_on()
        return self._shown(ran, outfit.timeout_s), 0.0, False, {"valid": not ran.refused, "won": False}

    def _submitted(self, patch: str) -> tuple[str, float, bool, dict[str, Any]]:
        info = {"valid": True, "answer": patch}
        if self.evaluation == "none":
            return self._received(patch), 0.0, True, info | {"won": False, "evaluated": False}
        result = self._evaluated(patch)
        self._solved = result.solved
        info |= {"patch": result.patch, "n_failed": result.failed, "tests_killed": result.killed}
        info |= {"touched": ", ".join(result.touched)} if result.touched else {}
        info |= {"tampered": result.tampered} if result.tampered else {}
        observation = self._received(patch) + (TAMPERED if result.tampered else "")
        return observation, float(result.solved), True, info | {"won": result.solved}

    def _evaluated(self, patch: str) -> Result:
        self._tested_in = box = make_sandbox(self.sandbox, self.limits)
        try:
            self._check_going_on()  # an abort from now on reaches the box
            result = resolve(box, patch, self._playing, source=self._source(), timeout_s=self.test_timeout_s)
        finally:
            self._tested_in = None
        self._check_going_on()  # else tests that were killed would be failed ones
        return result

    def _check_going_on(self) -> None:
        if self.closed:
            raise InfraError("aborted")

    def _end(self) -> None:
        """From any thread: end the sandboxes for good. Their copies of the repository would lie there until the end."""
        for box in (self._tested_in, self._box):
            if box is not None:
                box.abort()
                box.close()

    def _shown(self, ran: Ran, timeout_s: float | None = None) -> str:
        """The result of a command, in the format of mini-swe-agent."""
        values = {**vars(self.limits), "command_timeout_s": timeout_s or self.command_timeout_s}
        head = f"<returncode>{ran.returncode}</returncode>"
        if ran.killed:
            head = f"The command was killed, with all that it had started: {KILLED[ran.killed].format_map(values)}."
        text = ran.output.replace("\x00", "\ufffd")
        if len(text) <= SHORT:
            return f"{head}\n<output>\n{text}</output>"
        return (
            f"{head}\n<warning>\nThe output is too long: its middle is left out. Print less, e.g. with head, tail, sed "
            "or a narrower grep, or write it to a file and look at parts of that.\n</warning>\n"
            f"<output_head>\n{text[:HALF]}\n</output_head>\n"
            f"<elided_chars>\n{len(text) - SHORT} characters left out\n</elided_chars>\n"
            f"<output_tail>\n{text[-HALF:]}\n</output_tail>"
        )

    def _received(self, patch: str) -> str:
        """The last observation of an attempt, which does not reveal the result of the tests."""
        changed = sum(line.startswith("diff --git ") for line in patch.splitlines())
        return f"The patch is submitted. It changes {changed} {'file' if changed == 1 else 'files'}."

    def _load(self) -> None:
        """Read env.data, and refuse what cannot be played here."""
        if self._instances:
            return
        self._box.check()
        instances = self._instances_of()
        for name, key in (("types", "type"), ("ids", "id")):
            if (wanted := getattr(self, name)) is not None:
                known = {getattr(each, key) for each in instances}
                if unknown := [each for each in wanted if each not in known]:
                    raise UserError(f"env.{name}: {self.data} has no {', '.join(map(str, unknown))}.")
                instances = [each for each in instances if getattr(each, key) in wanted]
        for each in instances:
            self._check(each)
        self._instances = {f"swe/{each.id}": each for each in instances}
        if len(self._instances) < len(instances):
            raise UserError(f"env.data={self.data}: {len(instances)} rows have {len(self._instances)} different ids.")

    def _instances_of(self) -> list[Instance]:
        return load(self.data)

    def _check(self, it: Instance) -> None:
        """Raises UserError where an instance does not fit the other keys."""
        if (it.folder is None) == (self.sandbox == "bwrap"):
            fits = "docker or podman, whose images hold its repositories" if it.folder is None else "bwrap"
            raise UserError(f"env.data={self.data} cannot be played with env.sandbox={self.sandbox}: choose {fits}.")
        if self.evaluation == "none":
            return
        names = [*it.tests[0], *it.tests[1]]
        other = [name for name in names if not name.partition("::")[0].endswith(".py")]
        if other or not it.tests[0]:
            why = f"test {other[0]!r} is none of pytest" if other else "FAIL_TO_PASS names no test"
            raise UserError(
                f"{it.id}: {why}, so env.evaluation=tests cannot evaluate it: use env.evaluation=none, and the "
                "official harness on the predictions."
            )

    def _instance(self, task_id: str) -> Instance:
        self._load()
        if task_id not in self._instances:
            raise UserError(f"{task_id!r} is no task of env.data={self.data}")
        return self._instances[task_id]

    def _source(self) -> str:
        it = self._playing
        if it.folder is not None:
            return str(it.folder)
        return it.image or self.image.replace("{id}", it.id.replace("__", "_1776_").lower())


def make_sandbox(kind: str, limits: Limits) -> Sandbox:
    """A sandbox of env.sandbox, not yet opened. Commands never run without one."""
    if kind not in SANDBOXES:
        raise UserError(f"env.sandbox={kind}: choose {', '.join(SANDBOXES[:-1])} or {SANDBOXES[-1]}.")
    return Bubblewrap(limits=limits) if kind == "bwrap" else Container(program=kind, limits=limits)
