"""docs/tutorial.md: every command of it is run, in its order, in a fresh clone."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.latency_server import running
from benchmarks.walk import commands, fresh_clone, names_for, rule_for, rules, walk

FOUND = list(commands("docs/tutorial.md"))
NOT_RUN = ("make setup", "vllm serve")  # the suite has its .venv, and a server of its own


def test_only_the_installation_and_the_server_are_not_run():
    skipped = [each.text for each in FOUND if rule_for(each, rules()).skip]
    assert [text for text in skipped if not text.startswith(NOT_RUN)] == []
    assert len(FOUND) - len(skipped) >= 14


def test_every_command_works(tmp_path, capsys):
    clone = fresh_clone(tmp_path / "reasoningbank", setup=False)
    with running(0.01) as server:
        names = names_for(server, clone)
        assert len(Path(names["QUESTIONS"]).read_text().splitlines()) == 3
        failed = walk(FOUND, clone, rules(), names)
    assert failed == 0, capsys.readouterr().out
    assert len(list((clone / "outputs" / "mine").glob("*/summary.json"))) == 4  # two arms with two of the five seeds
    assert json.loads(next((clone / "outputs").rglob("verdict.json")).read_text())["question"]["arm"] == "reasoningbank"
