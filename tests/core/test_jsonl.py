"""core/jsonl.py: what is on the disk when an append returns."""

from __future__ import annotations

import os

import pytest

from core.jsonl import JsonLines


@pytest.mark.parametrize("durable", [True, False])
def test_a_durable_line_is_on_the_disk_before_its_append_returns(tmp_path, monkeypatch, durable):
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    lines = JsonLines(tmp_path / "lines.jsonl", durable=durable)
    synced.clear()
    lines.append({"a": 1})
    assert len(synced) == durable
    lines.close()
