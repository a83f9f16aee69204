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

BUILD = "import sys; from hatchling import build; getattr(build, sys.argv[1])(sys.argv[2])"
SEES = "import sys; sys.path.append({!r})"  # the libraries of this environment, and not this checkout
# Packages of somebody else in the same environment, with the names of this project's folders.
OTHERS = "analysis config core envs main mcp_server prompts scripts workflows".split()


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
    pip = [sys.executable, "-m", "pip", "--python", place / "bin" / "python", "install", "-q", "--no-deps"]
    wheels = [built[0], wheel_of_others(place)]
    subprocess.run([*pip, "--no-index", *wheels], check=True, env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"})
    [site] = place.glob("lib/*/site-packages")
    (site / "libraries.pth").write_text(SEES.format(str(Path(hydra.__file__).parents[1])))
    empty = tmp_path_factory.mktemp("empty")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    clean |= {"HOME": str(empty / "home"), "XDG_CACHE_HOME": str(empty / "cache")}
    clean |= {"PATH": f"{place / 'bin'}:/usr/bin:/bin"}
    before = {path for path in site.rglob("*") if path.suffix != ".pyc"}

    def start(*words):
        done = subprocess.run(
            [place / "bin" / words[0], *words[1:]], cwd=empty, env=clean, capture_output=True, text=True
        )
        assert "Traceback" not in done.stdout + done.stderr, done.stdout + done.stderr
        added = {path for path in site.rglob("*") if path.suffix != ".pyc"} - before
        assert not {path for path in added if path.name != "__pycache__"}
        return done

    start.folder, start.site = empty, site
    return start


def wheel_of_others(folder):
    """A wheel that owns the packages OTHERS; each says in OWNER that it is not ours."""
    wheel, about = folder / "others-1.0-py3-none-any.whl", "others-1.0.dist-info"
    files = {f"{name}/__init__.py": "OWNER = 'others'\n" for name in OTHERS}
    files[f"{about}/METADATA"] = "Metadata-Version: 2.1\nName: others\nVersion: 1.0\n"
    files[f"{about}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{about}/RECORD"] = "".join(f"{name},,\n" for name in (*files, f"{about}/RECORD"))
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return wheel


@pytest.fixture(scope="module")
def run_dirs(installed):
    """Two runs: by `reasoningbank eval`, and by `python -m` with a configuration folder of one's own."""
    own = installed.folder / "own" / "arm"
    own.mkdir(parents=True)
    (own / "mine.yaml").write_text("# @package _global_\ndefaults:\n  - override /workflow: vanilla\n")
    eval_words = (*TOY, "limit=4", "run_dir=one")
    assert installed("reasoningbank", "eval", *eval_words).returncode == 0
    words = ("--config-dir", "own", *TOY, "arm=mine", "limit=4", "run_dir=two")
    assert installed("python", "-m", "reasoningbank_harness", "eval", *words).returncode == 0
    return installed.folder / "one", installed.folder / "two"


def test_the_archives_hold_what_a_user_needs_and_no_more(built):
    wheel, archive = built
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {"reasoningbank_harness"}
    inside = {name.removeprefix("reasoningbank_harness/") for name in names}
    tops = {name.partition("/")[0] for name in inside if ".dist-info/" not in name}
    code = "analysis config core envs hydra_plugins main.py mcp_server prompts scripts single_turn_bench workflows"
    assert tops == {*code.split(), "__init__.py", "__main__.py"}
    for name in (
        "config/config.yaml",
        "prompts/judge.jinja",
        "core/py.typed",
        "core/memory/ranking.py",
        "core/memory/sqlite/tables.sql",
        "core/models/minilm.onnx",
        "mcp_server/foreign/claude_flow.yaml",
        "single_turn_bench/warmup.jsonl",
    ):
        assert name in inside, name
    for folder in ("config", "envs/swe/bundled"):
        files = {path for path in (REPO / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts}
        assert {path.relative_to(REPO).as_posix() for path in files} <= inside
    assert archive.stat().st_size < 5e6


def test_it_lies_beside_packages_of_the_same_names(installed):
    pip = [sys.executable, "-m", "pip", "--python", installed.site.parents[2] / "bin" / "python", "show", "-f"]
    done = subprocess.run([*pip, "reasoningbank-harness"], capture_output=True, text=True, check=True)
    files = [line.strip() for line in done.stdout.partition("Files:\n")[2].splitlines()]
    tops = {file.partition("/")[0] for file in files if not file.startswith("../")}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"reasoningbank_harness"}
    commands = {Path(file).name for file in files if file.startswith("../")}
    assert commands == {"reasoningbank", "reasoningbank-mcp", "reasoningbank-harness"}
    theirs = f"import {', '.join(OTHERS)}; print({', '.join(f'{name}.OWNER' for name in OTHERS)})"
    assert installed("python", "-c", theirs).stdout.split() == ["others"] * len(OTHERS)


def test_a_program_embeds_a_bank(installed):
    """And its own `core` and `workflows` stay its own."""
    script = """
import sys
before = set(sys.modules)
from reasoningbank_harness import open_bank
new = {name.partition(".")[0] for name in set(sys.modules) - before}
assert new <= {"reasoningbank_harness", *sys.stdlib_module_names}, new
import core
with open_bank("mine.sqlite", "embedder=hashing") as bank:
    bank.add("fix a flaky test", "Seed", "Set the seed before the first draw.")
    print(bank.retrieve("fix a flaky test").lessons[0].content, core.OWNER)
"""
    assert installed("python", "-c", script).stdout == "Set the seed before the first draw. others\n"


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
        (("serve", "--help"), "usage: reasoningbank"),
        (("questions", "validate", "warmup"), "warmup"),
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


@pytest.mark.parametrize("launcher", ["joblib", "submitit_local"])
def test_the_processes_of_a_launcher_find_it(installed, launcher):
    pytest.importorskip(f"hydra_plugins.hydra_{launcher.removesuffix('_local')}_launcher")
    words = ("limit=2", "seed=0,1", f"hydra/launcher={launcher}", f"run_dir={launcher}")
    done = installed("reasoningbank", "eval", "-m", *TOY, *words)
    assert done.returncode == 0 and "2 tasks x 2 seeds" in done.stdout, done.stdout + done.stderr


def test_fetched_data_lies_in_the_users_cache(installed):
    where = "import sys; from reasoningbank_harness.__main__ import APPLICATION; sys.path.insert(0, str(APPLICATION)); "
    where += "import single_turn_bench.datasets as d; print(d.FETCHED)"
    found = Path(installed("python", "-c", where).stdout.strip())
    assert found == installed.folder / "cache" / "reasoningbank" / "data"
