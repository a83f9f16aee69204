"""The run of a stranger: what reads it builds nothing that its configuration names, and asks nothing of here."""

from __future__ import annotations

import ast
import shutil
from importlib import import_module

import pytest
import yaml
from conftest import REPO, read_json
from report_kit import called

from analysis.answer_page import commands
from analysis.evidence import env_class
from analysis.runs import read_run
from core.checksum import whole_json, whole_yaml

CANARY = "canary-5527-of-this-machine"
READERS = {
    "show": ("{one}",),
    "tables": ("{all}",),
    "report": ("{all}", "-o", "page.html"),
    "audit": ("{one}",),
    "compare": ("{one}", "{other}"),
    "export": ("{one}", "-o", "out"),
}


def hostile(value):
    """The same with a program of a stranger's in each place where a part is named."""
    if isinstance(value, dict):
        named = {"_target_": "of_a_stranger.run", "given": "${oc.env:CANARY}"} if "_target_" in value else {}
        return {key: hostile(each) for key, each in value.items()} | named
    return [hostile(each) for each in value] if isinstance(value, list) else value


@pytest.fixture
def runs(toy_runs, tmp_path):
    shutil.copytree(toy_runs, tmp_path / "runs")
    for path in (tmp_path / "runs").rglob("manifest.json"):
        path.write_text(whole_json(hostile(read_json(path))))
        for name in ("config.yaml", "hydra.yaml"):
            file = path.parent / ".hydra" / name
            file.write_text(whole_yaml(yaml.safe_dump(hostile(yaml.safe_load(file.read_text())))))
    (tmp_path / "of_a_stranger.py").write_text(
        f"import os\nopen({str(tmp_path / 'ran')!r}, 'w')\ndef run(*args, **given): open('ran', 'w')\n"
    )
    return tmp_path / "runs"


def test_nothing_of_a_strangers_configuration_is_built(runs, tmp_path, monkeypatch, capsys, subtests):
    monkeypatch.setenv("CANARY", CANARY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    one, other = sorted(path.parent for path in runs.rglob("manifest.json"))[:2]
    for reader, words in READERS.items():
        with subtests.test(reader):
            done = called(capsys, reader, *(word.format(one=one, other=other, all=runs) for word in words))
            assert done.stdout or done.returncode, done.stderr
            assert not (tmp_path / "ran").exists()
            left = [path.read_text(errors="replace") for path in tmp_path.glob("*.html")]
            assert CANARY not in "".join([done.stdout, done.stderr, *left])
    import_module("of_a_stranger").run()  # it could have been built
    assert (tmp_path / "ran").exists()


def test_the_words_of_a_strangers_sweep_are_read_as_they_stand(tmp_path, monkeypatch):
    monkeypatch.setenv("CANARY", CANARY)
    found = {"try": ["retrieval.top_k=3"], "looks": []}
    overrides = {"hydra": [], "task": ["env=toy", "limit=${oc.env:CANARY}"]}
    config = {"hydra": {"overrides": overrides}, "budget": {"run": {"calls": 5, "usd": None}}}
    (tmp_path / "multirun.yaml").write_text(yaml.safe_dump(config))
    [told] = commands(tmp_path, found)
    assert "${oc.env:CANARY}" in told and CANARY not in told
    for spoilt in ("hydra: [1]", "{", "hydra: {overrides: {hydra: 1, task: 2}}", ""):
        (tmp_path / "multirun.yaml").write_text(spoilt)
        assert commands(tmp_path, found) == found["try"]


@pytest.mark.parametrize(
    "named", ["envs.web.engine.import_module", "envs.swe.sandbox.Limits", "envs.no.such", "os.system"]
)
def test_what_a_strangers_run_calls_its_env_is_asked_only_if_it_is_one(named, toy_runs):
    run = read_run(next(toy_runs.rglob("manifest.json")).parent)
    assert env_class(run) is not None
    run.config["env"] = {"_target_": named}
    assert env_class(run) is None


def test_the_programs_that_read_runs_can_build_nothing():
    """By construction: neither they nor analysis/ import what instantiates a configuration, or resolves one."""
    harmless = {"core.build": {"ROLES", "LLMS"}, "core.make": {"option", "options", "part", "imported"}}
    harmless["hydra.core.override_parser.overrides_parser"] = {"OverridesParser"}  # parses the words of a command
    for file in [*(REPO / "analysis").rglob("*.py"), *(REPO / "scripts" / f"{name}.py" for name in READERS)]:
        for node in ast.walk(ast.parse(file.read_text())):
            names = {each.name for each in getattr(node, "names", ())}
            for module in [node.module or ""] if isinstance(node, ast.ImportFrom) else names:
                if module in harmless:
                    assert names <= harmless[module], (file, names)
                else:
                    assert module.partition(".")[0] not in ("hydra", "omegaconf", "workflows"), (file, module)
