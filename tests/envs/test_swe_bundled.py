"""The bundled repositories of env=swe: every patch applied, every test run, without an environment or a sandbox."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import REPO

BUNDLED = REPO / "envs/swe/bundled"
INSTANCES = sorted(path.parent for path in BUNDLED.glob("*/*/instance.json"))
FAMILIES = ("aliasing", "boundaries", "encoding", "exceptions")
# Words that only somebody who knows the family's convention would use.
TELLING = {
    "aliasing": ("deepcopy", "deep cop", "shallow"),
    "boundaries": ("half-open", "[start, end)", "belongs", "does not overlap", "inclusive", "exclusive"),
    "encoding": ("NFC", "normalize", "byte order mark", "accents are kept", "forward slash"),
    "exceptions": ("chained", "__cause__", "half done", "as it was before", "swallow", "change state last"),
}
REPORTED = re.compile(r"^(PASSED|FAILED|ERROR) (tests/\S+)", re.MULTILINE)
ADDED = re.compile(r"^diff --git a/(\S+) b/(\S+)\n(new file mode)?", re.MULTILINE)


def of(folder: Path) -> dict:
    return json.loads((folder / "instance.json").read_text(encoding="utf-8"))


def files_of(folder: Path) -> dict[str, str]:
    """{path: text} of a repository as the agent sees it."""
    repo = folder / "repo"
    paths = (path for path in sorted(repo.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(repo)): path.read_text(encoding="utf-8") for path in paths}


def alone() -> dict[str, str]:
    """Of this machine's settings a child process gets the path to programs and nothing else."""
    quiet = {"PYTHONDONTWRITEBYTECODE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    return {"PATH": os.environ["PATH"], **quiet}


# Importing pytest takes longer than these tests do, so it is done once: a process of its own for each copy.
EACH = """
import os, sys
import pytest
for place in sys.argv[1:]:
    if os.fork() == 0:
        os.chdir(place)
        os.dup2(os.open("../" + os.path.basename(place) + ".txt", os.O_WRONLY | os.O_CREAT), 1)
        code = pytest.main(["-p", "no:cacheprovider", "-q", "-rA", "--tb=no", "tests"])
        sys.stdout.flush()
        os._exit(code)
    os.wait()
"""


def outcomes(folder: Path, states: dict[str, tuple[str, ...]], place: Path) -> list[dict[str, str]]:
    """[{test: PASSED | FAILED | ERROR}] in fresh copies, each with the patches of a state."""
    env = alone() | {"GIT_CEILING_DIRECTORIES": str(place)}
    for state, patches in states.items():
        shutil.copytree(folder / "repo", place / state, ignore=shutil.ignore_patterns("__pycache__"))
        words = ["git", "apply", "-p1", *(str(folder / f"{name}.patch") for name in patches)]
        subprocess.run(words, cwd=place / state, env=env, check=True, capture_output=True)
    words = [sys.executable, "-c", EACH, *(str(place / state) for state in states)]
    subprocess.run(words, cwd=place, env=env, check=True, timeout=60)
    told = [(place / f"{state}.txt").read_text() for state in states]
    return [{test: word for word, test in REPORTED.findall(text)} for text in told]


def solved(instance: dict, results: dict[str, str]) -> bool:
    return all(results.get(test) == "PASSED" for test in instance["FAIL_TO_PASS"] + instance["PASS_TO_PASS"])


@pytest.mark.parametrize("folder", INSTANCES, ids=lambda folder: f"{folder.parent.name}-{folder.name}")
def test_only_the_gold_patch_solves_it(folder, tmp_path):
    instance = of(folder)
    states = {"empty": ("test",), "gold": ("gold", "test"), "wrong": ("wrong", "test")}
    empty, gold, wrong = outcomes(folder, states, tmp_path)
    fails, passes = instance["FAIL_TO_PASS"], instance["PASS_TO_PASS"]
    assert fails and passes and not set(fails) & set(passes)
    assert {*empty} == {*gold} == {*fails, *passes}, "every test of the copy is named, once"
    # The repository as it is, which is what an empty patch leaves: its tests run, none breaks while it is collected.
    assert {test: empty[test] for test in fails} == dict.fromkeys(fails, "FAILED")
    assert {test: empty[test] for test in passes} == dict.fromkeys(passes, "PASSED")
    assert not solved(instance, empty)
    assert solved(instance, gold)
    assert not solved(instance, wrong)
    assert all(wrong.get(test) == "PASSED" for test in passes if not hidden(folder, test)), "visible tests are kept"


def hidden(folder: Path, test: str) -> bool:
    return f"b/{test.split('::')[0]}\n" in (folder / "test.patch").read_text(encoding="utf-8")


def test_four_families_of_six():
    assert [folder.parent.name for folder in INSTANCES] == [family for family in FAMILIES for _ in range(6)]
    for folder in INSTANCES:
        code = [text for path, text in files_of(folder).items() if path.endswith(".py") and "tests/" not in path]
        assert all(hidden(folder, test) for test in of(folder)["FAIL_TO_PASS"])
        assert sum(len(text.splitlines()) > 3 for text in code) >= 3, f"{folder.name}: the fault has to be found"


def test_patches_touch_what_they_may():
    for folder in INSTANCES:
        texts = {name: (folder / f"{name}.patch").read_text(encoding="utf-8") for name in ("gold", "wrong", "test")}
        files = {name: ADDED.findall(text) for name, text in texts.items()}
        assert all(old == new and new.startswith("tests/") and added for old, new, added in files["test"])
        here = files_of(folder)
        for name in ("gold", "wrong"):
            assert files[name]
            assert all(old == new and new in here and "tests/" not in new and not a for old, new, a in files[name])
        assert texts["gold"] != texts["wrong"]


def grams(text: str, size: int = 5) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[start : start + size]) for start in range(len(words) - size + 1)}


@pytest.mark.parametrize("family", FAMILIES)
def test_no_repository_tells_its_convention(family):
    lesson = (BUNDLED / family / "lesson.md").read_text(encoding="utf-8")
    title, _, rest = lesson.partition("\n")
    assert title and 40 < len(rest.split()) < 120
    assert sum(word.lower() in lesson.lower() for word in TELLING[family]) >= 3
    for folder in (BUNDLED / family).iterdir():
        if not folder.is_dir():
            continue
        seen = files_of(folder) | {"issue.md": (folder / "issue.md").read_text(encoding="utf-8")}
        for path, text in seen.items():
            told = [word for word in TELLING[family] if word.lower() in text.lower()]
            assert not told, f"{folder.name}/{path}"
            assert not grams(text) & grams(lesson), f"{folder.name}/{path}"
            assert "lesson" not in text.lower(), f"{folder.name}/{path}"
