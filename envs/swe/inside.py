"""Runs in the sandbox, by the interpreter that is there (3.6 or newer), before and around the tests of a patch.

    inside.py keep                    before the patch: copy what steers the tests (STEERING, MIXED)
    inside.py restore                 after it: put that back; print what the patch had changed of it, as JSON
    inside.py pytest ARGUMENTS        run pytest, and report which tests passed; stdin: {"nonce": TEXT, "mixed": [PATH]}

The report is a line of the output that begins with the nonce. No argument, environment variable or file holds the
nonce, so a line that the code under test prints is none. That code runs in this process all the same: see
docs/security.md for what it could do by looking for the nonce in memory.
"""

import importlib
import json
import os
import pkgutil
import re
import shutil
import sys

KEPT, PATCHED = ".git/kept", ".git/patched"
# The instance's own version counts, whatever the patch makes of these files.
STEERING = re.compile(
    r"(conftest\.py|\.?pytest\.(ini|toml)|(site|user)customize(\.py|\.pyc|/.*)|\.gitattributes|.*\.pth"
    r"|[^/]*\.(dist|egg)-info/entry_points\.txt)"
)
# They also hold what a fix may change: pytest reads the instance's version, everything else the patch's.
MIXED = ("pyproject.toml", "setup.cfg", "tox.ini")
# What pytest is made of. A patch's new module of such a name, in a folder that Python looks in, would stand in its way.
OURS = "pytest _pytest pluggy iniconfig packaging pygments py exceptiongroup tomli attr unittest doctest pdb".split()
RESULTS = "_pytest.runner _pytest.reports _pytest.python _pytest.unittest _pytest.skipping _pytest.outcomes".split()
RESULTS += ["pluggy", "pluggy._callers", "pluggy._manager", "pluggy._hooks", "unittest.case"]


def steers(path):
    """Whether a file of this path steers tests."""
    name, last = os.path.basename(path), "/".join(path.split("/")[-2:])
    return name in MIXED or bool(STEERING.fullmatch(name) or STEERING.fullmatch(last))


def steering():
    """(paths that steer the tests, paths of modules with names of pytest's own), below the current folder."""
    found, shadows = set(), set()
    for folder, folders, files in os.walk("."):
        if folder == ".":
            folders[:] = [name for name in folders if name != ".git"]
        if "__pycache__" in folders:  # what is in it would be taken for the source beside it
            shutil.rmtree(os.path.join(folder, "__pycache__"), ignore_errors=True)
            folders.remove("__pycache__")
        for name in files + [each for each in folders if os.path.islink(os.path.join(folder, each))]:
            path = os.path.relpath(os.path.join(folder, name))
            if steers(path):
                found.add(path)
        if folder in (".", "./src", "./lib"):
            modules = [name for name in files if name.endswith((".py", ".pyc", ".so"))]
            modules += [name for name in folders if has_init(os.path.join(folder, name))]
            names = [name for name in modules if name.split(".")[0] in OURS]
            shadows |= {os.path.relpath(os.path.join(folder, name)) for name in names}
    return found, shadows


def has_init(folder):
    return any(name.startswith("__init__.") for name in os.listdir(folder))


def keep():
    found, shadows = steering()
    for path in found:
        move(path, os.path.join(KEPT, path), copy)
    with open(os.path.join(".git", "shadows"), "w", encoding="utf-8", newline="\n") as file:
        json.dump(sorted(shadows), file)


def restore():
    """Print {"touched": [PATH], "mixed": [PATH]}: what the patch changed of what steers the tests."""
    with open(os.path.join(".git", "shadows"), encoding="utf-8") as file:
        before = set(json.load(file))
    found, shadows = steering()
    kept = {os.path.relpath(os.path.join(folder, name), KEPT) for folder, _, names in os.walk(KEPT) for name in names}
    touched = [path for path in sorted(found | kept) if content(path) != content(os.path.join(KEPT, path))]
    for path in touched:
        if os.path.basename(path) in MIXED:
            move(path, os.path.join(PATCHED, path), os.replace)
        remove(path)
        move(os.path.join(KEPT, path), path, copy)
    for path in shadows - before:
        remove(path)
    mixed = [path for path in touched if os.path.basename(path) in MIXED]
    print(json.dumps({"touched": sorted([*touched, *(shadows - before)]), "mixed": mixed}))


def content(path):
    if os.path.islink(path):
        return "link", os.readlink(path)
    if not os.path.isfile(path):
        return None
    with open(path, "rb") as file:
        return os.access(path, os.X_OK), file.read()


def move(source, target, how):
    """Where there is a source. how: copies or moves a file."""
    if os.path.islink(source) or os.path.isfile(source):
        folder = target
        while folder:
            folder = os.path.dirname(folder)
            if folder and os.path.lexists(folder) and not os.path.isdir(folder):
                os.remove(folder)  # a file that the patch put where the folder was
        os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
        how(source, target)


def copy(source, target):
    shutil.copy2(source, target, follow_symlinks=False)


def remove(path):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.remove(path)


class Outcomes:
    """A plug-in of pytest that notes how each test ends, and gives `mixed` files back to the patch."""

    def __init__(self, mixed):
        self.mixed, self.passed, self.failed, self.config = mixed, set(), set(), None

    def pytest_sessionstart(self, session):
        self.config = session.config  # it is read: from now on the files are those of the patch
        for path in self.mixed:
            remove(path)
            move(os.path.join(PATCHED, path), path, os.replace)

    def pytest_runtest_logreport(self, report):
        name = self.config.cwd_relative_nodeid(report.nodeid)
        if report.outcome == "failed":
            self.failed.add(name)
        elif report.when == "call" and report.outcome == "passed" and not hasattr(report, "wasxfail"):
            self.passed.add(name)


def codes():
    """{name: code} of the functions that make, carry and note the result of a test."""
    found = {}
    for module in RESULTS:
        for name, each in list(vars(sys.modules.get(module)).items()) if module in sys.modules else ():
            if (getattr(each, "__module__", None) or "").split(".")[0] in OURS:
                parts = vars(each).items() if isinstance(each, type) else [("", each)]
                found.update({f"{module}.{name}.{part}": getattr(one, "__code__", None) for part, one in parts})
    return {name: code for name, code in found.items() if code is not None}


def run(arguments):
    output = os.dup(1)  # before pytest captures what is printed
    write, dumps = os.write, json.dumps
    told = json.loads(sys.stdin.read())
    sys.path.pop(0)
    import pytest

    for each in pkgutil.iter_modules(sys.modules["_pytest"].__path__, "_pytest."):
        importlib.import_module(each.name)
    for name in ("unittest.mock", "doctest", "pdb", "difflib", "pprint", "asyncio"):
        importlib.import_module(name)
    before = codes()
    sys.path.insert(0, os.getcwd())  # only now: a module of the repository is none of pytest's
    sys.argv[:] = [pytest.__file__, *arguments]
    outcomes = Outcomes(told.get("mixed", ()))
    status = int(pytest.main(arguments, plugins=[outcomes]))
    after = codes()
    patched = sorted(name for name in before if after.get(name) is not before[name])
    found = {"passed": sorted(outcomes.passed - outcomes.failed), "failed": sorted(outcomes.failed), "patched": patched}
    line = f"\n{told['nonce']}{dumps(found)}\n".encode()
    while line:
        line = line[write(output, line) :]
    return status


if __name__ == "__main__":
    if sys.argv[1] == "pytest":
        sys.exit(run(sys.argv[2:]))
    {"keep": keep, "restore": restore}[sys.argv[1]]()
