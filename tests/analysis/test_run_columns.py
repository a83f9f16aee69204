"""A run writes the columns of its episodes at its end: tables read no episode, and never those of another state."""

import json
import os
import shutil
from contextlib import suppress

import pandas as pd
import pytest
from conftest import TOY, read_rows, write_rows

from analysis import runs
from analysis.load import load_runs
from core.checksum import whole_json
from core.errors import OverBudget, UserError
from core.run.files import COLUMNS_FILE


@pytest.fixture
def look(monkeypatch):
    """A function that loads paths; returns (the table, the runs whose episodes were read)."""

    def at(*paths):
        read = []
        with monkeypatch.context() as patch:
            patch.setattr(runs, "_rows", lambda path, manifest: (read.append(path.name), ROWS(path, manifest))[1])
            return load_runs(paths), read

    return at


ROWS = runs._rows


@pytest.fixture
def copies(toy_runs, tmp_path):
    return shutil.copytree(toy_runs, tmp_path / "runs")


def without_columns(folder):
    for file in folder.rglob(COLUMNS_FILE):
        file.unlink()


def test_tables_read_no_episode_of_a_finished_run_and_are_the_same_as_if_they_had(look, copies):
    table, read = look(copies)
    finished = table.groupby("run")["complete"].all()
    assert finished.sum() > 2 and set(read) == {*finished.index[~finished]}
    assert table["settings"].dtype == object  # one text for all episodes of a run
    without_columns(copies)
    again, read = look(copies)
    assert set(read) == {*finished.index}
    pd.testing.assert_frame_equal(table, again)


def finished_run(copies):
    return next(file.parent for file in sorted(copies.rglob(COLUMNS_FILE)))


def changed_rows(run):
    write_rows(run, [row | {"reward": 0.25} for row in read_rows(run)])


def damaged(run):
    (run / COLUMNS_FILE).write_bytes((run / COLUMNS_FILE).read_bytes().replace(b'"reward"', b'"rewird"'))


def of_another_format(run):
    text = (run / COLUMNS_FILE).read_text().replace('"format": 1', '"format": 0')
    (run / COLUMNS_FILE).write_text(text.rpartition(",\n")[0] + "\n}")  # without its checksum


def written_by_hand(run):
    found = json.loads((run / COLUMNS_FILE).read_text())
    found["columns"]["success"] = [1.0 for _ in found["columns"]["success"]]
    (run / COLUMNS_FILE).write_text(whole_json({key: found[key] for key in ("format", "columns")}))


@pytest.mark.parametrize("change", [changed_rows, damaged, of_another_format, written_by_hand])
def test_columns_of_another_state_are_not_used(look, copies, change):
    run = finished_run(copies)
    before, read = look(run)
    assert read == []
    change(run)
    after, read = look(run)
    assert read[-1] == run.name
    assert (after["reward"] == 0.25).all() if change is changed_rows else after.equals(before)


def test_episodes_changed_to_others_as_long_are_damage(look, copies):
    run = finished_run(copies)
    data = bytearray((run / "episodes.jsonl").read_bytes())
    data[len(data) // 2] ^= 1
    (run / "episodes.jsonl").write_bytes(data)
    with pytest.raises(UserError, match="damaged|not as the run left it"):
        look(run)


def test_a_copy_has_the_columns_of_its_run(look, copies, tmp_path):
    run = finished_run(copies)
    copy = shutil.copytree(run, tmp_path / "copy")
    os.utime(copy / "episodes.jsonl")  # it was copied last
    assert look(copy)[1] == []


def test_a_run_that_went_on_has_its_new_columns(look, here, tmp_path):
    run, _ = here(*TOY, "limit=4", run_dir=tmp_path / "run")
    old = (run / COLUMNS_FILE).read_bytes()
    here(*TOY, "limit=6", run_dir=run)
    assert (table := look(run))[1] == [] and len(table[0]) == 6
    (run / COLUMNS_FILE).write_bytes(old)  # as after a crash
    assert (table := look(run))[1][-1] == "run" and len(table[0]) == 6


def test_a_run_that_went_on_and_stopped_has_no_columns(look, here, tmp_path):
    run, _ = here(*TOY, "limit=4", run_dir=tmp_path / "run")
    with suppress(OverBudget):
        here(*TOY, "limit=8", "budget.run.calls=20", run_dir=run)
    assert 4 < len(look(run)[0]) < 8


def test_kinds_of_lessons_from_a_given_bank_stay_known_when_it_is_gone(look, here, tmp_path):
    bank = tmp_path / "given.sqlite"
    here(*TOY, "limit=4", f"memory.path={bank}", run_dir=tmp_path / "learned")
    run, _ = here(*TOY, "limit=4", "setting=frozen", f"memory.path={bank}", run_dir=tmp_path / "frozen")
    before, _ = look(run)
    bank.unlink()
    after, read = look(run)
    assert read == [] and after.equals(before)
