"""Damage to the files of a run is named, said or without effect; it never changes a result in silence."""

from __future__ import annotations

import json
import random
import shutil
import sys
from importlib import import_module

import forkserver
import pytest
from conftest import REPO, TOY, command, read_json, read_rows

from analysis.load import frame_of
from analysis.runs import read_run
from benchmarks.damage_drill import DAMAGES
from core import checksum
from core.errors import UserError
from core.interrupt import Interrupts
from core.models.meter import Meter
from core.run.files import CALLS, PROMPTS, TIMINGS, lines_of
from core.run.records import RunRecords

LINES = ("episodes.jsonl", "calls.jsonl", "prompts.jsonl", "timings.jsonl")
WHOLE = ("manifest.json", "summary.json", ".hydra/hydra.yaml", ".hydra/config.yaml")


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
        checksum.say_once.cache_clear()
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


def test_a_line_that_is_missing_exchanged_twice_or_foreign_is_named(subtests, finished, tmp_path):
    cases = [
        (lambda lines: lines[:2] + lines[3:], 3),
        (lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]], 3),
        (lambda lines: [*lines[:4], lines[3], *lines[4:]], 5),
        (lambda lines: [*lines[:4], b'{"index": 4}\n', *lines[5:]], 5),
    ]
    for n, (change, line) in enumerate(cases):
        for name in LINES:
            with subtests.test(name, case=n):
                run_dir = shutil.copytree(finished, tmp_path / str(n) / name)
                file = run_dir / name
                file.write_bytes(b"".join(change(file.read_bytes().splitlines(keepends=True))))
                with pytest.raises(UserError, match=f"{name} line {line} is damaged: "):
                    read(run_dir)


def of_an_earlier_version(run_dir, name, change):
    rows = read_rows(run_dir, name)
    change(rows)
    (run_dir / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_lines_without_checksums_are_read_said_to_be_unchecked_once_and_go_on_so(here, finished, run_dir, notes):
    for name in LINES:
        of_an_earlier_version(run_dir, name, lambda rows: rows)
    assert read(run_dir)[0] == read(finished)[0]
    assert notes() == ["note: records of an earlier version have no checksums: not every damage to them would be seen."]
    here(*TOY, "limit=8", run_dir=run_dir)
    assert not any("crc32" in line for line in (run_dir / "episodes.jsonl").read_text().splitlines())


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
    ("episodes.jsonl", put("status", value="succes"), "holds status 'succes'"),
    ("episodes.jsonl", put("reward", value=9.0), "holds reward 9.0, which is not from -1 to 1"),
    ("episodes.jsonl", put("reward", value=float("nan")), "holds reward that cannot be read as a number"),
    ("episodes.jsonl", put("task_id", value="toy/amber/1"), "is of toy/amber/1, and manifest.json has"),
    ("episodes.jsonl", put("index", value=3), "holds index 3"),
    ("episodes.jsonl", put("schema", value="2"), "holds a field that cannot be read"),
    ("episodes.jsonl", put("chosen", value=1), "holds chosen 1, and 1 attempts and 1 verdicts"),
    ("episodes.jsonl", put("verdict", "confidence", value=1.5), "holds verdict.confidence 1.5"),
    (
        "episodes.jsonl",
        put("usage", "agent", "calls", value=-1),
        "holds usage.agent.calls that cannot be",
    ),
    (
        "episodes.jsonl",
        put(*STEP, "text", value=None),
        "holds trajectories.0.steps.0.text that cannot be",
    ),
    ("episodes.jsonl", put("lessons", value={}), "holds lessons that cannot be read as a list"),
    ("episodes.jsonl", renamed("status"), "lacks status"),
    ("episodes.jsonl", renamed("trajectories"), "lacks 'trajectories'"),
    ("episodes.jsonl", renamed("verdict", "parsed"), "holds an unknown verdict.parsedx"),
    ("episodes.jsonl", renamed(*STEP, "observation"), "lacks trajectories.0.steps.0.observation"),
    ("calls.jsonl", renamed("role"), "lacks role"),
    ("calls.jsonl", put("usage", value=[]), "holds usage that cannot be read as an object"),
    ("calls.jsonl", put("latency_s", value="fast"), "holds latency_s that cannot be read as a number"),
    ("prompts.jsonl", renamed("messages"), "lacks messages"),
    ("timings.jsonl", renamed("index"), "lacks index"),
]


def test_what_a_line_without_a_checksum_cannot_hold_is_one_sentence(subtests, finished, tmp_path):
    manifest = read_json(finished / "manifest.json")
    for n, (name, change, fault) in enumerate(FAULTS):
        with subtests.test(name, fault=fault):
            run_dir = shutil.copytree(finished, tmp_path / str(n))
            of_an_earlier_version(run_dir, name, change)
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


def test_episodes_that_lost_their_end_run_again_and_that_is_said(here, finished, run_dir, notes):
    file = run_dir / "episodes.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole[:-25])
    for bank in run_dir.glob("bank.sqlite*"):
        bank.unlink()
    here(*TOY, "limit=6", run_dir=run_dir)
    said = notes()
    assert f"note: {file} has lost its end, after line 5: the run's command runs their tasks again." in said
    assert any("the bank lacked 5 records" in line for line in said)
    assert file.read_bytes() == whole


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


@pytest.mark.parametrize("script", ["tables", "show", "report -o page.html", "compare", "judge_report"])
def test_every_command_names_a_damaged_line(monkeypatch, run_dir, tmp_path, capsys, script):
    monkeypatch.chdir(tmp_path)
    file = run_dir / "episodes.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"success"', b'"succesS"', 1))
    name, *words = script.split()
    runs = [str(run_dir)] * (2 if name == "compare" else 1)
    assert import_module(f"scripts.{name}").main([*runs, *words]) != 0
    assert (
        capsys.readouterr().err
        == f"error: {file} line 1 is damaged: its checksum is wrong, or lines before it are missing.\n"
    )


def test_an_audit_goes_on_where_a_checksum_is_wrong_and_names_all_that_was_changed(run_dir):
    file = run_dir / "episodes.jsonl"
    lines = file.read_text().splitlines()
    for number, change in ((1, {"status": "success", "reward": 1.0}), (3, {"query": "another question"})):
        lines[number] = json.dumps(json.loads(lines[number]) | change)
    file.write_text("\n".join(lines) + "\n")
    done = forkserver.run(
        [sys.executable, "-m", "scripts.audit", run_dir], cwd=REPO, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    found = next(part for part in done.stdout.split("BROKEN  ") if part.startswith("checksums: 2"))
    assert "line 2 is damaged" in found and "line 4 is damaged" in found and "line 3" not in found
    assert done.stdout.count("BROKEN  ") > 1  # what the changes broke is named as well
