"""What trackers are told, and that who watches a run must not cost it."""

from __future__ import annotations

import csv
import json
import logging
import shutil
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest
from conftest import TOY, read_rows

from core.errors import InfraError, UserError
from core.run.tracking import COLUMNS, Tracker, tracked_run
from envs.toy_script import play

STEPS = [f"episode/{name}" for name in "success infra_error steps tokens cost_usd lessons retrieved".split()]
SECRET = "sk-ant-api03-Zq8vT2mN5xR7wK1pL4sD6fG9hJ3cB0aE"


@dataclass(kw_only=True)
class Recorder(Tracker):
    """Keeps what it is told; raises in the method that it is told to break in."""

    breaks: str = ""
    made: ClassVar[list] = []
    told: list = field(default_factory=list, init=False)

    def __post_init__(self):
        self.made.append(self)

    def _tell(self, what, *values):
        self.told.append((what, *values))
        if what == self.breaks:
            raise RuntimeError("no space in the cloud")

    def start(self, run):
        self._tell("start", run)

    def log(self, step, values):
        self._tell("log", step, values)

    def finish(self, summary, episodes, *, failed=False):
        self._tell("finish", summary, episodes, failed)


def birch_breaks(messages, role, sample):
    if role == "agent" and "birch" in messages[1]["content"]:
        raise InfraError("overloaded", "server")
    return play(messages, role, sample)


def tracked(here, *words, **more):
    """(what a Recorder was told in a run, the run directory)."""
    run_dir, _ = here(*TOY, f"tracker._target_={__name__}.Recorder", *words, **more)
    return Recorder.made[-1].told, run_dir


def test_a_run_is_told_by_name_with_every_episode_and_a_table_at_its_end(here):
    told, run_dir = tracked(here, "limit=6", "arm=reasoningbank", "k=null")
    (_, run), *logged, (_, summary, episodes, failed) = told
    assert (run.name, run.group, run.earlier) == ("reasoningbank toy seed0", "reasoningbank toy", [])
    model = {"model": "scripted", "setting": "test_time"}
    assert run.tags == {"env": "toy", "arm": "reasoningbank", "workflow": "reasoningbank"} | model
    rows = read_rows(run_dir)
    assert [step for _, step, _ in logged] == list(range(6))
    for (_, _, values), row in zip(logged, rows, strict=True):
        assert list(values) == [*STEPS, "cumulative_success"]
        used = [usage["prompt_tokens"] + usage["completion_tokens"] for usage in row["usage"].values()]
        assert values["episode/tokens"] == sum(used) > 0
    assert [values["cumulative_success"] for _, _, values in logged] == [0, 0, 0, 0, 1 / 5, 2 / 6]
    assert (summary["n_success"], failed) == (2, False)
    cells = [dict(zip(COLUMNS, each, strict=True)) for each in episodes]
    assert [cell["task"] for cell in cells] == [row["task_id"] for row in rows]
    assert [cell["verdict"] for cell in cells] == ["failure"] * 4 + ["success"] * 2
    assert (cells[0]["type"], cells[0]["steps"], cells[0]["cost_usd"], cells[0]["lessons"]) == ("amber", 1, 0.0, 1)


def test_a_run_that_is_continued_is_the_same_and_brings_what_was_before(here):
    first, run_dir = tracked(here, "limit=6", "budget.run.calls=9")
    again, _ = tracked(here, "limit=6")
    begun, went_on = first[0][1], again[0][1]
    assert begun.id == went_on.id
    done = [(step, values) for what, step, values in first[1:-1]]
    assert went_on.earlier == done
    assert [step for step, _ in done] + [step for _, step, _ in again[1:-1]] == list(range(6))
    assert len(first[-1][2]) == len(done) < 6  # the episode that the budget stopped is in no table
    assert again[-2][2]["cumulative_success"] == 2 / 6
    n_made = len(Recorder.made)
    here(*TOY, f"tracker._target_={__name__}.Recorder", "limit=6")  # finished: nothing is told
    assert [recorder.told for recorder in Recorder.made[n_made:]] == []
    other, _ = tracked(here, "limit=6", run_dir=run_dir.parent / "other")
    assert other[0][1].id != begun.id


def test_an_episode_that_broke_is_no_failure_and_a_run_that_fails_is_told_so(here, tmp_path):
    words = ("limit=6", f"llm.script.path={__name__}.birch_breaks", "retry_broken=0")
    with pytest.raises(UserError, match="2 of 6 tasks broke"):
        tracked(here, *words)
    told = Recorder.made[-1].told
    broke = told[2][2]
    assert "episode/success" not in broke
    assert (broke["episode/infra_error"], broke["cumulative_success"]) == (1, 0)
    assert told[-2][2]["cumulative_success"] == 1 / 4
    assert [each[2] for each in told[-1][2]].count("infra_error") == 2
    with pytest.raises(UserError, match="tasks in a row broke"):
        tracked(here, *words, "stop_after_broken=1", run_dir=tmp_path / "stopped")
    assert Recorder.made[-1].told[-1][3] is True


def test_of_a_sweep_its_folder_is_the_group(tmp_path):
    hydra = {"mode": "RunMode.MULTIRUN", "runtime": {"choices": {"env": "toy", "workflow": "vanilla"}}}
    config = {"seed": 3, "setting": {"name": "test_time"}}
    words = {"run": "abc", "run_dir": tmp_path / "sweep" / "0-toy", "config": config, "arm": "no_memory", "model": "m"}
    run = tracked_run(**words, hydra=hydra, earlier=[])
    assert (run.name, run.group) == ("no_memory toy seed3", "sweep")


@pytest.mark.parametrize("method", ["start", "log", "finish"])
def test_a_tracker_that_breaks_is_named_once_and_the_run_goes_on(here, caplog, method):
    with caplog.at_level(logging.WARNING):
        told, run_dir = tracked(here, f"+tracker.breaks={method}", "limit=6")
    assert len(read_rows(run_dir)) == 6
    assert (run_dir / "summary.json").is_file()
    assert (
        caplog.text.count("tracker=none stopped, the run goes on without it: RuntimeError: no space in the cloud") == 1
    )
    assert [what for what, *_ in told].count(method) == 1
    assert told[-1][0] == method


@pytest.mark.parametrize("name", ["wandb", "mlflow", "trackio"])
def test_a_package_that_is_missing_is_one_sentence(here, monkeypatch, name):
    monkeypatch.setattr("importlib.util.find_spec", lambda package: None)
    with pytest.raises(
        UserError, match=rf"^tracker={name} needs a package that is not here: run \S+pip install {name}"
    ):
        here(*TOY, f"tracker={name}", "limit=2")


def wandb_records(path: Path):
    """The records of an offline file: a LevelDB log (blocks of 32 KiB) of protocol buffers, behind 7 bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, whole = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        _, size, kind = struct.unpack_from("<IHB", data, at) if left >= 7 else (0, 0, 0)
        if kind == 0:
            at += left
            continue
        whole += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or its last part
            yield Record.FromString(whole)
            whole = b""


def values_of(items) -> dict:
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


@pytest.fixture
def two_starts(here, monkeypatch, tmp_path):
    """A run that is begun and continued with a tracker, with a secret in its configuration."""
    monkeypatch.setenv("OTHER_API_KEY", SECRET)

    def make(*words):
        words = (*TOY, "limit=6", *words, f"llm.cache_path={tmp_path}/{SECRET}.sqlite")
        here(*words, "budget.run.calls=9")
        return here(*words)[0]

    return make


def test_wandb_offline_keeps_one_run_in_the_run_directory(two_starts):
    pytest.importorskip("wandb", reason="the extra `wandb` is not installed")
    run_dir = two_starts("tracker=wandb")
    files = sorted((run_dir / "wandb").glob("offline-run-*/*.wandb"))
    starts = [list(wandb_records(file)) for file in files]
    assert len(starts) == 2
    runs = [record.run for start in starts for record in start if record.WhichOneof("record_type") == "run"]
    assert len({run.run_id for run in runs}) == 1
    (run, *_), history = (
        runs,
        [r.history for start in starts for r in start if r.WhichOneof("record_type") == "history"],
    )
    assert (run.display_name, run.run_group) == ("reasoningbank toy seed0", "reasoningbank toy")
    assert list(run.tags) == ["toy", "reasoningbank", "scripted", "test_time"]
    config = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert config["llm"]["cache_path"].endswith("[REDACTED].sqlite")
    assert not any(SECRET.encode() in file.read_bytes() for file in run_dir.rglob("*") if file.is_file())
    assert [each.step.num for each in history] == list(range(6))
    last = values_of(history[-1].item)
    assert last["cumulative_success"] == pytest.approx(2 / 6)
    assert set(STEPS) < set(last)
    (table,) = files[1].parent.glob("files/media/table/*.json")
    made = json.loads(table.read_text())
    assert (made["columns"], len(made["data"])) == (list(COLUMNS), 6)


def test_what_a_killed_start_did_not_write_wandb_is_told_by_the_next(here):
    pytest.importorskip("wandb", reason="the extra `wandb` is not installed")
    run_dir, _ = here(*TOY, "limit=6", "tracker=wandb", "budget.run.calls=9")
    (killed,) = (run_dir / "wandb").glob("offline-run-*")
    shutil.rmtree(killed / "files" / "media")  # as it is where `finish` was never reached
    here(*TOY, "limit=6", "tracker=wandb")
    last = max((run_dir / "wandb").glob("offline-run-*/*.wandb"))
    history = [record.history for record in wandb_records(last) if record.WhichOneof("record_type") == "history"]
    assert [each.step.num for each in history] == list(range(6))


def test_mlflow_keeps_one_run_in_a_file(two_starts, tmp_path):
    mlflow = pytest.importorskip(
        "mlflow", reason="tracker=mlflow is optional: pip install mlflow-skinny sqlalchemy alembic"
    )
    uri = f"sqlite:///{tmp_path}/store/mlflow.db"
    run_dir = two_starts("tracker=mlflow", f"tracker.uri={uri}")
    client = mlflow.MlflowClient(uri)
    experiment = client.get_experiment_by_name("reasoningbank").experiment_id
    (run,) = client.search_runs([experiment])
    assert (run.info.run_name, run.info.status) == ("reasoningbank toy seed0", "FINISHED")
    assert run.data.params["llm.cache_path"].endswith("[REDACTED].sqlite")
    assert (run.data.tags["env"], run.data.tags["group"]) == ("toy", "reasoningbank toy")
    history = client.get_metric_history(run.info.run_id, "cumulative_success")
    assert [(each.step, round(each.value, 3)) for each in history][-2:] == [(4, 0.2), (5, 0.333)]
    assert len(history) == 6
    (table,) = (tmp_path / "store" / "mlflow_artifacts").rglob("episodes.csv")
    with table.open() as file:
        assert [row["task"] for row in csv.DictReader(file)] == [row["task_id"] for row in read_rows(run_dir)]


def test_trackio_keeps_one_run(two_starts, tmp_path, monkeypatch, capsys):
    pytest.importorskip("trackio", reason="optional: pip install trackio")
    import trackio.sqlite_storage as storage
    import trackio.utils

    for module in (storage, trackio.utils):  # read from TRACKIO_DIR at import
        monkeypatch.setattr(module, "TRACKIO_DIR", tmp_path / "trackio")
    two_starts("tracker=trackio")
    (run,) = trackio.Api().runs("reasoningbank")
    assert run.name.startswith("reasoningbank toy seed0 ")
    assert run.config["llm"]["cache_path"].endswith("[REDACTED].sqlite")
    logs = storage.SQLiteStorage.get_logs("reasoningbank", run.name)
    assert [each["step"] for each in logs if "cumulative_success" in each] == list(range(6))
    assert sum("episodes" in each for each in logs) == 2
    assert "Trackio" not in capsys.readouterr().out
