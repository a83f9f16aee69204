"""The table at the end of a multirun. A convenience only: it reads summary.json and changes nothing."""

from __future__ import annotations

import atexit
import json
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf


class SweepTable(Callback):
    """Prints one row a run when a sweep is over.

    At exit, because Hydra does not call on_multirun_end when one of the runs failed, and then the rest matters most.
    """

    def on_multirun_start(self, config: DictConfig, **_kwargs: Any) -> None:
        atexit.register(self.print, Path(str(OmegaConf.select(config, "hydra.sweep.dir"))))

    def print(self, folder: Path) -> None:
        from core.run.display import print_runs

        found = sorted(folder.glob("*/summary.json"), key=_job_number)
        print_runs(
            [{"run": path.parent.name, **json.loads(path.read_text(encoding="utf-8"))} for path in found], folder
        )


def _job_number(path: Path) -> tuple[int, str]:
    number = path.parent.name.split("-")[0]
    return (int(number) if number.isdigit() else 0, path.parent.name)
