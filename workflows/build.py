"""Build a workflow and its parts from the configuration."""

from __future__ import annotations

from typing import Any

from core.build import build_agent, make, make_with
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
    agent, extractor = roles["agent"], roles["extractor"]
    limits = {"max_steps": cfg.max_steps, "max_repeats": cfg.max_repeats}
    parts = {
        "envs": envs,
        "rollout": Rollout(agent=build_agent(cfg), role=agent, seed=agent.seed, **limits),
        "bank": bank,
        "judge": make(cfg.judge, role=roles["judge"], seed=roles["judge"].seed),
        "distiller": make(cfg.distiller, role=extractor, seed=extractor.seed),
        "contrast": cfg.contrast and make(cfg.contrast, role=extractor, seed=extractor.seed),
        "selector": make(cfg.select, role=roles["selector"], seed=roles["selector"].seed),
        "setting": make(cfg.setting),
        "records": records,
        "meter": meter,
    }
    return make_with(cfg.workflow, parts)


def build_plan(cfg: Any, envs: EnvPool, tasks: list[Task], roles: dict[str, Role]) -> Plan:
    """For dry_run: what the run would do."""
    from hydra.utils import get_object

    workflow = get_object(cfg.workflow._target_)
    learns = cfg.setting.learn and workflow.has_memory and get_object(cfg.memory._target_).learns
    calls = workflow.calls(cfg.workflow.get("k"), cfg.workflow.get("r"))
    if cfg.contrast is None:  # each attempt is distilled alone
        calls["extractor"] = calls["agent"]
    calls = calls if learns else {role: n for role, n in calls.items() if role in ("agent", "selector")}
    with envs.lease() as env:
        opening = build_agent(cfg).opening(env.reset(tasks[0]), env.instructions, [])
        steps = cfg.max_steps or env.max_steps
    rounds = 1 + (cfg.workflow.get("r") or 0)
    return Plan(tasks=tasks, steps=steps, roles=roles, calls=calls, opening=opening, rounds=rounds)
