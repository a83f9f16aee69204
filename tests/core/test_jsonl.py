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


def test_a_file_that_only_its_owner_may_read_stays_so_when_it_is_written_anew(tmp_path):
    path = tmp_path / "lines.jsonl"
    lines = JsonLines(path, mode=0o600)
    lines.rewrite([{"a": 1}])
    lines.close()
    assert path.read_text() == '{"a": 1}\n' and path.stat().st_mode & 0o777 == 0o600
