"""Every command of the pages is run, in order, in a fresh clone; what the walk finds, and how it fails."""

from __future__ import annotations

import json
import re
from functools import partial
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

import typed
from conftest import REPO

from benchmarks.latency_server import running
from benchmarks.walk import Command, Rule, commands, fresh_clone, names_for, pages, rule_for, rules, walk
from scripts.reasoningbank import COMMANDS, OF_SERVER

FOUND = [each for page in pages() for each in commands(page)]


def test_every_command_of_the_pages_works(tmp_path, capsys):
    """In processes forked from one that has imported the clone, whose own forkserver.py is that process."""
    clone = fresh_clone(tmp_path / "reasoningbank", setup=False)
    spec = spec_from_file_location("forkserver_of_the_clone", clone / "tests" / "forkserver.py")
    spec.loader.exec_module(server_of_clone := module_from_spec(spec))
    with running(0.01) as server:
        names = names_for(server, clone)
        assert len(Path(names["QUESTIONS"]).read_text().splitlines()) == 3
        failed = walk(FOUND, clone, rules(), names, partial(typed.run, server_of_clone))
    assert failed == 0, capsys.readouterr().out
    assert len(list((clone / "outputs" / "mine").glob("*questions*/summary.json"))) == 4  # of the tutorial
    assert json.loads((clone / "outputs" / "long" / "summary.json").read_text())["n"] == 2


def test_it_reads_every_page_and_the_six_lines_from_a_server_to_a_report():
    assert pages()[0] == "README.md"
    assert {path.relative_to(REPO).as_posix() for path in (REPO / "docs").glob("*.md")} <= {*pages()}
    first = [each.text.split()[0] for each in FOUND[:6]]
    assert first == ["make", "vllm", "reasoningbank", "python", "reasoningbank", "reasoningbank"]
    assert not any("#" in each.text or each.text.endswith("\\") for each in FOUND if each.page == "README.md")


def test_of_the_tutorial_only_the_installation_and_the_server_are_not_run():
    skipped = [each.text for each in FOUND if each.page == "docs/tutorial.md" and rule_for(each, rules()).skip]
    assert [text for text in skipped if not text.startswith(("pip install", "vllm serve"))] == []


def test_no_rule_is_stale():
    known = rules()
    used = {id(rule) for each in FOUND if (rule := rule_for(each, known)) in known}
    assert [rule.match for rule in known if id(rule) not in used] == []


def test_a_rule_adds_words_or_puts_names_in_their_place():
    assert Rule(match="main.py", add="limit=2").applied("python main.py env=toy") == "python main.py env=toy limit=2"
    assert Rule(match=r"(show) RUN", run=r"\1 outputs/mine").applied("show RUN") == "show outputs/mine"
    assert rule_for(Command(page="", line=1, text="make setup"), rules()).why_not
    assert Rule(match="", needs="json no_such_thing").why_not == "needs no_such_thing"


def test_every_module_that_the_docs_start_is_there():
    named = {m for page in pages() for m in re.findall(r"python -m ([\w.]+)", (REPO / page).read_text("utf-8"))}
    assert "benchmarks.recall" in named
    assert [name for name in sorted(named) if find_spec(name) is None] == []


def test_every_command_word_of_the_pages_is_one():
    words = {each.text.split()[1] for each in FOUND if each.text.split()[0].endswith("reasoningbank")}
    assert len(words) > 10 and words <= {*COMMANDS, *OF_SERVER}


def test_a_command_that_fails_is_counted_and_shown(tmp_path, capsys):
    folder = tmp_path / "clone"
    folder.mkdir()
    made = [Command(page="a.md", line=n, text=text) for n, text in enumerate(("true", "echo sorry && exit 3"), start=1)]
    assert walk(made, folder, [], {}) == 1
    said = capsys.readouterr().out
    assert "a.md:1" in said and "FAILED (3)" in said and "\nsorry\n" in said
