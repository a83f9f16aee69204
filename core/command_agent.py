"""agent=command: any coding agent that is a program is the attempt, such as mini-swe-agent, Claude Code or a script.

    python main.py env=swe agent=command agent.command='sh /given/task.sh {task_file}' ...

The env starts the command in its sandbox, in the repository, with a home folder of its own and no network but a relay
to the model's server (core/models/relay.py). What it leaves in the repository is the answer. An attempt has two steps:
the command, and the submission of what it left; the thought of the second is what the agent and its model said.
"""

from __future__ import annotations

import os
import shlex
import threading
import weakref
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from core.agent import Agent, Responder
from core.errors import UserError, check_choice, check_positive
from core.learning.transcript import cut
from core.lesson_door import LessonDoor, settings
from core.models.base import Reply, Role
from core.models.relay import FORWARD, PLACEHOLDER, SOCKET, Relay, base_url
from core.outfit import GIVEN, HOME, RELAY, REPOSITORY, SUBMIT_LEFT, Outfit
from core.process import removed_with_us
from core.textfile import read_text
from core.types import Message, Scored, Usage

TASK_FILE, MCP_CONFIG = f"{GIVEN}/task.md", "mcp.json"
DELIVERIES = ("prompt", "file", "skill", "mcp")
ABOUT = "Lessons from earlier tasks of this kind. Read them before you begin a task."
FRONT = f"---\nname: {{name}}\ndescription: {ABOUT}\n---\n\n"
MOST = 20_000  # characters of the conversation that are kept as the second step's thought


@dataclass(kw_only=True)
class CommandAgent(Agent):
    """A program that is started once for each attempt.

    command      a line for bash, with the fields {task_file}, {task} (the text, quoted), {model} (as its server calls
                 it), {base_url}, {api_key}, {home}, {repository}, {mcp_config}; an own brace is written twice
    deliver      how the retrieved lessons reach it: prompt, before the task | file, at the end of `file` | skill, as
                 `skill` | mcp, by the bank's own server, which {mcp_config} names in the form that most clients read
    file, skill  paths in the repository; both are as they were before the answer is taken
    own_file     a file of yours that is delivered in their place (arm=no_memory): does it help? null: lessons are
    shows        folders or files of this machine with the program, which it sees read-only at the same place; the
                 folders' bin/ comes first in PATH
    variables    further environment variables; the values have the command's fields, too
    needs_model  false: it asks no model, so it gets no network at all
    timeout_s    after which it is ended; what it left by then is its answer
    """

    command: str
    deliver: str = "prompt"
    file: str = "AGENTS.md"
    skill: str = ".claude/skills/lessons/SKILL.md"
    own_file: str | None = None
    shows: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    needs_model: bool = True
    timeout_s: float = 1800.0
    _shown: dict[str, list[Scored]] = field(default_factory=dict, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)
    thinks: ClassVar[bool] = False  # it is not asked to say which lessons it uses
    converses: ClassVar[bool] = False
    calls_model: ClassVar[bool] = False  # its program does
    least_steps: ClassVar[int] = 2  # the command, and the submission of what it left

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self, "agent", "deliver", DELIVERIES)
        if self.inject != "system":
            raise UserError("agent=command: memory.inject has no effect here: choose with agent.deliver.")
        check_positive(self, "agent", "timeout_s")
        if not isinstance(self.command, str) or not self.command.strip():
            raise UserError("agent=command: say what to run, e.g. agent.command='my-agent --task {task_file}'.")
        _filled("agent.command", self.command, dict.fromkeys(_FIELDS, ""))
        for name, value in self.variables.items():
            _filled(f"agent.variables.{name}", str(value), dict.fromkeys(_FIELDS, ""))
        if self.deliver == "mcp":
            if self.own_file is not None:
                raise UserError("agent.own_file is delivered as prompt, file or skill: a server has lessons.")
            if not any("{mcp_config}" in str(text) for text in (self.command, *self.variables.values())):
                raise UserError("agent.deliver=mcp: agent.command must hand the file {mcp_config} to the program.")
        for name in ("file", "skill"):
            path = Path(getattr(self, name))
            if path.is_absolute() or ".." in path.parts:
                raise UserError(f"agent.{name}={path}: give a path within the repository.")
        for place in self.shows:
            if not Path(place).expanduser().exists():
                raise UserError(f"agent.shows: there is no {place}.")
        self._own_text = (
            self.own_file and read_text(Path(self.own_file).expanduser(), f"agent.own_file={self.own_file}").strip()
        )

    def opening(self, observation: str, instructions: str, memories: list[Scored]) -> list[Message]:
        """What is delivered, and the task. The env's own instructions are for agents that act step by step."""
        opening = super().opening(observation, "", memories)
        kept = [
            replace(memory, record=replace(memory.record, items=memory.record.items[:n]))
            for memory, n in zip(memories, self.shown(memories), strict=True)
            if n
        ]
        with self._lock:  # what the same text is made of is the same
            self._shown[opening[0]["content"]] = kept
        return opening

    def memory_block(self, memories: list[Scored]) -> str:
        return super().memory_block(memories) if self._own_text is None else self._own_text

    def begin(self, env: Any, role: Role, task: str) -> Responder:
        return _CommandRun(self, env, role, task)

    def parse(self, text: str) -> tuple[str, str | None]:
        thought, _, action = text.rpartition(_MARK)
        return thought, action or None

    def shown_with(self, messages: list[Message]) -> list[Scored]:
        """The records whose lessons stand in an attempt's opening."""
        return self._shown.get(messages[0]["content"], [])

    def delivered(self, messages: list[Message]) -> str:
        """The lessons in an attempt's opening; "" for none. They stand behind the answer format, or before the task."""
        whole = self.answer_format.strip()
        return messages[0]["content"].removeprefix(whole).strip()


_MARK = "\x1e"  # between the thought and the action of a reply
_FIELDS = ("task_file", "task", "model", "base_url", "api_key", "home", "repository", "mcp_config")
# The forwarder says a word when it listens; it ends with the command, as all that runs in the sandbox.
_FORWARD = f"exec 8< <(exec python3 -I {RELAY}/{FORWARD} {RELAY}/{SOCKET}); read -r -u 8 _"


class _CommandRun:
    """The replies of one attempt: the command, then the submission of what it left. Its relay ends with it."""

    def __init__(self, agent: CommandAgent, env: Any, role: Role, task: str) -> None:
        self._agent, self._env, self._role, self._task = agent, env, role, task
        self._relay: Relay | None = None
        self._began = False
        self._open = ExitStack()
        weakref.finalize(self, self._open.close)  # where the attempt breaks before its second step

    def __call__(self, messages: list[Message], sample: int, seed: int) -> Reply:
        if not self._began:
            self._began = True
            return _reply("", self._start(messages, sample), Usage())
        self._open.close()
        if (relay := self._relay) is None:
            return _reply("", SUBMIT_LEFT, Usage())
        if relay.fatal is not None:
            raise relay.fatal
        if relay.refused is not None and relay.refused.whole_run:
            relay.refused.usage = relay.used
            raise relay.refused
        return _reply(cut(relay.transcript, MOST), SUBMIT_LEFT, relay.used)

    def _start(self, messages: list[Message], sample: int) -> str:
        """Equip the env, and return the command."""
        agent, llm = self._agent, self._role.llm
        task, lessons = messages[-1]["content"], agent.delivered(messages)
        placed = {}
        if lessons and agent.deliver == "file":
            placed = {agent.file: lessons}
        elif lessons and agent.deliver == "skill":
            placed = {agent.skill: FRONT.format(name=Path(agent.skill).parent.name) + lessons}
        elif lessons and agent.deliver == "prompt":
            task = f"{lessons}\n\n{task}"
        task = f"{agent.answer_format.strip()}\n\n{task}"
        values = {"task_file": TASK_FILE, "task": shlex.quote(task), "home": HOME, "repository": REPOSITORY}
        values |= {"model": llm.name.partition("/")[2] or llm.name, "base_url": "", "api_key": PLACEHOLDER}
        values["mcp_config"] = f"{GIVEN}/{MCP_CONFIG}"
        folder = Path(self._open.enter_context(TemporaryDirectory(prefix="reasoningbank-agent-")))
        self._open.enter_context(removed_with_us(folder))
        folder.chmod(0o755 if os.geteuid() == 0 else 0o700)  # as root the sandbox has another user
        if agent.needs_model:
            self._relay = Relay(role=self._role, task=self._task, sample=sample, folder=folder)
            self._open.callback(self._relay.close)
            values["base_url"] = base_url(llm)
        memories = agent.shown_with(messages) if agent.deliver == "mcp" else []
        if memories:
            self._open.callback(LessonDoor(folder, memories).close)
        shows = [str(Path(each).expanduser().resolve()) for each in agent.shows]
        programs = ":".join(shlex.quote(f"{each}/bin") for each in shows)
        before = f"mkdir -p {HOME}; export PATH={programs}:$PATH" if shows else f"mkdir -p {HOME}"
        variables = {"HOME": HOME} | {n: _filled(n, str(value), values) for n, value in agent.variables.items()}
        self._env.equip(
            Outfit(
                timeout_s=agent.timeout_s,
                given={Path(TASK_FILE).name: task, MCP_CONFIG: settings(RELAY if memories else None)},
                placed=placed,
                shows=tuple(shows),
                relay=str(folder),
                before=f"{before}; {_FORWARD}" if self._relay else before,
                variables=variables,
            )
        )
        return _filled("agent.command", agent.command, values)


def _filled(name: str, text: str, values: Mapping[str, str]) -> str:
    """The text with its fields filled in. Raises UserError for a field that is not known."""
    try:
        return text.format_map(dict(values))
    except (KeyError, IndexError, ValueError) as error:
        known = ", ".join(f"{{{field}}}" for field in _FIELDS)
        raise UserError(f"{name}: {error} is no field: known are {known}; write {{{{ for a brace of its own.") from None


def _reply(thought: str, action: str, usage: Usage) -> Reply:
    return Reply(text=f"{thought}{_MARK}{action}", usage=usage, finish_reason="stop", model="command")
