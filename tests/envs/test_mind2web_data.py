"""Mind2Web's public files: what is read of them, the pickle of ranks, the archives of them, the fetching script."""

from __future__ import annotations

import hashlib
import json
import pickle
import zipfile
from pathlib import Path

import pytest
from test_mind2web import make, play

from core.errors import UserError
from envs.mind2web import data as mind2web_data
from envs.mind2web.data import SAMPLE, load_split
from scripts import fetch_data


@pytest.fixture
def public(tmp_path, monkeypatch):
    """A folder as its user has it: the sample under the names of the public files, and its ranks as a pickle."""
    monkeypatch.setattr(mind2web_data, "COUNTS", {"test_task": 3, "test_website": 1})
    monkeypatch.setattr(fetch_data, "COUNTS", {"test_task": 3, "test_website": 1})
    folder = tmp_path / "public"
    (folder / "data" / "test_task").mkdir(parents=True)
    records = json.loads((SAMPLE / "records.json").read_text())
    for number, each in ((10, records[2:]), (2, records[:2])):
        (folder / "data" / "test_task" / f"test_task_{number}.json").write_text(json.dumps(each))
    (folder / fetch_data.SCORES).write_bytes(pickle.dumps(json.loads((SAMPLE / "ranks.json").read_text())))
    return folder


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_public_files_are_converted_once_and_played_as_the_sample_is(public, tmp_path, monkeypatch, capsys):
    scores = public / fetch_data.SCORES
    into = tmp_path / "fetched" / "mind2web"
    made = fetch_data.convert_mind2web(public, into, sha256(scores))
    assert [path.name for path in made] == ["test_task.zip"] == [path.name for path in into.iterdir()]
    assert "3 tasks" in capsys.readouterr().out
    before = made[0].read_bytes()
    fetch_data.convert_mind2web(public, into, sha256(scores))
    assert made[0].read_bytes() == before
    assert b"DOCTYPE" not in b"".join(zipfile.ZipFile(made[0]).read(n) for n in zipfile.ZipFile(made[0]).namelist())
    converted, sample = load_split("test_task", into), load_split("sample")
    assert converted.entries == sample.entries
    assert [converted.read(each.id) for each in sample.entries] == [sample.read(each.id) for each in sample.entries]
    assert play(make(split="test_task", data=str(into), top_k=5)) == play(make(top_k=5))
    assert make(split="test_task", data=str(into)).describe()["sha256"] == make().describe()["sha256"]
    monkeypatch.setattr(mind2web_data, "COUNTS", {"test_task": 4})
    with pytest.raises(UserError, match="test_task has 4 tasks, here are 3"):
        load_split("test_task", into)
    (into / "test_task.zip").write_bytes(before[:100])
    with pytest.raises(UserError, match="damaged"):
        load_split("test_task", into)


class Evil:
    def __reduce__(self):
        return (Path.touch, (Path("touched"),))


def test_of_the_pickle_only_plain_data_is_read_and_only_of_the_published_one(public, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scores = public / fetch_data.SCORES
    with pytest.raises(UserError, match="it was not opened"):
        fetch_data.convert_mind2web(public, tmp_path / "into")  # its hash is not the published one
    plain = json.loads((SAMPLE / "ranks.json").read_text())
    assert fetch_data.read_ranks(scores, sha256(scores)) == plain["ranks"]
    for value in (
        plain | {"more": Evil()},
        {"ranks": {"a": {"1": Evil()}}},
        {"ranks": {"a": {"1": Path("x")}}},
        {"ranks": {"a": {"1": 0.5}}},
        {"scores": {}},
        [1],
    ):
        scores.write_bytes(pickle.dumps(value))
        with pytest.raises(UserError, match="more than plain numbers and texts"):
            fetch_data.read_ranks(scores, sha256(scores))
    for code in (b"cos\nsystem\n(S'touch touched'\ntR.", b"\x82\x01.", b"", b"\x80\x04]"):  # by name, by number, torn
        scores.write_bytes(code)
        with pytest.raises(UserError, match="more than plain"):
            fetch_data.read_ranks(scores, sha256(scores))
    assert not (tmp_path / "touched").exists()
    assert not (tmp_path / "into").exists()


def test_files_that_are_not_what_they_should_be_are_named(public, tmp_path):
    scores = public / fetch_data.SCORES
    digest, into = sha256(scores), tmp_path / "into"
    page = public / "data" / "test_task" / "test_task_2.json"
    whole = page.read_text()
    for broken, message in (
        (whole[:-10], "test_task_2.json cannot be read"),
        (whole.replace("confirmed_task", "task"), "record 1, is not in Mind2Web's format: 'confirmed_task' is missing"),
        (whole.replace('"backend_node_id": "43"', '"backend_node_id": "44"'), "'44' is missing"),
        (whole.replace("own-railway", "own-library"), "record 2"),
    ):
        page.write_text(broken)
        with pytest.raises(UserError, match=message):
            fetch_data.convert_mind2web(public, into, digest)
        assert list(into.iterdir()) == []
    page.unlink()
    with pytest.raises(UserError, match="has 3 tasks, here are 1"):
        fetch_data.convert_mind2web(public, into, digest)
    with pytest.raises(UserError, match="has no files such as test_task_0.json"):
        (public / "data" / "test_task" / "test_task_10.json").unlink()
        fetch_data.convert_mind2web(public, into, digest)
    with pytest.raises(UserError, match="has no scores_all_data.pkl"):
        fetch_data.convert_mind2web(into, into, digest)
