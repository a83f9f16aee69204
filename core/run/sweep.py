"""Hydra callback for a whole sweep: checks its folder, starts its progress line, prints its end."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn, JobStatus
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from core.build import build_redactor
from core.redact import use
from core.run.folders import PARENT, is_sweep
from core.run.launch import WithoutSecrets, again
from core.run.sweep_watch import BEGUN, DONE, FAILED, Watch, leave_mark, n_finished
from core.terminal import started, stop_in_order

BASIC = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"
ONE_BY_ONE = "hydra._internal.core_plugins.basic_launcher.BasicLauncher"
EIGHT_AT_ONCE = "hydra/launcher=joblib hydra.launcher.n_jobs=8"


class Sweeping(Callback):
    """Hydra's callback for runs and sweeps, named in `callbacks` of config.yaml.

    It is pickled for a launcher's processes, so it holds plain values only.

    table   dotted name of a function (folder, console) that prints the table at the end of a sweep
    """

    def __init__(self, table: str) -> None:
        self.table = table
        self.marks: str | None = None  # folder where each cell writes its state (`leave_mark`); None outside of a sweep

    def on_run_start(self, config: DictConfig, **_kwargs: Any) -> None:
        """Exit with an error if run_dir is the folder of a sweep."""
        started()
        given = config.get("run_dir")
        refuse_parent(given)
        if given is not None and is_sweep(Path(given)):
            sys.exit(
                f"error: run_dir={given} holds the runs of a sweep: give its command, with -m, or another run_dir."
            )

    def on_multirun_start(self, config: DictConfig, **_kwargs: Any) -> None:
        """Exit with an error if run_dir is the folder of a single run; else start the sweep's progress line."""
        from hydra._internal.core_plugins import basic_sweeper

        started()
        refuse_parent(config.get("run_dir"))
        use(build_redactor(config))
        basic_sweeper.OmegaConf = WithoutSecrets  # pyright: ignore - else multirun.yaml has the command as it was typed
        folder = Path(str(OmegaConf.select(config, "hydra.sweep.dir")))
        if (folder / "manifest.json").is_file():
            sys.exit(f"error: run_dir={folder} is the folder of a single run: leave out -m, or give another run_dir.")
        if config.get("dry_run"):
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.marks = tempfile.mkdtemp(prefix=".cells-", dir=folder.resolve())
        except OSError as error:
            sys.exit(f"error: {folder} cannot be written: {error.strerror}.")
        if config.hydra.launcher["_target_"] != ONE_BY_ONE:
            os.environ["PYTHONPATH"] = search_path()
        stop_in_order()  # the sweep prints its own message, and other processes may have to be ended
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        cells = planned(config, list(config.hydra.overrides.task))
        if one_by_one(config) and (cells is None or len(cells) > 1):
            print(f"cells run one after another; to run eight at once: {EIGHT_AT_ONCE} (docs/sweeps.md)", flush=True)
        watch = Watch(folder, Path(self.marks), cells, again(folder, sys.argv[1:]), self.table)
        atexit.register(watch.end)  # a sweeper that fails does not call on_multirun_end
        watch.start()

    def on_job_start(self, config: DictConfig, **_kwargs: Any) -> None:
        if self.marks is not None:
            folder = Path(config.hydra.runtime.output_dir)
            before = n_finished(folder / "episodes.jsonl")
            leave_mark(Path(self.marks), config.hydra.job.num, folder=str(folder), before=before, state=BEGUN)

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **_kwargs: Any) -> None:
        """Record how a cell ended.

        Under BasicSweeper a failed cell is reported as completed, so that the others still run; failures are printed at
        the end. Other sweepers, which use what runs return, get the error.
        """
        if self.marks is None:
            return
        failed = job_return.status == JobStatus.FAILED
        said: dict[str, Any] = {"state": DONE}
        if failed:
            error = vars(job_return)["_return_value"]
            said = {"state": FAILED, "reason": str(error), "may_go_on": getattr(error, "may_go_on", True)}
        leave_mark(Path(self.marks), config.hydra.job.num, **said)
        if failed and config.hydra.sweeper["_target_"] == BASIC:
            job_return.status, job_return.return_value = JobStatus.COMPLETED, None

    def on_multirun_end(self, **_kwargs: Any) -> None:
        if (watch := Watch.running()) is not None and not watch.end():
            sys.exit(1)


def refuse_parent(run_dir: str | None) -> None:
    """Exit with an error if run_dir is the folder in which all runs lie: a table of it would have all their rows."""
    if run_dir is not None and Path(run_dir).resolve() == PARENT.resolve():
        sys.exit(f"error: run_dir={run_dir} is the folder of all runs: give one in it, run_dir={PARENT / 'NAME'}.")


def search_path() -> str:
    """PYTHONPATH for the processes that a launcher starts for cells: this project first, wherever it is installed."""
    given = os.environ.get("PYTHONPATH")
    return os.pathsep.join(dict.fromkeys([str(Path(__file__).parents[2]), *(given.split(os.pathsep) if given else ())]))


def one_by_one(config: DictConfig) -> bool:
    """Whether the cells run one after another although their model is on a server, which answers several at once."""
    llm = config.get("llm") or {}
    return config.hydra.launcher["_target_"] == ONE_BY_ONE and "api_base" in llm and llm.get("cache") != "replay"


def planned(config: DictConfig, overrides: list[str]) -> list[list[str]] | None:
    """The overrides of each cell, in order; None if only the sweeper knows them.

    config      the multirun's
    overrides   the words of its command, as typed
    """
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.override_parser.overrides_parser import OverridesParser

    sweeper = config.hydra.sweeper
    if sweeper["_target_"] != BASIC:
        return None
    words = [f"{key}={value}" for key, value in (sweeper.get("params") or {}).items()]
    loader = GlobalHydra.instance().config_loader()  # for a glob, which goes over the files of a group
    parsed = OverridesParser.create(config_loader=loader).parse_overrides([*words, *overrides])
    return [list(words) for words in BasicSweeper.split_arguments(parsed, None)[0]]
