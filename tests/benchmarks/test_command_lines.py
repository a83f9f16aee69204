"""What all benchmarks and scripts share: the help of a command, the figures beside their limits, what got worse."""

from __future__ import annotations

import importlib
import json

import pytest
from conftest import REPO

from benchmarks import __main__ as everything
from benchmarks.__main__ import worse
from benchmarks.lines import Lines
from scripts.reasoningbank import COMMANDS, OF_SERVER, start

MODULES = [path.relative_to(REPO) for room in ("scripts", "benchmarks") for path in sorted((REPO / room).rglob("*.py"))]


@pytest.mark.parametrize("room", ["scripts", "benchmarks"])
def test_the_help_of_a_command_names_it(subtests, room):
    words = {module: f"reasoningbank {word}" for word, (module, _) in COMMANDS.items()}
    for path in (path for path in MODULES if path.parts[0] == room and "def main(" in (REPO / path).read_text()):
        with subtests.test(str(path)):
            name = ".".join(path.with_suffix("").parts)
            called = words.get(name) or f"python -m {name.removesuffix('.__main__')}"
            assert f"{called} " in importlib.import_module(name).__doc__


def test_the_help_of_all_commands_fits_a_screen(capsys):
    assert start(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 88
    assert all(any(line.split()[:1] == [word] for line in lines) for word in (*COMMANDS, *OF_SERVER))


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
    assert saved["machine"]["cores"] and saved["commit"]
    assert (saved["held"], saved["of"], [row["held"] for row in saved["lines"]]) == (1, 2, [True, False])


def figures(**values):
    """What is saved of a run of a benchmark, with a time, a ratio to keep under and a share to keep over."""
    lines = Lines()
    for name, value in values.items():
        lines.keep(name, value, {"time": "ms", "ratio": "x", "share": "%"}[name], least=name == "share")
    return {"commit": "abc", "machine": {"cores": 2}, "lines": lines.rows}


def test_what_got_worse_by_more_than_15_per_cent_is_said():
    was = figures(time=10.0, ratio=1.0, share=90.0)
    assert list(worse(was, figures(time=11.4, ratio=1.1, share=80.0))) == []
    said = list(worse(was, figures(time=11.6, ratio=1.2, share=70.0)))
    assert [line.partition(":")[0] for line in said] == ["time", "ratio", "share"]
    assert said[1] == "ratio: 1.200 x, was 1.000 (abc)"
    assert list(worse(was, figures(time=5.0, ratio=0.5, share=100.0))) == []


def test_a_count_that_was_zero_is_worse_with_the_first_and_times_of_another_machine_say_nothing():
    assert len(list(worse(figures(ratio=0), figures(ratio=1)))) == 1
    elsewhere = figures(time=99.0, ratio=9.0) | {"machine": {"cores": 4}}
    assert [line.partition(":")[0] for line in worse(figures(time=1.0, ratio=1.0), elsewhere)] == ["ratio"]


def test_a_benchmark_is_stored_and_the_next_run_is_compared_with_it(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(everything, "RESULTS", tmp_path / "results")
    words = ["--", "--users", "20", "--runs", "80"]
    assert everything.main(["holdout_simulation", "--store", *words]) == 0
    assert "are stored of holdout_simulation" in capfd.readouterr().out
    file = tmp_path / "results" / "holdout_simulation.json"
    stored = json.loads(file.read_text())
    [row] = [row for row in stored["--users 20 --runs 80"]["lines"] if row["value"]][:1]
    row["value"] /= 2
    file.write_text(json.dumps(stored))
    assert everything.main(["holdout_simulation", *words]) == 1
    assert f"{row['line']}: {2 * row['value']:.3f} %, was {row['value']:.3f}" in capfd.readouterr().out
    assert everything.main(["no_such", *words]) == 2
