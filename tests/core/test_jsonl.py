"""core/jsonl.py: what is on the disk when an append returns."""

from __future__ import annotations

import os
import threading
import time

import pytest
from conftest import wait_for

from core.errors import StopRun
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
    over = threading.Event()

    def append():
        while not over.is_set():
            lines.append({"text": "x" * 199})

    threads = [threading.Thread(target=append) for _ in range(8)]
    for thread in threads:
        thread.start()
    lines.rewrite([{"text": "anew"}])
    wait_for(lambda: lines.size() > 10_000)
    over.set()
    for thread in threads:
        thread.join()
    first, *later = [row["text"] for row in lines.read()]
    assert first == "anew" and later and set(later) == {"x" * 199}
    lines.close()


def test_a_file_that_only_its_owner_may_read_stays_so_when_it_is_written_anew(tmp_path):
    path = tmp_path / "lines.jsonl"
    lines = JsonLines(path, mode=0o600)
    lines.rewrite([{"a": 1}])
    lines.close()
    assert path.read_text() == '{"a": 1}\n' and path.stat().st_mode & 0o777 == 0o600


def test_a_durable_line_that_is_not_written_is_an_error_for_whoever_appends_it(tmp_path, monkeypatch):
    lines, refused = JsonLines(tmp_path / "lines.jsonl", durable=True), []
    begun, go_on = threading.Event(), threading.Event()

    def full(file, data):
        begun.set()
        assert go_on.wait(30)
        raise OSError(28, "No space left on device")

    def append(number):
        try:
            lines.append({"a": number})
        except StopRun:
            refused.append(number)

    monkeypatch.setattr(os, "write", full)
    threads = [threading.Thread(target=append, args=(number,)) for number in (1, 2, 3)]
    threads[0].start()
    assert begun.wait(30)
    for thread in threads[1:]:
        thread.start()
    time.sleep(0.1)  # these wait for the first, and neither may take the other's line along
    go_on.set()
    for thread in threads:
        thread.join(30)
    assert sorted(refused) == [1, 2, 3] and lines.size() == 0
    lines.close()
