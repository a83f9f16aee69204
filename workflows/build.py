"""Build a workflow and its parts from the configuration."""

from __future__ import annotations

from typing import Any

from core.build import build_agent, build_learner, make, make_with, part, takes
from core.memory.protocol import Memory
from core.models.base import Role
from core.models.meter import Meter
from core.run.dry_run import Plan
from core.run.records import RunRecords
from core.types import Task
from envs.pool import EnvPool
from workflows.base import Workflow
from workflows.rollout import Rollout


def build_workflow(
    cfg: Any, envs: EnvPool, bank: Memory, roles: dict[str, Role], records: RunRecords, meter: Meter
) -> Workflow:
    """The workflow of `cfg.workflow`. It is given those of the parts below that it has a field for."""
    agent = roles["agent"]
    limits = {"max_steps": cfg.max_steps, "max_repeats": cfg.max_repeats}
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
    }
    return make_with(cfg.workflow, parts)


def build_plan(cfg: Any, envs: EnvPool, tasks: list[Task], roles: dict[str, Role]) -> Plan:
    """dry_run: what the run would do, from its parts. A part without a field `role` asks no model."""
    workflow = part(cfg.workflow)
    learns = cfg.setting.learn and workflow.has_memory and part(cfg.memory).learns
    contrast = cfg.contrast if takes(cfg.workflow, "contrast") else None
    calls = workflow.calls(cfg.workflow.get("k"), cfg.workflow.get("r"))
    if contrast is None:  # each attempt is distilled alone
        calls["extractor"] = calls["agent"]
    asked = {"judge": cfg.judge, "extractor": contrast or cfg.distiller, "selector": cfg.select}
    silent = {role for role, node in asked.items() if not takes(node, "role")}
    if not learns:
        silent |= {"judge", "extractor"}
    calls = {role: n for role, n in calls.items() if role not in silent}
    with envs.lease() as env:
        opening = build_agent(cfg).opening(env.reset(tasks[0]), env.instructions, [])
        steps = cfg.max_steps or env.max_steps
    rounds = 1 + (cfg.workflow.get("r") or 0)
    return Plan(tasks=tasks, steps=steps, roles=roles, calls=calls, opening=opening, rounds=rounds)
