"""Who watches a run must not cost it."""

from __future__ import annotations

import logging

import pytest
from conftest import TOY, read_rows

from core.run.tracking import WandbTracker

wandb = pytest.importorskip("wandb", reason="the extra `wandb` is not installed")


def test_wandb_offline_keeps_its_files_in_the_run_directory(here):
    run_dir, rate = here(*TOY, "tracker=wandb", "limit=6")
    assert rate is not None
    assert list((run_dir / "wandb").glob("offline-run-*/*.wandb"))
    assert len(read_rows(run_dir)) == 6


def test_a_tracker_that_breaks_is_said_and_the_run_goes_on(here, monkeypatch, caplog):
    class Broken:
        def log(self, *_args, **_kwargs):
            raise RuntimeError("no space in the cloud")

    monkeypatch.setattr(WandbTracker, "start", lambda self, run_dir, config: setattr(self, "_run", Broken()))
    with caplog.at_level(logging.WARNING):
        run_dir, _ = here(*TOY, "tracker=wandb", "limit=6")
    assert len(read_rows(run_dir)) == 6
    assert caplog.text.count("no space in the cloud") == 1
