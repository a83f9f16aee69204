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

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import CompactHydraException
from omegaconf import DictConfig, OmegaConf

from core.build import build_redactor
from core.errors import InfraError, UserError
from core.interrupt import Interrupts
from core.redact import RedactingFilter, Redactor
from core.run.cells import cell_folder
from core.run.finalize import finalize
from core.run.launch import choice, in_sweep, quoted, resume_hint
from core.run.mistakes import plainly
from core.run.sweep_watch import Watch

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
    left_out = finalize(cfg)
    from workflows.build import assemble  # this and the next take a second, in which Ctrl-C is heeded
    from workflows.plan import dry_run, print_plan

    stage(f"reading the tasks of {choice('env')}")
    if left_out:
        started()
        print(left_out, flush=True)
    redact = build_redactor(cfg)
    quiet_logs(redact)
    if cfg.dry_run:
        plan = dry_run(cfg, run_dir, stack)
        started()
        return print_plan(plan)
    assembled = assemble(cfg, run_dir, interrupts, redact, stack)
    with assembled.session as session:
        for episode in assembled.episodes():
            session.episode(episode)
        assembled.write_answers()
    return session.summary["success_rate"]


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
