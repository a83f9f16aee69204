"""The columns of runs are kept between tables, and read again as soon as anything that they came from has changed."""

import multiprocessing
import os
import pickle
import shutil
import sys
from pathlib import Path

import forkserver
import pandas as pd
import pytest
from conftest import read_rows, write_rows

from analysis import kept_columns, load
from analysis.load import load_runs
from analysis.runs import read_run
from core.errors import UserError
from tests.sizes import ROOT


@pytest.fixture
def look(tmp_path, monkeypatch):
    """A function that looks at paths from a folder with outputs; returns (the table, the runs that were read)."""
    (tmp_path / "outputs").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(kept_columns, "YOUNG_NS", 0)

    def at(*paths):
        read = []
        with monkeypatch.context() as patch:
            patch.setattr(load, "read_run", lambda path: (read.append(path.name), read_run(path))[1])
            return load_runs(paths), read

    return at


@pytest.fixture
def runs(toy_runs, tmp_path):
    return shutil.copytree(toy_runs, tmp_path / "outputs" / "runs")


def test_a_second_look_reads_no_run_and_makes_the_same_table(look, runs):
    first, read = look(runs)
    assert len(read) == first["run_dir"].nunique() > 2
    assert first["settings"].dtype == object  # one text for all episodes of a run
    second, again = look(runs)
    finished = first.groupby("run")["complete"].all()
    assert set(again) == {*finished.index[~finished]}
    pd.testing.assert_frame_equal(first, second)
    relative, _ = look(runs.relative_to(runs.parents[1]))
    assert not relative["run_dir"].str.startswith("/").any()
    pd.testing.assert_frame_equal(first.drop(columns="run_dir"), relative.drop(columns="run_dir"))


def complete_runs(look, runs):
    """The finished runs, once their columns are kept."""
    frame, _ = look(runs)
    return [Path(path) for path in frame.loc[frame["complete"], "run_dir"].unique()]


@pytest.mark.parametrize("name", ["episodes.jsonl", "manifest.json", ".hydra/config.yaml", "summary.json"])
def test_one_changed_bit_of_a_run_is_seen_at_the_second_look(look, runs, name):
    run = complete_runs(look, runs)[0]
    data = bytearray((run / name).read_bytes())
    data[len(data) // 2] ^= 1
    (run / name).write_bytes(data)
    if name == "summary.json":  # is made anew, and each time this is said
        assert look(run)[1] == look(run)[1] == [run.name]
    else:
        with pytest.raises(UserError, match="damaged|checksum"):
            look(run)


def test_another_file_or_one_less_is_another_state(look, runs):
    run = complete_runs(look, runs)[0]
    assert look(run)[1] == []
    (run / "bank.sqlite").unlink(missing_ok=True)
    (run / "note.txt").write_text("mine")
    assert look(run)[1] == [run.name]
    assert look(run)[1] == []


def test_a_change_of_the_given_bank_is_seen(look, here, tmp_path):
    toy = ("env=toy", "llm=scripted", "embedder=hashing", "limit=2", f"memory.path={tmp_path / 'given.sqlite'}")
    here(*toy, run_dir=tmp_path / "learned")
    run, _ = here(*toy, "setting=frozen", run_dir=tmp_path / "frozen")
    assert look(run)[1] == [run.name]
    before, read = look(run)
    assert read == []
    (tmp_path / "given.sqlite").unlink()
    after, read = look(run)
    assert read == [run.name]
    assert before["label_source"].tolist() == after["label_source"].tolist()  # which the manifest notes


def test_what_is_kept_is_never_trusted_blindly(look, runs, monkeypatch):
    run = complete_runs(look, runs)[0]
    expected, _ = look(run)
    [file] = [each for each in kept_columns.FOLDER.iterdir() if str(run) in each.read_text()]
    whole = file.read_bytes()
    for place in range(0, len(whole), max(1, len(whole) // 40)):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        pd.testing.assert_frame_equal(look(run)[0], expected)
    for cut in (b"", b"{}", b"[]\n[]", whole[:-1], whole.replace(b'"program"', b'"progran"')):
        file.write_bytes(cut)
        table, read = look(run)
        assert read == [run.name]
        pd.testing.assert_frame_equal(table, expected)
    file.write_bytes(whole)
    assert look(run)[1] == []
    for mode in (0o620, 0o602):  # another user may have written it
        file.chmod(mode)
        assert look(run)[1] == [run.name]  # and it is replaced by an own one
        assert look(run)[1] == []
    monkeypatch.setattr(kept_columns, "_program", lambda: "another version of it")
    assert look(run)[1] == [run.name]


def test_a_file_that_changes_while_a_run_is_read_is_no_state_to_keep(look, here, tmp_path, monkeypatch):
    bank = tmp_path / "given.sqlite"
    toy = ("env=toy", "llm=scripted", "embedder=hashing", "limit=2", f"memory.path={bank}")
    here(*toy, run_dir=tmp_path / "learned")
    run, _ = here(*toy, "setting=frozen", run_dir=tmp_path / "frozen")
    made = load.columns_of

    def changed_meanwhile(read):
        columns = made(read)
        bank.write_bytes(bank.read_bytes())
        return columns

    with monkeypatch.context() as patch:
        patch.setattr(load, "columns_of", changed_meanwhile)
        look(run)
    assert look(run)[1] == [run.name]


def test_a_run_that_has_just_changed_or_is_unfinished_is_not_kept(look, runs, monkeypatch):
    run = complete_runs(look, runs)[0]
    monkeypatch.setattr(kept_columns, "YOUNG_NS", 10**12)
    (run / "note.txt").write_text("mine")
    assert look(run)[1] == look(run)[1] == [run.name]
    monkeypatch.setattr(kept_columns, "YOUNG_NS", 0)
    write_rows(run, read_rows(run)[:-1])
    assert look(run)[1] == look(run)[1] == [run.name]


def test_the_oldest_make_room_and_nothing_is_kept_without_outputs(look, runs, tmp_path, monkeypatch):
    monkeypatch.setattr(kept_columns, "MOST", 2)
    complete_runs(look, runs)
    assert 1 <= len(list(kept_columns.FOLDER.iterdir())) <= 2
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert look(runs)[1]
    assert list(elsewhere.iterdir()) == []


def test_a_folder_that_cannot_be_written_costs_only_the_time(look, runs, tmp_path):
    (tmp_path / "outputs" / ".cache").write_text("in the way")
    table, read = look(runs)
    assert len(read) == len(look(runs)[1]) == table["run"].nunique()


BY_SEVERAL = """
import os, pickle, sys
from pathlib import Path
from analysis import load
from analysis.runs import read_run
from core.errors import UserError
read = []
os.cpu_count, load.MUCH, load.read_run = lambda: 3, 0, lambda path: (read.append(path.name), read_run(path))[1]
try:
    table = load.load_runs(sys.argv[1:])
except UserError as error:
    sys.exit(str(error))
Path("seen").write_bytes(pickle.dumps((table, read)))
"""


def look_by_several(runs):
    """As `look`, by several processes: from one of its own, for those of the tests may have threads."""
    command, env = [sys.executable, "-c", BY_SEVERAL, runs], os.environ | {"PYTHONPATH": str(ROOT)}
    done = forkserver.run(command, capture_output=True, text=True, env=env)
    table, read = (None, []) if done.returncode else pickle.loads(Path("seen").read_bytes())
    assert read == []  # by the process that asked
    return table, done.stderr


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="runs are read one after another")
def test_runs_read_by_several_processes_are_as_those_read_by_one(look, runs):
    alone, _ = look(runs)
    shutil.rmtree(kept_columns.FOLDER)
    together, said = look_by_several(runs)
    assert said == ""
    pd.testing.assert_frame_equal(alone, together)
    pd.testing.assert_frame_equal(alone, look_by_several(runs)[0])  # mostly of what they kept
    finished = [Path(path) for path in alone.loc[alone["complete"], "run_dir"].unique()]
    for run in finished[:3]:
        (run / "summary.json").unlink()
    _, said = look_by_several(runs)
    notes = [line for line in said.splitlines() if line.startswith("note: ")]
    assert len(notes) == len(set(notes)) == 3
    (finished[0] / "manifest.json").write_text("{")
    table, said = look_by_several(runs)
    assert table is None and "manifest.json is damaged" in said and "Traceback" not in said
