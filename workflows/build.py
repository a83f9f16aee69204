"""Build a workflow and its parts from the configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from core.build import build_agent, build_learner, make, make_with, part, takes
from core.errors import AttemptOver, InfraError
from core.learning.attempts import Attempts
from core.memory.protocol import Memory
from core.models.base import Role
from core.models.meter import Meter
from core.page import PAGE, has_page
from core.run.dry_run import (
    ATTEMPT,
    CHARS_PER_TOKEN,
    LEFT_OUT_TOKENS,
    LESSON_TOKENS,
    OBSERVATION_TOKENS,
    REPLY_TOKENS,
    Lessons,
    Listener,
    Plan,
)
from core.run.records import RunRecords
from core.types import Task, Verdict
from envs.pool import EnvPool
from workflows.reasoningbank import ReasoningBank
from workflows.rollout import Rollout

GRADER_TOKENS = 768  # of a grader's reply, as in WebArena's evaluation
A_PAGE = f"{PAGE}\n(a page will stand here)"


def build_workflow(
    cfg: Any, envs: EnvPool, bank: Memory, roles: dict[str, Role], records: RunRecords | None, meter: Meter
) -> ReasoningBank:
    """The workflow of `cfg.workflow`. It is given those of the parts below that it has a field for."""
    agent = roles["agent"]
    envs.grader = grader_of(roles["judge"])
    limits = {"max_steps": cfg.max_steps, "max_repeats": cfg.max_repeats, "timeout_s": cfg.episode_timeout_s}
    parts = {
        "envs": envs,
        "rollout": Rollout(agent=build_agent(cfg), role=agent, seed=agent.seed, **limits),
        "bank": bank,
        "judge": build_learner(cfg.judge, roles["judge"]),
        "distiller": build_learner(cfg.distiller, roles["extractor"]),
        "contrast": cfg.contrast and build_learner(cfg.contrast, roles["extractor"]),
        "selector": build_learner(cfg.select, roles["selector"]),
        "setting": make(cfg.setting),
        "records": records,
        "follows": part(cfg.env).follows,
        "meter": meter,
        "strip_lessons": cfg.strip_lessons,
    }
    return make_with(cfg.workflow, parts)


def grader_of(judge: Role) -> Callable[[str, str], str]:
    """What an env may ask about an answer, where its benchmark's own evaluation asks a model: the judge's model.

    It is another role than the judge, whose prompts hold no reference answer. Its errors break the attempt.
    """
    role = replace(judge, name="grader", temperature=0.0, max_tokens=GRADER_TOKENS)

    def ask(task: str, question: str) -> str:
        try:
            return role.chat([{"role": "user", "content": question}], task=task).text
        except AttemptOver as error:  # which would be taken for the agent's
            raise InfraError(str(error), error.kind) from error

    return ask


def build_plan(cfg: Any, envs: EnvPool, tasks: list[Task], roles: dict[str, Role], *, begin: bool = True) -> Plan:
    """dry_run: what the run would do, from what the workflow's steps ask of attempts that are not made.

    begin   begin the first task, so that the agent's first prompt is the real one; False: its query stands for what
            the env would say, and no engine is started for it
    """
    listeners = {
        name: Listener(name=role.llm.name, supports_schema=role.llm.supports_schema) for name, role in roles.items()
    }
    listening = {name: replace(role, llm=listeners[name], meter=Meter()) for name, role in roles.items()}
    # Of the bank only the class is there: whether it learns is all that is asked of it.
    workflow = build_workflow(cfg, envs, part(cfg.memory), listening, None, Meter())
    rounds = 1 + (workflow.r or 0)
    label = "success" if workflow.learn_from == "both" else workflow.learn_from
    attempts = [ATTEMPT] * (workflow.k or 1) * rounds
    verdicts = [Verdict(label=label, source="none")] * len(attempts)
    made = Attempts(task=tasks[0], trajectories=attempts, evaluate=lambda _: verdicts)
    if takes(cfg.judge, "role"):  # a part without this field asks no model
        workflow.evaluate(made)
    if takes(cfg.select, "role"):
        workflow.select(made)
    workflow.extract(made, [])
    with envs.lease() as env:
        told = env.page_tokens
        begin = begin and told is None
        observation = env.reset(tasks[0]) if begin else tasks[0].query + (f"\n\n{A_PAGE}" if told else "")
        opening = workflow.rollout.agent.opening(observation, env.instructions, [])
        steps = cfg.max_steps or env.max_steps
        length = told or (len(observation) // CHARS_PER_TOKEN if env.pages and begin else OBSERVATION_TOKENS)
    kept = getattr(workflow.rollout.agent, "keep_observations", None) if has_page(observation) else None
    n_agent = len(attempts) + getattr(workflow.judge, "n_more", 0)
    asked = {"agent": [opening] * n_agent} | {name: each.heard for name, each in listeners.items() if each.heard}
    turns = steps * (REPLY_TOKENS["agent"] + (length if kept is None else LEFT_OUT_TOKENS))
    lessons = planned_lessons(
        cfg, workflow, n_attempts=len(attempts), n_asked=len(asked.get("extractor", ())), turns=turns
    )
    plan = {"tasks": tasks, "steps": steps, "roles": roles, "asked": asked, "rounds": rounds, "lessons": lessons}
    return Plan(**plan, observation=length, kept=kept, unseen=bool(told))


def planned_lessons(cfg: Any, workflow: ReasoningBank, *, n_attempts: int, n_asked: int, turns: int) -> Lessons:
    """What the lessons in a prompt would be: as many as are retrieved, as long as they usually are.

    n_asked   calls that make the lessons of one task; 0: no model writes them, attempts are kept as they are
    turns     tokens of one attempt
    """
    if not (workflow.has_memory and workflow.bank.learns):
        return Lessons()
    contrast = getattr(workflow, "contrast", None)
    maker = contrast if contrast and n_attempts > 1 else workflow.distiller
    limits = [getattr(workflow.rollout.agent, "max_memory_chars", 0) // CHARS_PER_TOKEN, cfg.memory.get("max_tokens")]
    whole = workflow.learns and not n_asked
    return Lessons(
        records=cfg.retrieval.get("top_k", 1),
        items=1 if cfg.memory.get("unit") == "item" else getattr(maker, "max_items", 1),
        tokens=min(turns, getattr(maker, "max_chars", limits[0]) // CHARS_PER_TOKEN) if whole else LESSON_TOKENS,
        most=min(limit for limit in limits if limit is not None),
        whole=whole,
        from_start=cfg.memory.get("path") is not None,
    )
