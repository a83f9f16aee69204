"""Compose, build, stream, summarise: `python main.py workflow=reasoningbank env=warmup`; --help lists the choices."""

from __future__ import annotations

import json
import logging
import os
import shlex
import sys
import threading
import traceback
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import CompactHydraException
from hydra.types import RunMode
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf

from core.build import LLMS, build_meter, build_models, build_roles, check_config, make, refuse_problems, select_tasks
from core.errors import InfraError, UserError
from core.interrupt import Interrupts
from core.jsonl import JsonLines
from core.redact import RedactingFilter, Redactor, in_strings
from core.run.tracking import logged
from core.types import Task, content_id

OmegaConf.register_new_resolver("or", lambda value, other: other if value is None else value, replace=True)


@hydra.main(version_base="1.3", config_path="config", config_name="config")
def main(cfg: DictConfig) -> float | None:
    """One run. Returns the success rate, for sweepers."""
    run_dir = Path(HydraConfig.get().runtime.output_dir)
    try:
        with Interrupts() as interrupts, ExitStack() as stack:
            return run(cfg, run_dir, interrupts, stack)
    except (UserError, InfraError) as error:  # an InfraError here broke something outside every episode
        give_up(f"error: {redactor(cfg)(str(error))}{resume_hint(run_dir)}")
    except KeyboardInterrupt:
        print(f"\nstopped.{resume_hint(run_dir)}", file=sys.stderr, flush=True)
        leave(130)
    except Exception:  # noqa: BLE001 - the last line of defence: a traceback may quote a secret
        give_up(redactor(cfg)(traceback.format_exc()) + resume_hint(run_dir))


def run(cfg: DictConfig, run_dir: Path, interrupts: Interrupts, stack: ExitStack) -> float | None:
    """Build every part once, stream the tasks, leave the summary."""
    check_config(cfg)
    from core.run.display import RunProgress, print_summary
    from core.run.manifest import continued, fingerprint, manifest
    from core.run.metrics import by_pass, summarise
    from core.run.records import RunRecords
    from core.run.resume import restore
    from envs.pool import EnvPool

    config = OmegaConf.to_container(cfg, resolve=True)
    redact = redactor(cfg)
    quiet_logs(redact)
    envs = EnvPool(lambda: make(cfg.env), cfg.env.workers, cfg.episode_timeout_s)
    stack.callback(envs.close)
    stream = make(cfg.stream)
    with envs.lease() as env:
        tasks, dataset = select_tasks(stream.ordered(env.tasks(), cfg.seed), cfg.limit) * stream.passes, env.describe()
    models = build_models(cfg, stack)
    if cfg.dry_run:
        return show_plan(cfg, envs, tasks, build_roles(cfg, models, build_meter(cfg)))
    refuse_problems(models)
    identity = fingerprint(config, dataset, tasks, None if cfg.setting.learn else cfg.memory.path)
    records = RunRecords(run_dir, identity, interrupts, redact)
    stack.callback(records.close)
    meter = build_meter(cfg, JsonLines(run_dir / "calls.jsonl", redact=redact.values), records.wall_s())
    stack.callback(meter.close)
    roles = build_roles(cfg, models, meter)
    workflow = build_workflow(cfg, envs, roles, records, meter, stack)
    rows = records.rows[: stream.settled(len(records.rows), len(tasks))]
    restore(workflow.bank, rows, exclusive=cfg.memory.path is None)

    def write_manifest() -> None:
        described = {name: role.describe() for name, role in roles.items()}
        now = manifest(identity, config, typed(sys.argv), tasks, described)
        records.write_json("manifest.json", continued(records.read_json("manifest.json"), now))

    if len(records.rows) < len(tasks):  # a finished run started again keeps the record of who made it
        write_manifest()
    save_hydra(cfg, run_dir)
    tracker = make(cfg.tracker)
    tracker.start(str(run_dir), in_strings(json.loads(json.dumps(config, default=str)), redact))
    title = f"{choice('arm') or choice('workflow')} on {choice('env')}, setting={choice('setting')}, seed={cfg.seed}"
    try:
        with RunProgress(len(tasks), records.rows, title) as progress:
            for episode in stream.run(workflow, tasks, cfg.max_concurrency):
                progress.update(records.rows[-1])
                tracker.log(episode.index, logged(episode.status, len(episode.lessons)))
    finally:
        summary = summarise(records.rows, len(tasks), records.wall_s(), workflow.bank.spent())
        summary["calls"] = meter.totals()
        summary |= {"stream": vars(stream), "by_pass": by_pass(records.rows, len(tasks), stream.passes)}
        records.write_json("summary.json", {**summary, "setting": workflow.setting.name, "seed": cfg.seed})
        if any(role.sent for role in roles.values()):
            write_manifest()  # once more: now with the parameters that were really sent
    tracker.finish(summary)
    print_summary(summary, title, run_dir)
    if not summary["complete"]:
        print(f"stopped: {meter.exhausted()}.{resume_hint(run_dir)}")
    return summary["success_rate"]


def show_plan(cfg: DictConfig, envs: Any, tasks: list[Task], roles: dict[str, Any]) -> None:
    """dry_run: print what the run would do."""
    from core.memory.none import NoMemory
    from core.run.dry_run import Plan, print_plan

    workflow = get_object(cfg.workflow._target_)
    learns = cfg.setting.learn and workflow.has_memory and get_object(cfg.memory._target_) is not NoMemory
    calls = workflow.calls(cfg.workflow.k, cfg.workflow.r)
    if cfg.contrast is None:  # each attempt is distilled alone
        calls["extractor"] = calls["agent"]
    calls = calls if learns else {role: n for role, n in calls.items() if role in ("agent", "selector")}
    with envs.lease() as env:
        opening = make(cfg.agent).opening(env.reset(tasks[0]), env.instructions, [])
        steps = cfg.max_steps or env.max_steps
    rounds = 1 + (cfg.workflow.r or 0)
    print_plan(Plan(tasks=tasks, steps=steps, roles=roles, calls=calls, opening=opening, rounds=rounds))


def build_workflow(cfg: DictConfig, envs: Any, roles: dict, records: Any, meter: Any, stack: ExitStack) -> Any:
    """The workflow with everything it works with."""
    from workflows.rollout import Rollout

    setting, role, extractor = make(cfg.setting), roles["agent"], roles["extractor"]
    bank = build_bank(cfg, setting, records, roles, meter, stack)
    agent = make(cfg.agent, inject=bank.inject, max_memory_tokens=bank.max_tokens)
    parts = {
        "contrast": cfg.contrast and make(cfg.contrast, role=extractor, seed=extractor.seed),
        "selector": make(cfg.select, role=roles["selector"], seed=roles["selector"].seed),
    }
    known = get_object(cfg.workflow._target_).__dataclass_fields__
    return make(
        cfg.workflow,
        envs=envs,
        rollout=Rollout(agent=agent, role=role, seed=role.seed, max_steps=cfg.max_steps, max_repeats=cfg.max_repeats),
        bank=bank,
        judge=make(cfg.judge, role=roles["judge"], seed=roles["judge"].seed),
        distiller=make(cfg.distiller, role=extractor, seed=extractor.seed),
        meter=meter,
        setting=setting,
        records=records,
        **{name: part for name, part in parts.items() if name in known},
    )


def build_bank(cfg: DictConfig, setting: Any, records: Any, roles: dict, meter: Any, stack: ExitStack) -> Any:
    """memory.path, or bank.sqlite in the run directory; read-only where the setting learns nothing."""
    embedder = make(cfg.embedder, meter=meter)
    stack.callback(embedder.close)
    path = cfg.memory.path
    if path is None and not setting.learn and choice("workflow") != "vanilla":
        raise UserError(f"setting={setting.name} reads a bank that exists: give memory.path=BANK.")
    own = str(records.path / "bank.sqlite")
    life, run = {}, "" if path is None else content_id(str(records.path.resolve()))
    if (node := cfg.memory.get("consolidate")) is not None:
        life["consolidate"] = make(node, role=roles["extractor"], seed=cfg.seed, run=run)
    bank = make(
        {key: value for key, value in cfg.memory.items() if key != "consolidate"},
        path=path or own,
        embedder=embedder,
        policy=make(cfg.retrieval),
        read_only=path is not None and not setting.learn,
        run=run,
        provenance={"run": records.run, "models": {name: role.llm.name for name, role in roles.items()}},
        **life,
    )
    stack.callback(bank.close)
    return bank


def save_hydra(cfg: DictConfig, run_dir: Path) -> None:
    """What Hydra would write to .hydra, but only now that the run directory is known to belong to this run."""
    folder = run_dir / ".hydra"
    folder.mkdir(exist_ok=True)
    parts = {"config": cfg, "hydra": HydraConfig.get(), "overrides": HydraConfig.get().overrides.task}
    for name, part in parts.items():
        safe = in_strings(OmegaConf.to_container(part, enum_to_str=True), redactor(cfg))
        (folder / f"{name}.yaml").write_text(OmegaConf.to_yaml(OmegaConf.create(safe)), encoding="utf-8")


def redactor(cfg: DictConfig) -> Redactor:
    """Knows the values of every variable that the configuration names as holding a key."""
    nodes = [node for key in LLMS if (node := cfg.get(key))] + [cfg.embedder.get("inner") or {}]
    return Redactor(os.environ, {name for node in nodes if (name := node.get("api_key_env"))})


def quiet_logs(redact: Redactor) -> None:
    """No log line leaves with a secret in it."""
    for handler in logging.getLogger().handlers:
        handler.filters[:] = [old for old in handler.filters if not isinstance(old, RedactingFilter)]
        handler.addFilter(RedactingFilter(redact))


def give_up(message: str) -> None:
    """End this run with a message; in a sweep the other runs go on."""
    if HydraConfig.get().mode == RunMode.RUN:
        sys.exit(message)
    raise CompactHydraException(message) from None


def leave(status: int) -> None:
    """Exit without waiting for calls that are still in flight in other threads: a server may never answer them."""
    if any(thread.name.startswith("worker") for thread in threading.enumerate()):
        os._exit(status)
    sys.exit(status)


def choice(group: str) -> str:
    """The option chosen for a config group."""
    return HydraConfig.get().runtime.choices[group]


def resume_hint(run_dir: Path) -> str:
    """How to go on, when the run has recorded anything."""
    if not (run_dir / "manifest.json").exists():
        return ""
    if HydraConfig.get().mode != RunMode.RUN:
        run_dir = Path(HydraConfig.get().sweep.dir)  # each run finds its own place in it again
    words = [word for word in typed(sys.argv)[1:] if not word.startswith("run_dir=")]
    return f"\nto go on where it stopped: {shlex.join(['python', 'main.py', *words, f'run_dir={run_dir}'])}"


def typed(argv: list[str]) -> list[str]:
    """The command line of the run, or of the sweep that it is a part of.

    A launcher that starts a program of its own for each job (submitit) leaves it in the sweep's multirun.yaml.
    """
    written = Path(HydraConfig.get().sweep.dir) / "multirun.yaml"
    if Path(argv[0]).name == "main.py" or not written.is_file():
        return argv
    overrides = OmegaConf.load(written).hydra.overrides
    return ["main.py", *(word for word in overrides.hydra if not word.startswith("hydra.mode=")), *overrides.task]


if __name__ == "__main__":
    main()
