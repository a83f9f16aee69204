"""The package as pip installs it: in an environment of its own, in an empty folder, every program works."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import hydra
import pytest
from conftest import REPO, TOY, read_json

BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"
SEES = "import sys; sys.path.append({!r})"  # the libraries of this environment, and not this checkout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """(the wheel, made from the source archive; the source archive)."""
    folder = tmp_path_factory.mktemp("built")
    subprocess.run([sys.executable, "-c", BUILD, "build_sdist", str(folder)], cwd=copied(folder), check=True)
    [archive] = folder.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(folder / "source", filter="data")
    [source] = (folder / "source").iterdir()
    subprocess.run([sys.executable, "-c", BUILD, "build_wheel", str(folder)], cwd=source, check=True)
    [wheel] = folder.glob("*.whl")
    return wheel, archive


def copied(folder):
    """The files that git knows: a build leaves others beside them."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=REPO, capture_output=True, check=True).stdout.split(b"\0")
    for name in filter(None, map(os.fsdecode, names)):
        if not name.startswith(("tests/", "docs/")) and (REPO / name).is_file():
            (folder / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "copy" / name).write_bytes((REPO / name).read_bytes())
    return folder / "copy"


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """A function that starts a program of the installed package in an empty folder."""
    place = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        place / "bin" / "python",
        "install",
        "-q",
        "--no-deps",
        "--no-index",
    ]
    subprocess.run([*pip, built[0]], check=True, env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"})
    [site] = place.glob("lib/*/site-packages")
    (site / "libraries.pth").write_text(SEES.format(str(Path(hydra.__file__).parents[1])))
    empty = tmp_path_factory.mktemp("empty")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    clean |= {
        "HOME": str(empty / "home"),
        "XDG_CACHE_HOME": str(empty / "cache"),
        "PATH": f"{place / 'bin'}:/usr/bin:/bin",
    }
    before = {path for path in site.rglob("*") if path.suffix != ".pyc"}

    def start(*words):
        done = subprocess.run(
            [place / "bin" / words[0], *words[1:]], cwd=empty, env=clean, capture_output=True, text=True
        )
        assert "Traceback" not in done.stdout + done.stderr, done.stdout + done.stderr
        added = {path for path in site.rglob("*") if path.suffix != ".pyc"} - before
        assert not {path for path in added if path.name != "__pycache__"}
        return done

    start.folder = empty
    return start


@pytest.fixture(scope="module")
def run_dirs(installed):
    """Two runs: by `reasoningbank eval`, and by `python -m main` with a configuration folder of one's own."""
    own = installed.folder / "own" / "arm"
    own.mkdir(parents=True)
    (own / "mine.yaml").write_text("# @package _global_\ndefaults:\n  - override /workflow: vanilla\n")
    eval_words = (*TOY, "limit=4", "run_dir=one")
    assert installed("reasoningbank", "eval", *eval_words).returncode == 0
    words = ("--config-dir", "own", *TOY, "arm=mine", "limit=4", "run_dir=two")
    assert installed("python", "-m", "main", *words).returncode == 0
    return installed.folder / "one", installed.folder / "two"


def test_the_archives_hold_what_a_user_needs_and_no_more(built):
    wheel, archive = built
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    code = "analysis config core envs hydra_plugins main.py mcp_server prompts scripts single_turn_bench workflows"
    assert {top for top in tops if not top.endswith(".dist-info")} == set(code.split())
    for name in (
        "config/config.yaml",
        "prompts/judge.jinja",
        "core/py.typed",
        "core/memory/ranking.py",
        "core/memory/sqlite/tables.sql",
        "core/models/minilm.onnx",
    ):
        assert name in names, name
    yaml = {path.relative_to(REPO).as_posix() for path in (REPO / "config").rglob("*.yaml")}
    assert yaml <= set(names)
    assert archive.stat().st_size < 5e6


def test_a_run_says_how_it_is_started_again(installed, run_dirs):
    again = installed("reasoningbank", "eval", *TOY, "limit=4", "run_dir=one")
    assert again.returncode == 0 and "reasoningbank eval " in again.stdout
    assert "reasoningbank -m" not in again.stdout
    assert read_json(run_dirs[0] / "summary.json")["n"] == read_json(run_dirs[1] / "summary.json")["n"] == 4


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("tables", "one", "two"), "mine"),
        (("report", "one", "two", "-o", "page.html"), "page.html"),
        (("compare", "two", "one"), "reasoningbank"),
        (("audit", "one", "-v"), "gold"),
        (("show", "one"), "toy/"),
        (("power", "--tasks", "140", "--seeds", "5"), "this study"),
        (("doctor", "--quick"), "packages"),
        (("bank", "stats", "one/bank.sqlite"), "records"),
        (("run", "--help"), "usage: reasoningbank"),
        (("serve", "--help"), "usage: reasoningbank"),
        (("tables", "--help"), "usage: reasoningbank tables"),
        (("eval", "--help"), "workflow"),
        (("--help",), "eval"),
    ],
)
def test_each_program_works(installed, run_dirs, words, says):
    done = installed("reasoningbank", *words)
    assert done.returncode in (0, 1) and says in done.stdout + done.stderr, done.stdout + done.stderr


def test_what_is_no_command_is_one_sentence(installed):
    done = installed("reasoningbank", "tabels", "one")
    assert done.returncode == 2 and done.stderr == (
        "error: tabels is no command: did you mean tables? `reasoningbank --help` lists them.\n"
    )


def test_fetched_data_lies_in_the_users_cache(installed):
    where = "import single_turn_bench.datasets as d; print(d.FETCHED)"
    found = Path(installed("python", "-c", where).stdout.strip())
    assert found == installed.folder / "cache" / "reasoningbank" / "data"
