"""tracker=mlflow: MLflow, in a local SQLite file or on a server."""

from __future__ import annotations

import csv
import io
import logging
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.escaping import spreadsheet
from core.run.manifest import flat
from core.run.tracking import COLUMNS, TrackedRun, Tracker, Values, need, numbers

MANY = 100  # parameters that one request may hold
LONGEST = 6000  # characters of a parameter's value


@dataclass(kw_only=True)
class MlflowTracker(Tracker):
    """A continued run goes on as the same run of MLflow.

    uri   sqlite:///FILE, or a server's address. Beside a file lies mlflow_artifacts/, with the table of episodes
    """

    project: str
    uri: str
    _client: Any = field(default=None, init=False, repr=False)
    _id: str = field(default="", init=False, repr=False)

    def __post_init__(self) -> None:
        need("mlflow", pip="mlflow-skinny sqlalchemy alembic")

    def start(self, run: TrackedRun) -> None:
        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        logging.getLogger("mlflow").setLevel(logging.WARNING)  # it tells of each table that it makes
        folder = None
        if self.uri.startswith("sqlite:///"):
            file = Path(self.uri.removeprefix("sqlite:///")).resolve()
            file.parent.mkdir(parents=True, exist_ok=True)
            folder = (file.parent / "mlflow_artifacts").as_uri()
        self._client = MlflowClient(self.uri)
        found = self._client.get_experiment_by_name(self.project)
        experiment = found.experiment_id if found else self._client.create_experiment(self.project, folder)
        if known := self._client.search_runs([experiment], f"tags.run = '{run.id}'"):
            self._id = known[0].info.run_id
            self._client.update_run(self._id, status="RUNNING")
            return
        tags = run.tags | {"run": run.id, "group": run.group, "run_dir": str(run.run_dir)}
        self._id = self._client.create_run(experiment, run_name=run.name, tags=tags).info.run_id
        params = [Param(key, value[:LONGEST]) for key, value in flat(run.config).items()]
        for start in range(0, len(params), MANY):
            self._client.log_batch(self._id, params=params[start : start + MANY])
        for step, values in run.earlier:
            self.log(step, values)

    def log(self, step: int, values: Values) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        self._client.log_batch(self._id, [Metric(key, value, now, step) for key, value in values.items()])

    def finish(self, summary: dict[str, Any], episodes: list[list[Any]], *, failed: bool = False) -> None:
        text = io.StringIO()
        csv.writer(text).writerows([COLUMNS, *(map(spreadsheet, row) for row in episodes)])
        self._client.log_text(self._id, text.getvalue(), "episodes.csv")
        self.log(0, {f"summary/{key}": value for key, value in numbers(summary).items()})
        self._client.set_terminated(self._id, "FAILED" if failed else "FINISHED")
