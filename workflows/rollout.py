"""One attempt at one task (inference + execution): an agent's model acts in an env."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

from core.agent import Agent, Responder
from core.conversation import conversation, turns
from core.errors import AttemptOver, InfraError, check_returned
from core.learning.transcript import REPLY_ENDS
from core.models.base import Reply, Role
from core.models.meter import account_of
from core.seeding import derive_seed
from core.types import MEMORY, NOT_TAKEN, Message, Recalled, Scored, Step, Task, Trajectory, Usage, trajectory_id
from envs.base import BaseEnv, EnvView
from prompts import registry

log = logging.getLogger("run.attempts")
ACTIONS = logging.getLogger("actions")  # for the screen alone (core/run/display.py)
NOTICES = logging.getLogger("run.notices")
NO_ACTION = "No action could be read from your reply. Keep to the format you were given."


@dataclass(kw_only=True)
class Rollout:
    """Runs attempts. The conversation only grows: each turn appends the reply and the observation. `Agent.seen` decides
    how much of it a prompt contains.

    recall        retrieves lessons after a step: (task, query) -> records; None: only the opening has lessons
    when          step | stuck: after every step, or where the step was invalid or repeats the one before it
    max_steps     maximum number of actions in one attempt; None: the env's own limit
    max_repeats   end an attempt after this many consecutive steps with the same action and observation; None: never
    timeout_s     begin no step later than this many seconds after the attempt's start; None: no limit
    """

    agent: Agent
    role: Role
    seed: int
    max_steps: int | None = None
    max_repeats: int | None = None
    timeout_s: float | None = None
    recall: Callable[[Task, str], list[Scored]] | None = None
    when: str = "step"
    _logged: set[str] = field(default_factory=set, init=False, repr=False)  # errors

    def retrieved(self, task: Task) -> list[Scored] | None:
        """The records retrieved by an earlier run, if its attempts are used again; None: ask the bank."""
        return None

    def run(self, env: BaseEnv, task: Task, memories: list[Scored], sample: int = 0) -> Trajectory:
        """One attempt. An error of the model or the env ends it and is recorded, with the steps made before it."""
        attempt = _Attempt(task=task, sample=sample, memories=memories)
        try:
            observation = env.reset(task)  # before its instructions are read, which may depend on the task
            attempt.opening = self.agent.opening(observation, env.instructions, memories)
            self._finish(env, attempt)
        except InfraError as error:
            self._break(attempt, error)
        return attempt.trajectory()

    def refine(
        self, env: BaseEnv, task: Task, memories: list[Scored], before: list[Trajectory], *, restart: bool
    ) -> Trajectory:
        """A further round: the agent checks the last one in the same conversation and tries again (section 3.3).

        memories  what the first round's opening showed
        before    the rounds so far; their number is the new one's `sample`
        restart   True: act in a new episode, as a single-turn env always does. False: continue in the state in which
                  the last round left the env; if that episode is over or already evaluated, the agent only writes a
                  note.
        """
        attempt, earlier = _Attempt(task=task, sample=len(before), memories=memories), before[-1]
        attempt.known |= {shown.id for made in before for shown in made.recalled}
        single = env.max_steps == 1
        restart = restart or single
        try:
            observation = env.reset(task) if restart else ""
            check = self.role.prompts.render(
                registry.MATTS_SEQUENTIAL_CHECK_PROMPT,
                first=earlier.sample == 0,
                query=task.query,
                answer_format=self.agent.answer_format.strip(),
                observation="" if single else observation,
            )
            attempt.opening = conversation(earlier)
            last = attempt.opening[-1]  # a user message: providers want the roles to take turns
            attempt.opening[-1] = {**last, "content": f"{last['content']}\n\n{check}".strip()}
            if not restart and (env.late or earlier.ended_by in ("goal", "end")):
                return self._note(env, attempt, earlier)
            attempt.reward = 0.0 if restart else earlier.reward
            self._finish(env, attempt)
        except AttemptOver as error:  # no note is written, and the previous round stays the answer
            attempt.cut_off(error)
        except InfraError as error:
            self._break(attempt, error)
        return attempt.trajectory()

    def replay(self, env: BaseEnv, task: Task, rounds: list[Trajectory]) -> None:
        """Repeat the actions of earlier rounds in an env, without calling the model. Raises InfraError."""
        env.reset(task)
        for action in (step.action for made in rounds for step in made.steps if step.action):
            if env.step(action)[2]:
                return

    def broken(self, task: Task, error: InfraError, sample: int = 0) -> Trajectory:
        """The trajectory of an attempt that never began, because an error came before it."""
        attempt = _Attempt(task=task, sample=sample)
        self._break(attempt, error)
        return attempt.trajectory()

    def _break(self, attempt: _Attempt, error: InfraError) -> None:
        """End the attempt with an error. main.log gets each error, with a traceback for the first of each cause."""
        attempt.fail(error)
        first = attempt.error not in self._logged
        self._logged.add(attempt.error)
        task, sample = attempt.task.id, attempt.sample
        log.error("%s, attempt %d, is broken: %s", task, sample, attempt.error, exc_info=error if first else None)

    def _finish(self, env: BaseEnv, attempt: _Attempt) -> None:
        """Play from the attempt's opening to its end, then let the env evaluate it."""
        try:
            self._play(env, attempt, self._responder(env, attempt.task))
        except AttemptOver as error:  # the env evaluates the state reached, as at the step limit
            attempt.cut_off(error)
        attempt.success = env.evaluate(attempt.answer)
        right = attempt.success is not None
        check_returned(right, f"{type(env).__name__}.evaluate", "True or False", attempt.success)
        if env.late:
            attempt.reward = float(attempt.success)
        self._check_agreement(env, attempt)
        attempt.gold = env.get_ground_truth()
        if measures := env.measures():
            attempt.info["measures"] = {name: list(found) for name, found in measures.items()}
        if attempt.ended_by == "end" and attempt.success:
            attempt.ended_by = "goal"

    def _check_agreement(self, env: BaseEnv, attempt: _Attempt) -> None:
        """Tell the user of an env that says different things of an attempt's success; `evaluate` counts."""
        won = attempt.info.get("won")
        solved = attempt.reward > 1 - 1e-9
        if (won is not None and bool(won) != attempt.success) or (attempt.success and not solved):
            NOTICES.warning(
                f"{type(env).__name__}: evaluate() says {attempt.success} of an attempt with info['won']={won} and a "
                f"reward {'of 1' if solved else 'below 1'}: evaluate() counts, but one of them is wrong."
            )

    def _responder(self, env: BaseEnv, task: Task) -> Responder:
        return self.agent.begin(EnvView(env, uses_gold=self.agent.uses_gold), self.role, account_of(task))

    def _note(self, env: BaseEnv, attempt: _Attempt, before: Trajectory) -> Trajectory:
        """Let the model write a note on an attempt that is over; the attempt's outcome stays."""
        seed = derive_seed(self.seed, *attempt.task.seeded_by, attempt.sample, 0, "agent")
        told = self.agent.seen(attempt.opening)
        reply = self._responder(env, attempt.task)(told, attempt.sample, seed)
        note = replace(self._read(reply)[0], observation=NOT_TAKEN, valid=True)
        made = replace(before, sample=attempt.sample, opening=tuple(attempt.opening), steps=(note,), usage=reply.usage)
        return replace(made, id=trajectory_id(attempt.task.id, made))

    def _play(self, env: BaseEnv, attempt: _Attempt, respond: Responder) -> None:
        messages: list[Message] = list(attempt.opening)
        limit = self.max_steps or env.max_steps
        for number in range(limit):
            if self.timeout_s is not None and time.monotonic() - attempt.began >= self.timeout_s:
                raise AttemptOver(f"episode_timeout_s={self.timeout_s:g} is over", "time")
            seed = derive_seed(self.seed, *attempt.task.seeded_by, attempt.sample, number, "agent")
            reply = respond(self.agent.seen(messages), attempt.sample, seed)
            attempt.usage += reply.usage
            (step, action), done = self._read(reply), False
            if env.max_steps > 1:
                said = f"no action in: {reply.text}" if action is None else action
                ACTIONS.info("step %d: %s (%s)", number + 1, said, attempt.task.id)  # of a long id the end is cut
            if action is not None:
                env.cut_off = reply.finish_reason in REPLY_ENDS
                observation, reward, done, info = env.step(action)
                valid, hint_chars = bool(info.get("valid", True)), info.get("hint_chars", 0)
                step = replace(step, observation=observation, valid=valid, hint_chars=hint_chars)
                attempt.reward += reward
                attempt.note_info(info)
            attempt.steps.append(step)
            if done:
                return
            if self.max_repeats and attempt.repeats() >= self.max_repeats:
                attempt.ended_by = "stuck"
                return
            if number + 1 < limit:
                self._recall(attempt)
            messages += turns(attempt.steps[-1])
        attempt.ended_by = "step_limit"

    def _recall(self, attempt: _Attempt) -> None:
        """Show lessons after the last step, if they are due, at the end of its observation, like a hint of the env:
        judge, selector and distiller do not see them there.

        The query is the task and the observation. A record that the attempt has seen is not shown again.
        """
        if self.recall is None or not (self.when == "step" or attempt.is_stuck()):
            return
        step = attempt.steps[-1]
        query = f"{attempt.task.query}\n\n{step.observation_without_hint}"
        found = [hit for hit in self.recall(attempt.task, query) if hit.record.id not in attempt.known]
        counts = self.agent.shown([*attempt.memories, *found])[len(attempt.memories) :]  # one cap for the whole prompt
        fitting = [
            replace(hit, record=replace(hit.record, items=hit.record.items[:n]))
            for hit, n in zip(found, counts, strict=True)
        ]
        if block := self.agent.memory_block(fitting):
            text = f"{step.observation}\n\n{block}"
            hint_chars = step.hint_chars + len(text) - len(step.observation)
            attempt.steps[-1] = replace(step, observation=text, hint_chars=hint_chars)
        attempt.note_recalled(found, fitting)

    def _read(self, reply: Reply) -> tuple[Step, str | None]:
        """(the step, still without the env's observation; the action, None if none could be parsed)."""
        parsed = self.agent.parse(reply.text)
        right = isinstance(parsed, tuple) and len(parsed) == 2
        check_returned(right, f"{type(self.agent).__name__}.parse", "(thought, action)", parsed)
        thought, action = parsed
        read = {"text": reply.text, "thought": thought, "action": action or "", "finish_reason": reply.finish_reason}
        return Step(**read, observation=NO_ACTION, valid=False), action


@dataclass(kw_only=True)
class _Attempt:
    """An unfinished trajectory: the fields of Trajectory, except its id."""

    task: Task
    sample: int
    memories: list[Scored] = field(default_factory=list)  # shown by the opening, and later
    opening: list[Message] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    answer: str | None = None
    ended_by: str = "end"
    reward: float = 0.0
    success: bool = False
    gold: str = ""
    info: dict[str, Any] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    error: str | None = None
    recalled: list[Recalled] = field(default_factory=list)
    known: set[str] = field(default_factory=set)  # ids of the records that it was shown
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.memories = list(self.memories)
        self.known |= {hit.record.id for hit in self.memories}

    def is_stuck(self) -> bool:
        """Whether the last step was invalid, or repeats the one before it: the same action, the same observation."""
        last, *before = [(step.action, step.observation_without_hint) for step in self.steps[:-3:-1]]
        return not self.steps[-1].valid or before == [last]

    def note_recalled(self, found: list[Scored], fitting: list[Scored]) -> None:
        """Note what was retrieved after the last step, and the part of it that fitted into the prompt."""
        for hit, shown in zip(found, fitting, strict=True):
            items, n_items = shown.record.items, len(hit.record.items)
            about = {"id": hit.record.id, "score": hit.score, "changed": hit.rewritten}
            self.recalled.append(
                Recalled(step=len(self.steps), n_items=n_items, n_shown=len(items), items=items, **about)
            )
        self.known |= {hit.record.id for hit in fitting if hit.record.items}
        self.memories += fitting

    def repeats(self) -> int:
        """Number of consecutive steps, up to the last, with the same action and observation; at least 1.

        The last has no lessons at its observation's end yet, so those of the others are left out, too.
        """
        shown = {each.step for each in self.recalled if each.n_shown}
        ends = (
            (step.action, MEMORY.sub("", step.observation).rstrip() if place in shown else step.observation)
            for place, step in zip(range(len(self.steps), 0, -1), reversed(self.steps))
        )
        last = next(ends)
        return 1 + sum(1 for _ in takewhile(lambda end: end == last, ends))

    def cut_off(self, error: AttemptOver) -> None:
        self.ended_by, self.error = error.kind, str(error)
        self.usage += error.usage or Usage()

    def fail(self, error: InfraError) -> None:
        self.ended_by, self.error = "infra_error", f"{error.kind}: {error}"
        self.usage += error.usage or Usage()

    def note_info(self, info: dict[str, Any]) -> None:
        """Keep the answer and the plain values of a step's info; lists, such as admissible actions, are left out."""
        self.answer = info.get("answer", self.answer)
        plain = (str, int, float, bool)
        self.info = {
            k: v for k, v in info.items() if isinstance(v, plain) and k not in ("valid", "answer", "hint_chars")
        }

    def trajectory(self) -> Trajectory:
        left_out = ("task", "memories", "known", "began")
        values = {name: value for name, value in vars(self).items() if name not in left_out}
        values |= {name: tuple(values[name]) for name in ("opening", "steps", "recalled")}
        made = Trajectory(**values, id="")
        return replace(made, id=trajectory_id(self.task.id, made))
