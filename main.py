"""Compose, build, stream, summarise: `python main.py workflow=reasoningbank env=warmup`; --help lists the choices."""

from __future__ import annotations

import sys

from core.run import help
from core.starting import begin, stage, started

if __name__ == "__main__":  # before the imports below, which take seconds
    if help.asked(sys.argv[1:]):
        sys.exit(help.show_help(sys.argv[1:]))
    begin("loading the configuration")

import logging
import os
import threading
import traceback
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import CompactHydraException
from omegaconf import DictConfig, OmegaConf

from core.build import (
    build_bank,
    build_meter,
    build_models,
    build_redactor,
    build_roles,
    make,
    part,
    refuse_problems,
    select_tasks,
)
from core.errors import InfraError, UserError
from core.interrupt import Interrupts
from core.jsonl import JsonLines
from core.memory.by_type import BANKS, BankByType
from core.memory.hygiene.scrub import scrub
from core.memory.records import tell
from core.redact import RedactingFilter, Redactor
from core.run.cells import cell_folder, settle
from core.run.launch import choice, in_sweep, plainly, quoted, resume_hint
from core.run.sweep_watch import Watch
from core.setting import TOLD
from core.types import content_id

if TYPE_CHECKING:
    from core.memory.protocol import Memory
    from core.run.records import RunRecords

log = logging.getLogger("run")
OmegaConf.register_new_resolver("or", lambda value, other: other if value is None else value, replace=True)
OmegaConf.register_new_resolver("cell", cell_folder, replace=True)


@hydra.main(version_base="1.3", config_path="config", config_name="config")
def main(cfg: DictConfig) -> float | None:
    """One run. Returns the success rate, for sweepers."""
    run_dir = Path(HydraConfig.get().runtime.output_dir)
    interrupts = Interrupts(partial(stopped, run_dir, at_once=True))
    try:
        with interrupts, ExitStack() as stack:
            return run(cfg, run_dir, interrupts, stack)
    except (UserError, InfraError) as error:  # an InfraError here broke something outside every episode
        give_up(f"error: {build_redactor(cfg)(str(error))}", run_dir)
    except KeyboardInterrupt:
        stopped(run_dir)
    except Exception:  # noqa: BLE001 - the last line of defence: a traceback may quote a secret
        if interrupts.stopped:  # an import that was cut short raises whatever it likes
            stopped(run_dir)
        give_up(build_redactor(cfg)(traceback.format_exc()), run_dir)


def run(cfg: DictConfig, run_dir: Path, interrupts: Interrupts, stack: ExitStack) -> float | None:
    """Build every part once, stream the tasks, leave the summary."""
    left_out = settle(cfg)
    from core.run.dry_run import print_plan
    from core.run.growth import rewind
    from core.run.manifest import fingerprint, recorded_config
    from core.run.records import RunRecords
    from core.run.resume import restore
    from core.run.session import Session
    from envs.pool import EnvPool
    from workflows.build import build_plan, build_workflow
    from workflows.split_stream import banks_of

    stage(f"reading the tasks of {choice('env')}")
    if left_out:
        started()
        print(left_out, flush=True)
    redact = build_redactor(cfg)
    quiet_logs(redact)
    envs = EnvPool(lambda: make(cfg.env), cfg.env.workers, cfg.episode_timeout_s)
    stack.callback(envs.close)
    stream = make(cfg.stream)
    with envs.lease() as env:
        tasks = stream.every_pass(select_tasks(stream.ordered(env.tasks(), cfg.seed), cfg.limit))
        dataset = None if cfg.dry_run else env.describe()
        told = env.lessons() if cfg.setting.name == TOLD else None
    models = build_models(cfg, stack, recorded_config(run_dir))
    config = OmegaConf.to_container(cfg, resolve=True)
    if cfg.dry_run:
        started()
        return print_plan(build_plan(cfg, envs, tasks, build_roles(cfg, models, build_meter(cfg))))
    stage("preparing the models and the memory")
    refuse_problems(models, cfg.roles)
    banks = banks_of(run_dir, tasks, cfg)
    identity = fingerprint(config, dataset, tasks, None if cfg.setting.learn else cfg.memory.get("path"))
    ids = [task.id for task in tasks]
    records = RunRecords(run_dir, identity, interrupts, redact, cfg.scrub_episodes, ids, waits=in_sweep())
    stack.callback(records.close)
    clean = (lambda text: scrub(redact.values(text))[0]) if cfg.scrub_episodes else redact.values
    log, prompts = (JsonLines(run_dir / f"{name}.jsonl", redact=clean) for name in ("calls", "prompts"))
    meter = build_meter(cfg, log, records.wall_s(), prompts)
    stack.callback(meter.close)
    roles = build_roles(cfg, models, meter)
    own = None if cfg.memory.get("path") else run_dir / ("bank.sqlite" if banks is None else BANKS)
    n_settled = stream.settled(len(records.rows), len(tasks))
    if cfg.setting.learn and records.n_before is not None:
        learned = stream.settled(len(records.rows), records.n_before)
        rewind(run_dir, records.rows[n_settled:learned], own, records.read_json("summary.json"))
    bank = open_bank(cfg, records, roles, meter, stack, told, banks)
    bank_labels = labels_given(cfg, bank)
    workflow = build_workflow(cfg, envs, bank, roles, records, meter)
    if cfg.setting.learn:
        restore(bank, [*records.rows[:n_settled], *records.ahead.in_order()], own=own)
    with Session(
        cfg=cfg,
        config=config,
        fingerprint=identity,
        tasks=tasks,
        stream=stream.described(),
        records=records,
        roles=roles,
        meter=meter,
        bank=bank,
        bank_labels=bank_labels,
    ) as session:
        for episode in stream.run(workflow, tasks, cfg.max_concurrency, cfg.retry_broken, cfg.stop_after_broken):
            session.episode(episode)
        with envs.lease() as env:
            for name, text in env.files(records.answers(), models["agent"].name).items():
                records.write_text(name, text)
    return session.summary["success_rate"]


def open_bank(
    cfg: DictConfig,
    records: RunRecords,
    roles: dict[str, Any],
    meter: Any,
    stack: ExitStack,
    told: Any = None,
    banks: dict[str, str] | None = None,
) -> Memory:
    """memory.path, or bank.sqlite in the run directory; read-only where the setting learns nothing.

    told    with setting=told the environment's own lessons, which the run's bank then holds
    banks   with stream.split_by {type of task: the path of its bank}, in place of bank.sqlite
    """
    embedder = make(cfg.embedder, meter=meter)
    stack.callback(embedder.close)
    given = cfg.memory.get("path")
    if given is not None and told is not None:
        raise UserError("setting=told makes a bank of its own: leave out memory.path.")
    if given is None and not cfg.setting.learn and told is None and part(cfg.workflow).has_memory:
        raise UserError(f"setting={cfg.setting.name} reads a bank that exists: give memory.path=BANK.")
    run = "" if given is None else content_id(str(records.path.resolve()))
    build = partial(
        build_bank,
        cfg,
        embedder,
        roles,
        read_only=given is not None and not cfg.setting.learn,
        run=run,
        consolidator_run=run,
        provenance={"run": records.run, "models": {name: role.llm.name for name, role in roles.items()}}
        | made_by(cfg.workflow)
        | knew(cfg),
    )
    if banks is None:
        bank = build(given or str(records.path / "bank.sqlite"))
    else:
        bank = BankByType(banks={name: build(path) for name, path in banks.items()})
    stack.callback(bank.close)
    if told is not None:
        tell(bank, told)
    return bank


def made_by(workflow: DictConfig) -> dict[str, Any]:
    """What is noted on each record of the workflow: its class, and its k or r where it has one."""
    sizes = {key: workflow[key] for key in getattr(part(workflow), "scaled_by", ())}
    return {"workflow": workflow["_target_"].rpartition(".")[2], **sizes}


def knew(cfg: DictConfig) -> dict[str, bool]:
    """What is noted on each record of a run in which the judge knew the answers, or the extractor was shown them."""
    notes = {"use_gold": getattr(part(cfg.judge), "uses_gold", False), "show_answer": cfg.setting.get("show_answer")}
    return {name: True for name, noted in notes.items() if noted}


def labels_given(cfg: DictConfig, bank: Memory) -> set[str]:
    """The sources of the labels in memory.path. Raises UserError for one that the setting must not read."""
    if not part(cfg.workflow).has_memory or (cfg.memory.get("path") is None and cfg.setting.name != TOLD):
        return set()
    labels = bank.labels()
    make(cfg.setting).check_bank(labels, cfg.memory.path)
    return labels


def quiet_logs(redact: Redactor) -> None:
    """No log line leaves with a secret in it, and a full disk is reported where it matters: by the records."""
    logging.raiseExceptions = False
    for handler in logging.getLogger().handlers:
        handler.filters[:] = [old for old in handler.filters if not isinstance(old, RedactingFilter)]
        handler.addFilter(RedactingFilter(redact))


def give_up(message: str, run_dir: Path) -> None:
    """End this run with a message and how to go on; in a sweep the other runs go on."""
    started()
    log.error(message)
    message += resume_hint(run_dir)
    if not in_sweep():
        sys.exit(message)
    raise CompactHydraException(message) from None


def stopped(run_dir: Path | None = None, at_once: bool = False) -> None:
    """End the program after Ctrl-C or SIGTERM, with a sentence: of the sweep that was begun here, or of this run.

    run_dir   None: outside of any run
    at_once   whatever else is going on
    """
    log.warning("stopped by Ctrl-C or SIGTERM")
    if (watch := Watch.running()) is not None:
        message = watch.interrupted()
    elif run_dir is None:
        message = "stopped."
    else:  # a cell in a process of its own: its sweep says it
        message = "" if in_sweep() else f"stopped.{resume_hint(run_dir)}"
    if message:
        print(f"\n{message}", file=sys.stderr, flush=True)
    if at_once:
        print("\x1b[?25h" if sys.stdout.isatty() else "", end="", flush=True)  # the cursor, which the progress line hid
        os._exit(130)
    leave(130)


def leave(status: int) -> None:
    """Exit without waiting for calls that are still in flight in other threads: a server may never answer them."""
    if any(thread.name.startswith("worker") for thread in threading.enumerate()):
        os._exit(status)
    sys.exit(status)


if __name__ == "__main__":
    sys.argv[1:] = quoted(sys.argv[1:])
    try:
        plainly(main)
    except KeyboardInterrupt:  # outside of any run: while other processes run the cells of a sweep
        stopped()
