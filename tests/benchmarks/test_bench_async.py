"""The benchmark of overlapping tasks: what a run's task lengths give, and which runs it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.bench_async import main


def timed_run(folder, *wall_s, gap=0.0, max_concurrency=1, **stream):
    """The files of a run that the benchmark of overlapping tasks reads the lengths of its tasks from.

    gap   seconds in which it was not running, before its last task
    """
    folder.mkdir()
    config = {"stream": {"mode": "in_order", "batch": 1} | stream, "max_concurrency": max_concurrency}
    manifest = {"config": config, "fingerprint": {"prompts": {}, "config": {}}}
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    ends = [1e9 + sum(wall_s[: n + 1]) for n in range(len(wall_s))]
    ends[-1] += gap
    rows = ({"index": n, "ended": end, "wall_s": took} for n, (end, took) in enumerate(zip(ends, wall_s, strict=True)))
    (folder / "timings.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(folder)


def test_what_overlapping_tasks_gain_follows_from_the_lengths_of_a_runs_tasks(tmp_path, capsys):
    file = tmp_path / "figures.json"
    unequal, equal = timed_run(tmp_path / "unequal", 90.0, 1.0, 3.0), timed_run(tmp_path / "equal", 90.0, 2.0, 2.0)
    resumed = timed_run(tmp_path / "resumed", 90.0, 2.0, 70.0, gap=3600)
    assert main(["--lengths-of", unequal, equal, resumed, "--wide", "2", "--json", str(file)]) == 0
    first, second, third = json.loads(file.read_text())["timings"]
    # By hand: of two tasks of 1 s or 3 s the longer one takes 2.5 s in the mean. The first of a start also loads.
    assert (first["tasks"], first["mean_s"], first["sd_s"]) == (2, pytest.approx(2), pytest.approx(1))
    assert (first["batches"], first["async"]) == (pytest.approx(4 / 2.5, rel=0.02), pytest.approx(2, rel=0.01))
    assert second["gain"] == pytest.approx(1)
    assert (third["tasks"], third["mean_s"]) == (1, pytest.approx(2))
    assert f"{first['gain']:.2f} x as fast" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("wall_s", "about", "why"),
    [
        ((5.0, 1.0, 3.0), {"mode": "async"}, "one after another"),
        ((5.0, 1.0, 3.0), {"batch": 4}, "one after another"),
        ((5.0, 1.0, 3.0), {"max_concurrency": 4}, "one after another"),
        ((5.0,), {}, "two tasks at least"),
        ((5.0, float("inf")), {}, "two tasks at least"),
    ],
)
def test_a_run_that_does_not_tell_the_lengths_of_its_tasks_is_refused(tmp_path, capsys, wall_s, about, why):
    run = timed_run(tmp_path / "run", *wall_s, **about)
    assert main(["--lengths-of", run]) == 2
    assert why in capsys.readouterr().err


def test_what_is_no_run_and_no_width_is_refused_in_a_sentence(tmp_path, capsys):
    run = timed_run(tmp_path / "run", 5.0, 1.0, 3.0)
    assert main(["--lengths-of", str(tmp_path)]) == 2
    assert "is no run" in capsys.readouterr().err
    Path(run, "timings.jsonl").write_text('{"index": 0, "ended": 1.0, "wall_s": null}\n', encoding="utf-8")
    assert main(["--lengths-of", run]) == 2
    assert "cannot be read" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--wide", "1"])
