"""A run goes on with the same server, data and bank wherever they are by now, and with no others."""

from __future__ import annotations

import json
import shutil

import pytest
from conftest import TOY, read_json, read_rows
from provider import completion

from analysis.load import load_runs
from core.errors import UserError


def sums(path, answers=(2, 4, 6)):
    path.parent.mkdir(exist_ok=True)
    rows = [{"id": f"q{n}", "question": f"What is {n}+{n}?", "answer": str(gold)} for n, gold in enumerate(answers, 1)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return ("env=gsm8k", f"env.path={path}", "embedder=hashing", "workflow=vanilla")


@pytest.mark.parametrize("models", [["m"], 404])
def test_a_server_at_another_address_is_the_same(serve, here, tmp_path, models):
    data = sums(tmp_path / "data" / "sums.jsonl")
    for limit in (1, 2, 3, 3):
        server = serve(lambda request, n: (200, completion("\\boxed{2}")), models)
        words = (*data, "llm=vllm", f"llm.api_base={server.url}", f"limit={limit}")
        here(*words, run_dir=tmp_path / "run")
    assert len(read_rows(tmp_path / "run")) == 3 and not server.requests
    other = serve(lambda request, n: (200, completion("\\boxed{2}")), models)
    here(*data, "llm=vllm", f"llm.api_base={other.url}", "seed=1", "limit=3", run_dir=tmp_path / "second")
    frame = load_runs([tmp_path / "run", tmp_path / "second"])
    assert frame["cell"].nunique() == 1


def test_the_same_data_by_another_path_go_on_and_other_data_do_not(here, tmp_path, monkeypatch):
    words = sums(tmp_path / "data" / "sums.jsonl")
    rest = (*words[2:], "llm=scripted", "agent=gold")
    here(*words[:2], *rest, "limit=1", run_dir=tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    here("env=gsm8k", "env.path=data/../data/sums.jsonl", *rest, "limit=2", run_dir=tmp_path / "run")
    shutil.copytree(tmp_path / "data", tmp_path / "else" / "data")
    shutil.copytree(tmp_path / "run", tmp_path / "else" / "run")
    moved = f"env.path={tmp_path / 'else' / 'data' / 'sums.jsonl'}"
    here("env=gsm8k", moved, *rest, run_dir=tmp_path / "else" / "run")
    assert len(read_rows(tmp_path / "else" / "run")) == 3
    sums(tmp_path / "data" / "sums.jsonl", answers=(2, 4, 7))
    with pytest.raises(UserError, match=r"made with other tasks, whose data have changed since \(.*dataset.sha256"):
        here(*words[:2], *rest, run_dir=tmp_path / "run")


def test_a_run_of_an_earlier_version_whose_manifest_has_the_paths_goes_on(here, tmp_path):
    words = (*sums(tmp_path / "data" / "sums.jsonl"), "llm=scripted", "agent=gold")
    here(*words, "limit=1", run_dir=tmp_path / "run")
    made = read_json(tmp_path / "run" / "manifest.json")
    made["fingerprint"]["config"]["env"]["path"] = "elsewhere.jsonl"
    made["fingerprint"]["config"]["memory"] = made["fingerprint"]["config"].get("memory") or {}
    (tmp_path / "run" / "manifest.json").write_text(json.dumps(made))
    here(*words, "limit=2", run_dir=tmp_path / "run")
    assert len(read_rows(tmp_path / "run")) == 2


def test_a_bank_is_known_by_what_the_run_has_added(here, tmp_path, monkeypatch):
    bank, other = tmp_path / "bank.sqlite", tmp_path / "other.sqlite"
    here(*TOY, "limit=4", f"memory.path={bank}", run_dir=tmp_path / "run")
    here(*TOY, "limit=2", "seed=7", f"memory.path={other}", run_dir=tmp_path / "another")
    monkeypatch.chdir(tmp_path)
    here(*TOY, "limit=5", "memory.path=./bank.sqlite", run_dir=tmp_path / "run")
    assert len(read_rows(tmp_path / "run")) == 5
    with pytest.raises(UserError, match="it is another bank"):
        here(*TOY, "limit=6", f"memory.path={other}", run_dir=tmp_path / "run")
    words = (*TOY, "setting=frozen", "limit=2")
    here(*words, f"memory.path={bank}", run_dir=tmp_path / "frozen")
    (tmp_path / "copies").mkdir()
    for file in tmp_path.glob("bank.sqlite*"):
        shutil.copy(file, tmp_path / "copies")
    here(*words, "memory.path=copies/bank.sqlite", run_dir=tmp_path / "frozen")
    with pytest.raises(UserError, match="frozen_bank"):
        here(*words, f"memory.path={other}", run_dir=tmp_path / "frozen")
