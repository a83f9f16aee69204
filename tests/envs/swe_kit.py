"""What the tests of env=swe share: two small instances in the bundled layout, their rows as of SWE-bench, a player."""

from __future__ import annotations

import difflib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from core.errors import UserError
from envs.swe.bubblewrap_words import check_bubblewrap
from envs.swe.data import Instance
from envs.swe.env import SUBMIT, SweEnv, make_sandbox
from envs.swe.evaluation import Result, resolve
from envs.swe.sandbox import Limits


def why_no_bubblewrap() -> str:
    try:
        check_bubblewrap()
    except UserError as error:
        return str(error)
    return ""


bubblewrap = pytest.mark.skipif(bool(why_no_bubblewrap()), reason=why_no_bubblewrap() or "it is here")

MEAN = "def mean(values):\n    return sum(values) / len(values)\n"
TOP = "def top(values, n):\n    values.sort()\n    return values[-n:]\n"
VISIBLE = "from {module} import {name}\n\n\ndef test_plain():\n    assert {call}\n"
# family, name: its source, visible call, fix, wrong fix, hidden tests
INSTANCES = {
    ("empty", "stats"): {
        "source": MEAN,
        "call": "mean([1, 3]) == 2",
        "gold": MEAN.replace("    return", "    if not values:\n        return None\n    return"),
        "wrong": MEAN.replace("    return", "    if not values:\n        return 0\n    return"),
        "hidden": "from mean import mean\n\n\ndef test_empty():\n    assert mean([]) is None\n\n\n"
        "def test_one():\n    assert mean([4]) == 4\n",
        "issue": "mean() of an empty list raises ZeroDivisionError\n\nI get a traceback where I expect no value.",
    },
    ("shared", "ranks"): {
        "source": TOP,
        "call": "top([3, 1, 2], 1) == [3]",
        "gold": TOP.replace("values.sort()", "values = sorted(values)"),
        "wrong": TOP.replace("values.sort()", "values = values[:1] or sorted(values)"),
        "hidden": "from top import top\n\n\ndef test_argument():\n    given = [3, 1, 2]\n    top(given, 2)\n"
        "    assert given == [3, 1, 2]\n\n\ndef test_two():\n    assert top([3, 1, 2], 2) == [2, 3]\n",
        "issue": "top() changes the list that I give it\n\nAfterwards my list is in another order.",
    },
}


def diff(path: str, before: str, after: str) -> str:
    new = "" if before else "new file mode 100644\n"
    names = (f"a/{path}" if before else "/dev/null", f"b/{path}")
    lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), *names)
    return f"diff --git a/{path} b/{path}\n{new}{''.join(lines)}"


def write_instances(folder: Path) -> Path:
    """Both in the layout of the bundled ones."""
    for (family, name), it in INSTANCES.items():
        module = it["source"][4:].partition("(")[0]
        here = folder / family / name
        (here / "repo" / "tests").mkdir(parents=True)
        (here / "repo" / f"{module}.py").write_text(it["source"])
        (here / "repo" / "conftest.py").write_text("")
        (here / "repo" / "tests" / "test_plain.py").write_text(
            VISIBLE.format(module=module, name=module, call=it["call"])
        )
        (here / "issue.md").write_text(it["issue"])
        for patch in ("gold", "wrong"):
            (here / f"{patch}.patch").write_text(diff(f"{module}.py", it["source"], it[patch]))
        (here / "test.patch").write_text(diff("tests/test_hidden.py", "", it["hidden"]))
        first, second = (f"tests/test_hidden.py::{line[4:-3]}" for line in it["hidden"].splitlines() if "def " in line)
        about = {"instance_id": f"{family}__{name}-1", "repo": f"bundled/{name}", "family": family, "hints": ""}
        about |= {"FAIL_TO_PASS": [first], "PASS_TO_PASS": [second, "tests/test_plain.py::test_plain"]}
        (here / "instance.json").write_text(json.dumps(about))
        (here.parent / "lesson.md").write_text(
            f"# How {family} is done here\n\nIn this house {family}\nis told by None.\n"
        )
    return folder


def rows(folder: Path) -> list[dict]:
    """The instances as rows of SWE-bench."""
    found = []
    for file in sorted(folder.glob("*/*/instance.json")):
        about, here = json.loads(file.read_text()), file.parent
        texts = {"patch": "gold.patch", "test_patch": "test.patch", "problem_statement": "issue.md"}
        row = {"instance_id": about["instance_id"], "repo": about["repo"], "base_commit": "0" * 40, "hints_text": ""}
        row |= {name: (here / path).read_text() for name, path in texts.items()}
        row |= {name: json.dumps(about[name]) for name in ("FAIL_TO_PASS", "PASS_TO_PASS")}
        found.append(row | {"version": "1.0", "created_at": "2024-01-01", "environment_setup_commit": "0" * 40})
    return found


def make(folder: Path, **keys) -> SweEnv:
    return SweEnv(instructions="Fix it.", max_steps=8, data=str(folder), **keys)


def attempt(env: SweEnv, *commands: str) -> tuple[list[str], float, dict]:
    """(observations, reward, the last info) of commands at the first task."""
    env.reset(env.tasks()[0])
    said = []
    for each in commands:
        observation, reward, _, info = env.step(each)
        said.append(observation)
    return said, reward, info


def apply(folder: Path, patch: str) -> str:
    """The command that applies the first instance's gold.patch or wrong.patch."""
    return f"git apply - <<'END'\n{(folder / 'empty' / 'stats' / f'{patch}.patch').read_text()}\nEND"


def inside(place: str) -> list[str]:
    """The names of this machine's processes that have a place, a part of its path, among their mounts."""
    found = []
    for mounts in Path("/proc").glob("[0-9]*/mountinfo"):
        try:
            if place in mounts.read_text():
                found.append(mounts.with_name("comm").read_text().strip())
        except OSError:
            continue
    return found


def play(messages, role, sample):
    """An engineer who knows its prompt alone: it looks, then fixes what a lesson names, or else guesses wrong."""
    if role == "judge":
        return 'Thoughts: it is submitted.\nStatus: "success"'
    if role == "extractor":
        return "```\n# Memory Item 1\n## Title None\n## Description A rule.\n## Content Empty is told by None.\n```"
    if role == "selector":
        return "1"
    turn = sum(message["role"] == "assistant" for message in messages)
    fixed = "None" if "told by None" in messages[0]["content"] else "0"
    guard = f"s/    return sum/    if not values: return {fixed}\\n    return sum/"
    fix = f"sed -i '{guard}; s/values.sort()/values = sorted(values)/'"
    first = "(setsid sleep 99 &) ; sleep 99" if os.environ.get("SWE_KIT_SLEEPS") else "ls -a && git log --oneline"
    tried = "echo 'while True: pass' >> mean.py" if os.environ.get("SWE_KIT_HANGS") else "git diff --stat"
    commands = [first, f"{fix} *.py && {tried}", SUBMIT]
    return f"THOUGHT: step {turn}.\n\n```bash\n{commands[min(turn, 2)]}\n```"


def resolved(patch: str, it: Instance, kind: str = "bwrap", source: str | None = None) -> Result:
    """Whether a patch solves an instance, found out in a sandbox of its own."""
    return resolve(make_sandbox(kind, Limits()), patch, it, source=source or str(it.folder), timeout_s=60)


ON_A_DISK = """
import os, sys
from pathlib import Path
from core.errors import InfraError
from envs.swe.env import make_sandbox
from envs.swe.sandbox import Limits
disk, tmp = Path(os.environ["TMPDIR"]), Path(sys.argv[1])
box = make_sandbox("bwrap", Limits())
def told(work, *words):
    try:
        print(work(*words))
    except InfraError as error:
        print(f"InfraError: {error}")
"""


def on_a_disk_of(mb: int, script: str, folder: Path, data: Path | None = None) -> list[str]:
    """What a script prints whose sandboxes lie on a disk of their own. It knows a box, the `disk`, and data as `tmp`.

    folder   for the disk; and for the script's data, where there is no other folder for them
    """
    disk = folder / "disk"
    disk.mkdir()
    root = ["--cap-add", "ALL"] if os.geteuid() == 0 else []
    words = ["bwrap", "--dev-bind", "/", "/", *root, "--size", str(mb << 20), "--tmpfs", str(disk)]
    repo, tests = Path(__file__).parents[2], Path(__file__).parent
    done = subprocess.run(
        [*words, sys.executable, "-c", ON_A_DISK + script, str(data or folder)],
        cwd=repo,
        env=os.environ | {"TMPDIR": str(disk), "PYTHONPATH": f"{repo}{os.pathsep}{tests}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


STAND_IN = '''#!{python}
"""A stand-in for docker: a container is a copy of a folder, and each command runs in bubblewrap on it."""
import os, shutil, subprocess, sys
from pathlib import Path
ROOT = Path(__file__).parent
words = sys.argv[1:]
with (ROOT / "log").open("a") as log:
    print(*words[:40], file=log)
if words[0] == "run":
    name, image = words[words.index("--name") + 1], words[words.index("-w") + 2]
    if not (ROOT / "images" / image).is_dir():
        sys.exit(f"Unable to find image {{image}}")
    shutil.copytree(ROOT / "images" / image, ROOT / name / "testbed")
    (ROOT / name / "given").mkdir()
    print("pulling ...", "ready", sep="\\n", flush=True)
    sys.stdin.buffer.read()
    shutil.rmtree(ROOT / name, ignore_errors=True)
elif words[0] == "rm":
    shutil.rmtree(ROOT / words[-1], ignore_errors=True)
elif words[0] == "exec":
    words, set_to = words[1:], {{}}
    while words[0].startswith("-"):
        if words[0] == "-e":
            key, _, set_to[key] = words[1].partition("=")
        words = words[1:] if words[0] == "-i" else words[2:]
    here = ROOT / words[0]
    if not here.is_dir():
        sys.exit(125)
    from envs.swe.bubblewrap_words import enter
    own = ["--bind", here / "testbed", "/testbed", "--bind", here / "given", "/given", "--tmpfs", "/tmp"]
    if os.geteuid() == 0:
        subprocess.run(["chown", "-R", "61000:61000", here], check=True)
    box = enter(61000, [*map(str, own), "--chdir", "/testbed"])
    script = "".join(f"export {{key}}={{value!r}}; " for key, value in set_to.items()) + 'exec "$@"'
    sys.exit(subprocess.run([*box, "bash", "-c", script, "bash", *words[1:]], check=False).returncode)
'''


def stand_in(folder: Path, program: str, instances: Path, image: str) -> Path:
    """A folder for PATH with a program that stands where docker or podman would; `image` with {id} names an image."""
    folder.mkdir()
    path = folder / program
    path.write_text(STAND_IN.format(python=sys.executable))
    path.chmod(0o755)
    for file in instances.glob("*/*/instance.json"):
        name = json.loads(file.read_text())["instance_id"].replace("__", "_1776_")
        testbed = folder / "images" / image.replace("{id}", name)
        shutil.copytree(file.parent / "repo", testbed)
        git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.com"]
        for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "base"]):
            subprocess.run([*git, *words], cwd=testbed, check=True)
    return folder
