"""One attempt at one task: the only place where an agent's model and an env meet (inference + execution)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from core.agents.agent import Agent, Responder
from core.errors import InfraError, OverBudget
from core.models.base import Reply, Role
from core.seeding import derive_seed
from core.types import Message, Scored, Step, Task, Trajectory, Usage, content_id
from envs.base import BaseEnv
from prompts import registry

NO_REPLY = "(no reply)"  # providers refuse an empty turn in a conversation
NOT_TAKEN = "(the episode is over: no action was taken)"
NO_ACTION = "No action could be read from your reply. Keep to the format you were given."


@dataclass(kw_only=True)
class Rollout:
    """Runs attempts. The conversation only grows: each turn appends the reply and the observation, nothing is redone.

    max_steps     actions in one attempt; None takes the env's own limit
    max_repeats   ends an attempt whose last so many steps had the same action and the same observation; None never does
    """

    agent: Agent
    role: Role
    seed: int
    max_steps: int | None = None
    max_repeats: int | None = None

    def run(self, env: BaseEnv, task: Task, memories: list[Scored], sample: int = 0) -> Trajectory:
        """One attempt. An InfraError of model or env ends it and is recorded with what was done until then."""
        attempt = _Attempt(task=task, sample=sample)
        try:
            attempt.opening = self.agent.opening(env.reset(task), env.instructions, memories)
            self._finish(env, attempt)
        except InfraError as error:
            attempt.fail(error)
        return attempt.trajectory()

    def refine(self, env: BaseEnv, task: Task, before: Trajectory, sample: int, *, restart: bool) -> Trajectory:
        """An attempt once more, after a check of it, over the same conversation (section 3.3, sequential scaling).

        restart   act in a new episode; otherwise go on where `before` left the env, and where it is over only give a
                  note on it. Single turn is always asked anew: its question is all there is to the env.
        """
        attempt = _Attempt(task=task, sample=sample)
        single = env.max_steps == 1
        over = before.ended_by in ("goal", "end")
        try:
            observation = env.reset(task) if restart or single else ""
            check = registry.render(
                registry.MATTS_SEQUENTIAL_CHECK_PROMPT,
                first=before.sample == 0,
                observation="" if single else observation,
            )
            attempt.opening = conversation(before)
            attempt.opening[-1] = said_after(attempt.opening[-1], check)
            if over and not (restart or single):
                return self._note(env, attempt, before)
            attempt.reward = 0.0 if restart or single else before.reward
            self._finish(env, attempt)
        except OverBudget as error:  # there is no note, and the round before it stays as it is
            attempt.ended_by, attempt.error = "budget", str(error)
        except InfraError as error:
            attempt.fail(error)
        return attempt.trajectory()

    def replay(self, env: BaseEnv, task: Task, rounds: list[Trajectory]) -> None:
        """Bring an env to where earlier rounds left it, without asking the model again. Raises InfraError."""
        env.reset(task)
        for action in (step.action for made in rounds for step in made.steps if step.action):
            if env.step(action)[2]:
                return

    def broken(self, task: Task, error: InfraError, sample: int = 0) -> Trajectory:
        """The attempt that never began, because something before it broke."""
        attempt = _Attempt(task=task, sample=sample)
        attempt.fail(error)
        return attempt.trajectory()

    def _finish(self, env: BaseEnv, attempt: _Attempt) -> None:
        """Play on from the attempt's opening, then ask the env how it went."""
        try:
            self._play(env, attempt, self.agent.begin(env, self.role, attempt.task.id))
        except OverBudget as error:  # judged by what was reached until then, like an attempt at its step limit
            attempt.ended_by, attempt.error = "budget", str(error)
        attempt.success = env.evaluate(attempt.answer)
        attempt.gold = env.get_ground_truth()
        if attempt.ended_by == "end" and attempt.success:
            attempt.ended_by = "goal"

    def _note(self, env: BaseEnv, attempt: _Attempt, before: Trajectory) -> Trajectory:
        """What the model says on an attempt that can no longer be changed: its outcome stands."""
        seed = derive_seed(self.seed, attempt.task.id, attempt.sample, 0, "agent")
        reply = self.agent.begin(env, self.role, attempt.task.id)(list(attempt.opening), attempt.sample, seed)
        note = replace(self._read(reply)[0], observation=NOT_TAKEN, valid=True)
        made = replace(before, sample=attempt.sample, opening=tuple(attempt.opening), steps=(note,), usage=reply.usage)
        return identified(attempt.task.id, made)

    def _play(self, env: BaseEnv, attempt: _Attempt, respond: Responder) -> None:
        messages: list[Message] = list(attempt.opening)
        for number in range(self.max_steps or env.max_steps):
            seed = derive_seed(self.seed, attempt.task.id, attempt.sample, number, "agent")
            reply = respond(list(messages), attempt.sample, seed)
            attempt.usage += reply.usage
            (step, action), done = self._read(reply), False
            if action is not None:
                observation, reward, done, info = env.step(action)
                valid, hint_chars = bool(info.get("valid", True)), info.get("hint_chars", 0)
                step = replace(step, observation=observation, valid=valid, hint_chars=hint_chars)
                attempt.reward += reward
                attempt.take(info)
            attempt.steps.append(step)
            if done:
                return
            if self.max_repeats and attempt.repeats() >= self.max_repeats:
                attempt.ended_by = "stuck"
                return
            messages += turns(step)
        attempt.ended_by = "step_limit"

    def _read(self, reply: Reply) -> tuple[Step, str | None]:
        """(the step as it stands where the env is not asked, the action; None where none could be read)."""
        thought, action = self.agent.parse(reply.text)
        read = {"text": reply.text, "thought": thought, "action": action or "", "finish_reason": reply.finish_reason}
        return Step(**read, observation=NO_ACTION, valid=False), action


def conversation(trajectory: Trajectory) -> list[Message]:
    """The whole of it: every message of an attempt, the last observation included."""
    return [*trajectory.opening, *(message for step in trajectory.steps for message in turns(step))]


def turns(step: Step) -> list[Message]:
    """A step as the two messages that follow in the conversation."""
    said, seen = step.text or NO_REPLY, step.observation
    return [{"role": "assistant", "content": said}, {"role": "user", "content": seen}]


def said_after(message: Message, text: str) -> Message:
    """A user message with more said at its end: providers want the roles to take turns."""
    return {**message, "content": f"{message['content']}\n\n{text}".strip()}


def identified(task_id: str, made: Trajectory) -> Trajectory:
    """With an id that depends on task and content alone.

    Two names go into it as schema 1 had them, so that the ids of runs made then and now agree.
    """
    steps = [{"aside" if name == "hint_chars" else name: value for name, value in vars(s).items()} for s in made.steps]
    ended_by = "error" if made.ended_by == "infra_error" else made.ended_by
    return replace(made, id=content_id(task_id, made.sample, made.opening, steps, ended_by))


class _Attempt:
    """A trajectory in the making."""

    def __init__(self, task: Task, sample: int) -> None:
        self.task, self.sample = task, sample
        self.opening: list[Message] = []
        self.steps: list[Step] = []
        self.answer: str | None = None
        self.ended_by = "end"
        self.reward = 0.0
        self.success = False
        self.gold = ""
        self.info: dict[str, Any] = {}
        self.usage = Usage()
        self.error: str | None = None

    def repeats(self) -> int:
        """How many steps at the end are like the last: 1 when it differs from the one before it."""
        ends = ((step.action, step.observation) for step in reversed(self.steps))
        last = next(ends)
        return 1 + sum(1 for _ in takewhile(lambda end: end == last, ends))

    def fail(self, error: InfraError) -> None:
        self.ended_by, self.error = "infra_error", f"{error.kind}: {error}"

    def take(self, info: dict[str, Any]) -> None:
        """Keep the answer and the plain facts of a step; lists (such as admissible actions) stay in the env."""
        self.answer = info.get("answer", self.answer)
        plain = (str, int, float, bool)
        self.info = {
            k: v for k, v in info.items() if isinstance(v, plain) and k not in ("valid", "answer", "hint_chars")
        }

    def trajectory(self) -> Trajectory:
        made = Trajectory(
            id="",
            sample=self.sample,
            opening=tuple(self.opening),
            steps=tuple(self.steps),
            answer=self.answer,
            ended_by=self.ended_by,
            reward=self.reward,
            success=self.success,
            gold=self.gold,
            info=self.info,
            usage=self.usage,
            error=self.error,
        )
        return identified(self.task.id, made)
