"""Where a run or a sweep writes when nothing is said, and what one that was refused leaves."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import TOY

from core.run.folders import discard, run_folder


def names(folder):
    return sorted(path.name for path in folder.rglob("*"))


def test_new_folders_are_numbered_and_no_two_starts_get_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_folder("mine", "toy") == "mine" and names(tmp_path) == []
    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(lambda _: run_folder(None, "toy"), range(24)))
    assert made == {f"outputs/toy-{number}" for number in range(1, 25)}
    assert run_folder(None, "toy-1") == "outputs/toy-1-1"


def test_only_a_folder_without_anything_of_a_run_is_removed(tmp_path):
    for name in ("episodes.jsonl", ".lock", "main.log"):
        (tmp_path / "refused").mkdir(exist_ok=True)
        (tmp_path / "refused" / name).write_text("error" if name == "main.log" else "")
    discard(tmp_path / "refused")
    assert names(tmp_path) == []
    for name in ("manifest.json", "notes.txt", "episodes.jsonl"):
        (tmp_path / name.partition(".")[0]).mkdir()
        (tmp_path / name.partition(".")[0] / name).write_text("{}\n")
        discard(tmp_path / name.partition(".")[0])
    (tmp_path / "notes" / "notes.txt").write_text("")  # the user's own, though it is empty
    discard(tmp_path / "notes")
    assert names(tmp_path) == ["episodes", "episodes.jsonl", "manifest", "manifest.json", "notes", "notes.txt"]


@pytest.mark.parametrize(
    "words",
    [
        ("retrieval.top_k=-1",),
        ("-m", "retrieval.top_k=-1", "seed=0,1"),
        ("retrieval.top_k=-1", "run_dir=mine"),
        ("dry_run=true",),
        ("memory.path=nowhere/x.sqlite", "setting=frozen"),
    ],
    ids=" ".join,
)
def test_a_refused_run_leaves_no_folder(cli, tmp_path, words):
    cli(*(word for word in words if word == "-m"), *TOY, *(word for word in words if word != "-m"))
    assert names(tmp_path) == []


@pytest.mark.parametrize("words", [("run_dir=outputs",), ("-m", "seed=0,1", "run_dir=outputs/")], ids=" ".join)
def test_the_folder_of_all_runs_is_no_runs_own(cli, tmp_path, words):
    done = cli(*(word for word in words if word == "-m"), *TOY, *(word for word in words if word != "-m"))
    assert done.returncode == 1 and "is the folder of all runs" in done.stderr and names(tmp_path) == []
