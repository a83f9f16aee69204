"""Entry point: load the config, build the run, run the tasks, write the summary.

`python main.py workflow=reasoningbank env=warmup`; --help lists the choices.
"""

from __future__ import annotations

import sys

from core.run import help as help_text
from core.terminal import (
    begin,
    go_on_without_readers,
    need_packages,
    open_standard_streams,
    prose,
    refuse_little_memory,
    stage,
    started,
    unfiltered,
)

if __name__ == "__main__":  # before the imports below, which take seconds
    open_standard_streams()
    go_on_without_readers()
    if help_text.asked(sys.argv[1:]):
        help_text.print_help(sys.argv[1:])
        sys.exit()
    need_packages()
    begin("loading the configuration")
    refuse_little_memory()

import errno
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
from omegaconf.errors import InterpolationResolutionError, MissingMandatoryValue

from core.build import build_redactor
from core.errors import InfraError, StopRun, UserError
from core.interrupt import Interrupts
from core.mistakes import run_with_plain_hydra_errors, sentence_for
from core.redact import RedactingFilter, Redactor, use
from core.run.cells import cell_folder
from core.run.finalize import finalize
from core.run.folders import discard, run_folder
from core.run.launch import choice, in_sweep, quoted, resume_hint
from core.run.settle import settle
from core.run.sweep_watch import Watch

log = logging.getLogger("run")
OmegaConf.register_new_resolver("or", lambda value, other: other if value is None else value, replace=True)
OmegaConf.register_new_resolver("cell", cell_folder, replace=True)
OmegaConf.register_new_resolver("run_folder", run_folder, use_cache=True, replace=True)
OmegaConf.register_new_resolver("names", lambda banks: ",".join(banks or ()), replace=True)


@hydra.main(version_base="1.3", config_path="config", config_name="config")
def main(cfg: DictConfig) -> float | None:
    """One run. Returns the success rate, for sweepers."""
    log_to_file()
    if HydraConfig.get().job.chdir:  # the words of the command mean the folder in which it was typed
        os.chdir(HydraConfig.get().runtime.cwd)
    run_dir = Path(HydraConfig.get().runtime.output_dir)
    interrupts = Interrupts(partial(stop, run_dir, at_once=True))
    try:
        with interrupts, ExitStack() as stack:
            return run(cfg, run_dir, interrupts, stack)
    except KeyboardInterrupt:
        stop(run_dir)
    except Exception as error:  # noqa: BLE001 - whatever it is, it ends in `give_up`
        if interrupts.stopped:  # an interrupted import may raise any exception
            stop(run_dir)
        give_up(*explained(error, cfg), run_dir)


def explained(error: Exception, cfg: DictConfig) -> tuple[str, bool]:
    """(what to tell the user, whether the same command may go on where this one ended)."""
    redact = build_redactor(cfg)
    match error:
        case UserError() | InfraError():  # an InfraError outside of any episode
            return f"error: {redact(str(error))}", isinstance(error, (InfraError, StopRun))
        case InterpolationResolutionError() | MissingMandatoryValue():  # of the user's own YAML or words
            return sentence_for(error, sys.argv[1:]), False
        case Exception() if type(error).__module__ == "jinja2.exceptions":  # of the user's own prompts
            return f"error: {redact(str(error))}", False
        case OSError(errno=errno.EMFILE):
            return "error: more files are open than this process may have: raise that (ulimit -n).", True
        case MemoryError():
            return "error: there is not enough memory for this run: free some, or raise its limit (ulimit -v).", True
    return redact(traceback.format_exc()), True


def run(cfg: DictConfig, run_dir: Path, interrupts: Interrupts, stack: ExitStack) -> float | None:
    """Build the run, run its tasks and write the summary. Returns the success rate; None after a dry run."""
    dropped_settings_note = finalize(cfg)
    from workflows.build import assemble, check_given_bank  # slow; done here, after the Ctrl-C handler is installed
    from workflows.plan import announcement, plan_of, print_plan

    stage(f"reading the tasks of {choice('env')}")
    tell(settle(cfg, run_dir), dropped_settings_note, check_given_bank(cfg))
    redact = build_redactor(cfg)
    use(redact)
    quiet_logs(redact)
    if cfg.dry_run:
        plan = plan_of(cfg, stack, {}, run_dir=run_dir, begin=True)
        discard(run_dir)
        started()
        return print_plan(plan)
    assembled = assemble(cfg, run_dir, interrupts, redact, stack)
    tell(*assembled.notes, announcement(cfg, assembled))
    with assembled.session as session:
        for episode in assembled.episodes():
            session.episode(episode)
        assembled.write_answers()
    return session.summary["success_rate"]


def tell(*notes: str) -> None:
    """Print the lines that are not empty."""
    for note in filter(None, notes):
        started()
        print(prose(note), flush=True)


def log_to_file() -> None:
    """Send what happened in a run to its main.log alone, if hydra/job_logging writes one."""
    files = [handler for handler in logging.getLogger().handlers if isinstance(handler, logging.FileHandler)]
    log.handlers[:] = files or [logging.NullHandler()]
    log.propagate = False
    log.setLevel(logging.INFO)


def quiet_logs(redact: Redactor) -> None:
    """Redact every log line, and silence logging's own errors: a full disk is reported by the records."""
    logging.raiseExceptions = False
    for handler in logging.getLogger().handlers:
        handler.filters[:] = [old for old in handler.filters if not isinstance(old, RedactingFilter)]
        handler.addFilter(RedactingFilter(redact))


def give_up(message: str, resumable: bool, run_dir: Path) -> None:
    """End this run with an error message; the other runs of a sweep go on.

    resumable   print the command that resumes this one
    """
    started()
    log.error(message)
    message += resume_hint(run_dir) if resumable else ""
    discard(run_dir)
    if not in_sweep():
        sys.exit(message)
    error = CompactHydraException(message)
    error.may_go_on = resumable
    raise error from None


def stop(run_dir: Path | None = None, at_once: bool = False) -> None:
    """End the program after Ctrl-C or SIGTERM: prints the sweep's message if this process started one, else this run's.

    run_dir   None: outside of any run
    at_once   exit immediately, without cleanup
    """
    log.warning("stopped by Ctrl-C or SIGTERM")
    if (watch := Watch.running()) is not None:
        print(f"\n{watch.interrupted()}", file=sys.stderr, flush=True)
    elif run_dir is None or not in_sweep():  # in a sweep's child process the parent prints the message
        print(f"\nstopped.{resume_hint(run_dir) if run_dir else ''}", file=sys.stderr, flush=True)
    if at_once and sys.stdout.isatty():
        print("\x1b[?25h", end="", file=unfiltered(sys.stdout), flush=True)  # the cursor, which the progress line hid
    if at_once or any(thread.name.startswith("worker") for thread in threading.enumerate()):
        os._exit(130)  # without waiting for calls in flight: a server may never answer them
    sys.exit(130)


if __name__ == "__main__":
    sys.argv[1:] = quoted(sys.argv[1:])
    try:
        run_with_plain_hydra_errors(main, help_text.config_dirs(sys.argv[1:]))
    except KeyboardInterrupt:  # outside of any run: other processes run the cells of the sweep
        stop()
