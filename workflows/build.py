"""Build a workflow and its parts from the configuration."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from core.build import build_agent, build_learner, make, make_with, part, takes
from core.learning.attempts import Attempts
from core.memory.protocol import Memory
from core.models.base import Role
from core.models.meter import Meter
from core.run.dry_run import ATTEMPT, Listener, Plan
from core.run.records import RunRecords
from core.types import Task, Verdict
from envs.pool import EnvPool
from workflows.base import Workflow
from workflows.rollout import Rollout


def build_workflow(
    cfg: Any, envs: EnvPool, bank: Memory, roles: dict[str, Role], records: RunRecords | None, meter: Meter
) -> Workflow:
    """The workflow of `cfg.workflow`. It is given those of the parts below that it has a field for."""
    agent = roles["agent"]
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
        "meter": meter,
        "strip_lessons": cfg.strip_lessons,
    }
    return make_with(cfg.workflow, parts)


def build_plan(cfg: Any, envs: EnvPool, tasks: list[Task], roles: dict[str, Role]) -> Plan:
    """dry_run: what the run would do, from what the workflow's steps ask of attempts that are not made."""
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
        opening = workflow.rollout.agent.opening(env.reset(tasks[0]), env.instructions, [])
        steps = cfg.max_steps or env.max_steps
    n_agent = len(attempts) + getattr(workflow.judge, "n_more", 0)
    asked = {"agent": [opening] * n_agent} | {name: each.heard for name, each in listeners.items() if each.heard}
    return Plan(tasks=tasks, steps=steps, roles=roles, asked=asked, rounds=rounds)
