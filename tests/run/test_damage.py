"""Damage to the files of a run is named, said or without effect; it never changes a result in silence."""

from __future__ import annotations

import json
import random
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module

import forkserver
import pytest
from conftest import REPO, TOY, command, read_json, read_rows, write_rows

from analysis.load import frame_of
from analysis.runs import read_run
from core.errors import OverBudget, UserError
from core.interrupt import Interrupts
from core.models.meter import Meter
from core.run.files import CALLS, PROMPTS, TIMINGS, lines_of
from core.run.records import RunRecords
from core.terminal import say_once

LINES = ("episodes.jsonl", "calls.jsonl", "prompts.jsonl", "timings.jsonl")
WHOLE = ("manifest.json", "summary.json", ".hydra/hydra.yaml", ".hydra/config.yaml")


def one_bit(data: bytes, rng: random.Random) -> bytes:
    at, changed = rng.randrange(len(data)), bytearray(data)
    changed[at] ^= 1 << rng.randrange(8)
    return bytes(changed)


def two_hundred_bytes(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(max(1, len(data) - 200))
    return data[:at] + bytes(byte ^ rng.randrange(1, 256) for byte in data[at : at + 200]) + data[at + 200 :]


def cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def exchanged_lines(data: bytes, rng: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    places = [at for at in range(len(lines) - 1) if lines[at] != lines[at + 1]]
    if not places or b"\0" in data:
        return data
    at = rng.choice(places)
    lines[at : at + 2] = lines[at + 1], lines[at]
    return b"".join(lines)


def emptied(data: bytes, rng: random.Random) -> bytes:
    return b""


DAMAGES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    each.__name__: each for each in (one_bit, two_hundred_bytes, cut, exchanged_lines, emptied)
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "run"
    forkserver.run(command(*TOY, "limit=6", f"run_dir={folder}"), check=True, capture_output=True, timeout=120)
    return folder


@pytest.fixture
def run_dir(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


@pytest.fixture
def notes(capsys):
    """What was said of damage since the last time it was asked for."""

    def said():
        say_once.cache_clear()
        return [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: ")]

    said()
    return said


def read(run_dir):
    """All that a reader takes from a run."""
    run = read_run(run_dir)
    kept = {key: value for key, value in run.summary.items() if not key.startswith(("wall_s", "made_anew"))}
    files = [list(lines_of(run_dir, name)) for name in (CALLS, PROMPTS, TIMINGS)]
    counted = ("n", "n_tasks", "n_success", "tokens", "consolidation", "calls", "label_source")
    return (
        run.rows,
        run.manifest,
        run.hydra,
        run.composed,
        {key: kept[key] for key in counted},
        files,
        frame_of([run]).to_json(),
    )


def opened(run_dir, manifest):
    """All that a start takes from a run."""
    task_ids = manifest["task_ids"]
    records = RunRecords(run_dir, manifest["fingerprint"], Interrupts(lambda: None), task_ids=task_ids)
    try:
        meter = Meter(log=records.lines("calls"), prompts=records.lines("prompts"))
        return records.rows, records.wall_s(), meter.totals()
    finally:
        records.close()


@pytest.mark.parametrize("name", [*LINES, *WHOLE])
def test_no_damage_is_silent_or_a_traceback(subtests, finished, tmp_path, notes, name):
    manifest, whole = read_json(finished / "manifest.json"), (finished / name).read_bytes()
    for damage in DAMAGES:
        with subtests.test(damage):
            run_dir = shutil.copytree(finished, tmp_path / damage)
            file = run_dir / name
            expected = [str(read(run_dir)), str(opened(run_dir, manifest))]
            for seed in range(1 if damage == "emptied" else 4):
                said = []
                for look in (read, lambda folder: opened(folder, manifest)):
                    file.write_bytes(DAMAGES[damage](whole, random.Random(f"{name} {seed}")))
                    notes()
                    try:
                        said.append(str(look(run_dir)))
                    except UserError as error:
                        assert file.name in str(error) and len(str(error).splitlines()) == 1
                        said.append(None)
                    if notes():
                        said[-1] = None
                assert [one for one, other in zip(said, expected, strict=True) if one not in (None, other)] == []
                assert said[0] is None  # every one of these files is read for a table


def test_of_a_finished_run_a_line_that_is_missing_exchanged_twice_or_foreign_is_seen(subtests, finished, tmp_path):
    cases = [
        lambda lines: lines[:2] + lines[3:],
        lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]],
        lambda lines: [*lines[:4], lines[3], *lines[4:]],
        lambda lines: lines[:-1],
    ]
    for n, change in enumerate(cases):
        for name in LINES:
            with subtests.test(name, case=n):
                run_dir = shutil.copytree(finished, tmp_path / str(n) / name)
                file = run_dir / name
                file.write_bytes(b"".join(change(file.read_bytes().splitlines(keepends=True))))
                with pytest.raises(
                    UserError, match=rf"{name} (line \d holds index|is damaged: it is not as the run left)"
                ):
                    read(run_dir)


def test_a_run_that_goes_on_is_read_and_continued_with_more_lines_than_its_summary_notes(here, finished, run_dir):
    """As after a kill, with a torn line: the summary is that of the start before."""
    noted = (run_dir / "summary.json").read_bytes()
    here(*TOY, "limit=8", run_dir=run_dir)
    whole = (run_dir / "episodes.jsonl").read_bytes()
    (run_dir / "summary.json").write_bytes(noted)
    (run_dir / "episodes.jsonl").write_bytes(whole[:-25])
    assert [row["index"] for row in read_run(run_dir).rows] == list(range(7))
    for bank in run_dir.glob("bank.sqlite*"):
        bank.unlink()
    here(*TOY, "limit=8", run_dir=run_dir)
    assert (run_dir / "episodes.jsonl").read_bytes() == whole
    assert read_run(run_dir).summary["files"]["episodes.jsonl"][0] == len(whole)


def test_a_stopped_episode_is_not_noted(here, tmp_path):
    """Its line gives way to another when its task runs again."""
    with suppress(OverBudget):
        here(*TOY, "limit=6", "budget.run.calls=7", run_dir=tmp_path / "run")
    file, noted = tmp_path / "run/episodes.jsonl", read_run(tmp_path / "run").summary["files"]["episodes.jsonl"]
    lines = file.read_bytes().splitlines(keepends=True)
    assert json.loads(lines[-1])["status"] == "stopped" and noted[0] == sum(map(len, lines[:-1]))
    here(*TOY, "limit=6", run_dir=tmp_path / "run")
    assert len(read_run(tmp_path / "run").rows) == 6


def put(*path, value):
    def change(rows):
        node = rows[2]
        for key in path[:-1]:
            node = node[key]
        node[path[-1]] = value

    return change


def renamed(*path):
    def change(rows):
        node = rows[2]
        for key in path[:-1]:
            node = node[key]
        node[f"{path[-1]}x"] = node.pop(path[-1])

    return change


STEP = ("trajectories", 0, "steps", 0)
FAULTS = [
    ("episodes.jsonl", put("status", value="succes"), "is damaged: Invalid enum value 'succes' - at `$.status`"),
    ("episodes.jsonl", put("reward", value=9.0), "is damaged: Expected `float` <= 1.0 - at `$.reward`"),
    ("episodes.jsonl", put("reward", value=float("nan")), "is damaged: Expected `float` >= -1.0 - at `$.reward`"),
    ("episodes.jsonl", put("task_id", value="toy/amber/1"), "is of toy/amber/1, and manifest.json has"),
    ("episodes.jsonl", put("index", value=3), "holds index 3"),
    ("episodes.jsonl", put("schema", value="2"), "is damaged: Expected `int`, got `str` - at `$.schema`"),
    ("episodes.jsonl", put("chosen", value=1), "is damaged: Expected a verdict on each attempt"),
    ("episodes.jsonl", put("verdict", "confidence", value=1.5), "is damaged: Expected `float` <= 1.0"),
    ("episodes.jsonl", put("usage", "agent", "calls", value=-1), "is damaged: Expected `int` >= 0"),
    ("episodes.jsonl", put(*STEP, "text", value=None), "is damaged: Expected `str`, got `null`"),
    (
        "episodes.jsonl",
        put("retrieved", value=[{"id": "a", "score": 1.0}]),
        "is damaged: Object missing required field",
    ),
    ("episodes.jsonl", put("lessons", value={}), "is damaged: Expected `array`, got `object`"),
    ("episodes.jsonl", renamed("status"), "is damaged: Object"),
    ("episodes.jsonl", renamed("trajectories"), "is damaged: Object"),
    ("episodes.jsonl", renamed("verdict", "parsed"), "is damaged: Object contains unknown field `parsedx`"),
    ("episodes.jsonl", renamed(*STEP, "observation"), "is damaged: Object"),
    ("calls.jsonl", renamed("role"), "is damaged: Object"),
    ("calls.jsonl", renamed("from_cache"), "is damaged: Object"),
    ("calls.jsonl", put("usage", value=[]), "is damaged: Expected `object | null`, got `array`"),
    ("calls.jsonl", put("latency_s", value="fast"), "is damaged: Expected `float`, got `str`"),
    ("prompts.jsonl", renamed("messages"), "is damaged: Object"),
    ("timings.jsonl", renamed("index"), "is damaged: Object"),
]


def test_what_no_line_of_a_run_that_goes_on_can_hold_is_one_sentence(subtests, finished, tmp_path):
    manifest = read_json(finished / "manifest.json")
    for n, (name, change, fault) in enumerate(FAULTS):
        with subtests.test(name, fault=fault):
            run_dir = shutil.copytree(finished, tmp_path / str(n))
            rows = read_rows(run_dir, name)
            change(rows)
            write_rows(run_dir, rows, name)
            for look in (read, lambda folder: opened(folder, manifest)):
                with pytest.raises(UserError) as error:
                    look(run_dir)
                assert f"{name} line 3 {fault}" in str(error.value) and len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("change", [lambda text: text[:200], lambda text: "", lambda text: text.replace(": ", "; ", 1)])
def test_a_damaged_summary_is_made_anew_and_that_is_said_once(here, finished, run_dir, notes, change):
    file = run_dir / "summary.json"
    file.write_text(change(file.read_text()))
    assert str(read(run_dir)[:-1]) == str(read(finished)[:-1])
    assert len(said := notes()) == 1 and "is made anew from the run's records" in said[0]
    here(*TOY, "limit=6", run_dir=run_dir)
    assert len([line for line in notes() if str(file) in line]) == 1
    assert {**read_json(file), "wall_s": 0} == {**read_json(finished / "summary.json"), "wall_s": 0}


def test_a_finished_run_that_lost_an_end_is_not_continued(here, run_dir):
    for name in LINES:
        file = run_dir / name
        whole = file.read_bytes()
        file.write_bytes(whole[:-25])
        with pytest.raises(UserError, match=f"{name} is damaged: it is not as the run left it. Restore a copy of it"):
            here(*TOY, "limit=8", run_dir=run_dir)
        assert file.read_bytes() == whole[:-25]  # nothing was cut off
        file.write_bytes(whole)


@pytest.mark.parametrize("kept", [0, 3_000])
def test_a_runs_own_bank_is_made_again_from_its_episodes_to_the_same_results(here, tmp_path, notes, kept):
    words = (*TOY, "memory=consolidated_offline", "memory.consolidate.every=3")
    whole = here(*words, "limit=12", run_dir=tmp_path / "whole")[0]
    run_dir = here(*words, "limit=8", run_dir=tmp_path / "run")[0]
    for name in ("bank.sqlite", "bank.sqlite.journal"):
        data = (run_dir / name).read_bytes()
        (run_dir / name).write_bytes(data[:kept] + b"\xff" * (len(data) - kept) if kept else data[: len(data) // 2])
    notes()
    here(*words, "limit=12", run_dir=run_dir)
    assert any("is set aside as bank.sqlite.corrupt-" in line and "from 8 episodes" in line for line in notes())
    assert (run_dir / "episodes.jsonl").read_bytes() == (whole / "episodes.jsonl").read_bytes()
    assert len(list(run_dir.glob("bank.sqlite.corrupt-*"))) >= 2


@pytest.mark.parametrize("script", ["tables", "show", "report -o page.html", "compare", "learn --judges"])
def test_every_command_names_a_damaged_line(monkeypatch, run_dir, tmp_path, capsys, script):
    monkeypatch.chdir(tmp_path)
    file = run_dir / "episodes.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"reward": ', b'"rewarD": ', 1))
    name, *words = script.split()
    runs = [str(run_dir)] * (2 if name == "compare" else 1)
    assert import_module(f"scripts.{name}").main([*runs, *words]) != 0
    assert capsys.readouterr().err == f"error: {file} line 1 is damaged: Object contains unknown field `rewarD`.\n"


def test_an_audit_goes_on_where_a_file_is_not_as_it_was_left_and_names_all_that_was_changed(run_dir):
    file = run_dir / "episodes.jsonl"
    lines = file.read_text().splitlines()
    for number, change in ((1, {"status": "success", "reward": 1.0}), (3, {"query": "another question"})):
        lines[number] = json.dumps(json.loads(lines[number]) | change)
    file.write_text("\n".join(lines) + "\n")
    done = forkserver.run(
        [sys.executable, "-m", "scripts.audit", run_dir], cwd=REPO, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    found = next(part for part in done.stdout.split("BROKEN  ") if part.startswith("checksums: 1"))
    assert "episodes.jsonl is damaged: it is not as the run left it." in found
    assert done.stdout.count("BROKEN  ") > 1  # what the changes broke is named as well
