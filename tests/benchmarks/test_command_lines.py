"""What all benchmarks and scripts share: the help of a command, the figures beside their limits, hostile text."""

from __future__ import annotations

import importlib
import json

import pytest
from conftest import REPO

from benchmarks.fuzz_grading import fuzz
from benchmarks.lines import Lines

MODULES = [path.relative_to(REPO) for room in ("scripts", "benchmarks") for path in sorted((REPO / room).rglob("*.py"))]


@pytest.mark.parametrize("room", ["scripts", "benchmarks"])
def test_the_help_of_a_command_names_it(subtests, room):
    for path in (path for path in MODULES if path.parts[0] == room and "def main(" in (REPO / path).read_text()):
        with subtests.test(str(path)):
            name = ".".join(path.with_suffix("").parts)
            said = importlib.import_module(name).__doc__
            assert f"python -m {name} " in said or f"python {path} " in said


def test_lines_are_printed_counted_and_saved(tmp_path, capsys):
    lines = Lines()
    lines.add("answer", 1.5, 2, "ms", note="bare 1.2 ms")
    lines.add("rate", 90, 100, "calls/s", least=True)
    lines.end(tmp_path / "lines.json")
    first, second, last = capsys.readouterr().out.splitlines()
    assert first.split() == ["ok", "answer", "1.500", "ms", "<=", "2", "bare", "1.2", "ms"]
    assert second.split() == ["MISS", "rate", "90.000", "calls/s", ">=", "100"]
    assert last.startswith("1 of 2 lines held")
    saved = json.loads((tmp_path / "lines.json").read_text())
    assert (saved["held"], saved["of"], [row["held"] for row in saved["lines"]]) == (1, 2, [True, False])


def test_fuzz(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, slowest, _ = fuzz(count=200, seed=1, timeout_s=1.0)
    assert slowest < 30  # not for ever: a busy machine takes seconds to end and start a process
    assert list(tmp_path.iterdir()) == []
