"""core/jsonl.py: what is on the disk when an append returns."""

from __future__ import annotations

import os
import threading

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


def test_a_line_that_comes_while_another_is_written_waits_for_nothing_and_is_written(tmp_path, monkeypatch):
    lines, write = JsonLines(tmp_path / "lines.jsonl"), os.write
    begun, go_on = threading.Event(), threading.Event()

    def slowly(file, data):
        begun.set()
        assert go_on.wait(30)
        return write(file, data)

    monkeypatch.setattr(os, "write", slowly)
    first = threading.Thread(target=lines.append, args=({"a": 1},))
    first.start()
    assert begun.wait(30)
    for number in range(2, 5):
        lines.append({"a": number})  # would hang here
    assert lines.size() == 0
    go_on.set()
    first.join(30)
    assert [row["a"] for row in lines.read()] == [1, 2, 3, 4]
    lines.close()


def test_lines_of_many_threads_are_whole_also_while_the_file_is_written_anew(tmp_path):
    lines = JsonLines(tmp_path / "lines.jsonl")
    threads = [threading.Thread(target=lambda: [lines.append({"text": "x" * n}) for n in range(200)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    lines.rewrite([{"text": "anew"}])
    for thread in threads:
        thread.join()
    rows = list(lines.read())
    assert rows.count({"text": "anew"}) == 1 and all(set(row["text"]) <= set("anewx") for row in rows)
    assert sum(row["text"] == "x" * 199 for row in rows) > 0
    lines.close()


def test_a_file_that_only_its_owner_may_read_stays_so_when_it_is_written_anew(tmp_path):
    path = tmp_path / "lines.jsonl"
    lines = JsonLines(path, mode=0o600)
    lines.rewrite([{"a": 1}])
    lines.close()
    assert path.read_text() == '{"a": 1}\n' and path.stat().st_mode & 0o777 == 0o600
