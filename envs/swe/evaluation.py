"""An instance's repository in a sandbox, and whether a patch solves the instance: its tests on a fresh copy decide.

What steers the tests is the instance's own, and so is the program that runs them and reports how they end
(envs/swe/inside.py). Tests that must fail run before and after them: where one passes, the patch has tampered. So it
has where all tests pass and, on another fresh copy, pass once more although each now only raises an error.
"""

from __future__ import annotations

import json
import re
import secrets
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from core.errors import InfraError
from envs.swe.data import Instance
from envs.swe.inside import steers
from envs.swe.sandbox import GIVEN, TESTBED, Ran, Sandbox, as_text, is_text

APPLY_S = 120.0
INSIDE = Path(__file__).with_name("inside.py")
# Without -S a module of the repository may run before the program does.
KEEP, RESTORE = (f"python -I -S {GIVEN}/inside.py {name}" for name in ("keep", "restore"))
# git writes nothing into .git, and for patch there is none: a configuration there can name programs to run.
APPLY = f"""
{KEEP} || exit 2
git apply --whitespace=nowarn {GIVEN}/answer.patch && exit
rm -rf /tmp/.git-away && mv .git /tmp/.git-away || exit 2
patch --batch --fuzz=5 -p1 -i {GIVEN}/answer.patch
status=$?
rm -rf .git && mv /tmp/.git-away .git && exit $status
"""
# What git prints instead of the change of a file that it takes for binary, a UTF-16 text among them.
BINARY = re.compile(r"^Binary files .* differ$", re.MULTILINE)
# The same diff once more, with git's own binary form, which is ASCII: what was printed tells which diff it was.
WITH_BYTES = f"""
for of in --cached '' HEAD; do
    if git diff $of | cmp -s - {GIVEN}/submitted.patch; then
        {{prepare}}
        exec git diff $of --binary
    fi
done
exit 1
"""
NO_TEXT = "printf '* -diff\\n' >> $(git rev-parse --git-path info/attributes)"
# What tests that must fail do. They have the names of the instance's own, three of each file.
FAILS = ("assert 0 == 1", "raise RuntimeError('canary')", "raise AssertionError('canary')")
# At the end of a file with tests: those of these names fail, whatever is tested, and look as before to pytest.
MUST_FAIL = """

def _must_fail(place, names, seen):
    import functools

    def failing(test):
        @functools.wraps(test)
        def run(*args, **kwargs):
            raise AssertionError("this must fail")

        return run

    seen.append(place)
    for each in list(vars(place).values()):
        if isinstance(each, type) and each not in seen:
            _must_fail(each, names, seen)
    for name in names:
        if callable(getattr(place, name, None)):  # also one of a base class
            setattr(place, name, failing(getattr(place, name)))


_must_fail(__import__("sys").modules[__name__], {names}, [])
"""
# What makes the copy of a folder a repository with one commit, the same whenever and wherever it is made.
COMMIT = """
find . -name .git -prune -exec rm -rf {} +
export GIT_AUTHOR_NAME=Maintainer GIT_AUTHOR_EMAIL=maintainer@example.com GIT_AUTHOR_DATE=2024-01-01T00:00:00Z
export GIT_COMMITTER_NAME=Maintainer GIT_COMMITTER_EMAIL=maintainer@example.com GIT_COMMITTER_DATE=2024-01-01T00:00:00Z
git init -q -b main . && printf '%s\\n' __pycache__/ '*.pyc' .pytest_cache/ > .git/info/exclude \
    && git add -A && git commit -q --allow-empty -m 'Initial commit'
"""


@dataclass(frozen=True, kw_only=True)
class Result:
    """The outcome of an evaluation.

    patch      applied | empty | does not apply
    failed     number of the instance's tests that did not pass
    killed     the limit at which the tests were killed, as for a command; "" for none
    touched    files that the patch changed and that steer the tests: they were put back (inside.py)
    tampered   why the results are not those of the tests; "" for no reason. Such a patch solves nothing
    """

    solved: bool
    patch: str
    failed: int = 0
    killed: str = ""
    touched: tuple[str, ...] = ()
    tampered: str = ""


@dataclass(frozen=True, kw_only=True)
class Canaries:
    """Our own tests in a file beside the instance's, by their pytest names: `fail` must fail, `hold` must pass."""

    path: str
    text: str
    fail: frozenset[str]
    hold: frozenset[str]


def begin(box: Sandbox, source: str, instance: Instance) -> None:
    """Open a sandbox with the instance's repository in it, as one commit where it comes from a folder.

    Raises InfraError where the disk has no room for what is to be done in it.
    """
    box.open(source)
    box.check_room()
    if instance.folder is not None and (ran := box.run(COMMIT, APPLY_S)).returncode != 0:
        why = f"it passes a limit ({ran.killed})" if ran.killed else ran.output.strip()[-500:]
        raise InfraError(f"{instance.id}: its repository could not be made: {why}")


def put(placed: Iterable[str]) -> str:
    """A line for bash that puts the files of an `Outfit.placed` into the repository, after what is there already."""
    lines = [
        f"mkdir -p {shlex.quote(str(PurePosixPath(path).parent))}; "
        # A link becomes a file of its own, so that what it leads to stays as it is.
        f"[ ! -L {name} ] || {{ cat -- {name} > /tmp/.was 2>/dev/null; rm -f -- {name}; mv /tmp/.was {name}; }}; "
        f"{{ [ ! -s {name} ] || echo; cat {GIVEN}/placed_{number}; }} >> {name}"
        for number, (path, name) in enumerate((path, shlex.quote(path)) for path in placed)
    ]
    return "; ".join(lines) or ":"


def left_by(placed: Iterable[str]) -> str:
    """A command that prints the patch of what a program left in the repository, without what was `put` there.

    It reads the history as it was before (`Sandbox.wear`): the program may have written to .git, or removed it.
    """
    back = [f"git checkout -q HEAD -- {name} 2>/dev/null || rm -rf -- {name}" for name in map(shlex.quote, placed)]
    return f"""
export HOME=/nowhere GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_DIR=/tmp/.history GIT_WORK_TREE={TESTBED}
cd {TESTBED} && rm -rf $GIT_DIR && cp -r {GIVEN}/history $GIT_DIR || exit 1
{"; ".join(back) or ":"}
find . -mindepth 2 -name .git -prune -exec rm -rf {{}} +
git add -A && git diff --cached --binary
"""


def with_bytes(box: Sandbox, patch: str, *, ascii_only: bool = False) -> str:
    """A patch that was submitted in this sandbox, with the content of files of which git says only that they differ.

    ascii_only   also of files that are no UTF-8, for a program that takes only text

    Left as it is where it is no diff that git prints here by itself, such as one of a single file.
    """
    no_text = ascii_only and not is_text(patch)
    if not no_text and not BINARY.search(patch):
        return patch
    box.give("submitted.patch", patch)
    ran = box.run(WITH_BYTES.format(prepare=NO_TEXT if no_text else ":"), APPLY_S)
    return as_text(ran.data) if ran.returncode == 0 else patch


def resolve(box: Sandbox, patch: str, instance: Instance, *, source: str, timeout_s: float) -> Result:
    """Apply a patch and then the instance's tests to a fresh copy, and run them.

    Files that the tests stand in are the instance's, whatever the patch makes of them.

    box         not open yet; it is closed afterwards
    source      of the copy, as for `begin`
    timeout_s   time limit of the tests

    Raises InfraError where the disk is full, even for a patch that solves the instance: if only failures were left out
    then, the success rate would be too high.
    """
    try:
        found = _resolved(box, patch, instance, source, timeout_s) if patch.strip() else _unsolved(instance, "empty")
        if found.solved:
            found = _confirmed(found, box, patch, instance, source, timeout_s)
        if found.patch != "empty":
            box.check_room()
        return found
    finally:
        box.close()


def _confirmed(found: Result, box: Sandbox, patch: str, instance: Instance, source: str, timeout_s: float) -> Result:
    """A solution that stands: the same tests, under the same names, fail where they must.

    What makes the instance's tests pass by their names or files, and leaves our own alone, makes these pass, too.
    """
    again = _resolved(box, patch, instance, source, timeout_s, must_fail=True)
    if again.killed:
        return replace(again, solved=False)
    return found if not again.tampered else replace(found, solved=False, tampered=again.tampered)


def _resolved(
    box: Sandbox, patch: str, instance: Instance, source: str, timeout_s: float, *, must_fail: bool = False
) -> Result:
    begin(box, source, instance)
    box.give("inside.py", INSIDE.read_text(encoding="utf-8"))
    box.give("answer.patch", patch)
    box.give("test.patch", instance.test_patch)
    box.give("steering.patch", _steering_of(instance))
    if box.run(APPLY, APPLY_S).returncode != 0:
        return _unsolved(instance, "does not apply")
    nonce = secrets.token_hex(16)
    files = sorted({name.partition("::")[0] for name in _needed(instance)})
    canaries = [_canaries(instance, file, f"{nonce[:8]}{place}") for place, file in enumerate((files[0], files[-1]))]
    for place, each in enumerate(canaries):
        box.give(f"canaries_{place}", each.text)
    put = []
    if must_fail:
        for place, file in enumerate(files):
            names = sorted({name.rpartition("::")[2] for name in _functions(instance) if name.startswith(f"{file}::")})
            box.give(f"must_fail_{place}", MUST_FAIL.replace("{names}", repr(names)))
            put.append(f"cat {GIVEN}/must_fail_{place} >> {shlex.quote(file)}")
    put += [f"cp {GIVEN}/canaries_{place} {shlex.quote(each.path)}" for place, each in enumerate(canaries)]
    ran = box.run(f"set -e; {RESTORE}; {_put_tests(instance)}; {'; '.join(put)}", APPLY_S)
    if ran.returncode != 0:  # the patch stands in their way
        return _unsolved(instance, "applied")
    restored = json.loads(ran.output.splitlines()[0])
    given = {"nonce": nonce, "mixed": [name for name in restored["mixed"] if name not in _files_of(instance)]}
    words = shlex.join([canaries[0].path, *files, canaries[1].path])
    alone = "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 " * (instance.folder is not None)  # an image has the plug-ins it needs
    command = f"{alone}exec python {GIVEN}/inside.py pytest -rpE --tb=no --maxfail=0 {words}"
    ran = box.run(command, timeout_s, json.dumps(given))
    report = _report(ran.data, nonce)
    if must_fail:
        return _refuted(instance, report, ran)
    return _result(instance, report, canaries, ran, tuple(restored["touched"]))


def _refuted(instance: Instance, report: dict | None, ran: Ran) -> Result:
    """What the report of tests that must fail comes to."""
    functions = _functions(instance)
    passed = {name for name in report["passed"] if name.partition("[")[0] in functions} if report else set()
    why = ""
    if report is None:
        why = "the tests were ended before there was a result, where all must fail"
    elif passed:
        why = f"tests of the instance passed where they must fail ({len(passed)})"
    return Result(solved=False, patch="applied", killed=ran.killed, tampered="" if ran.killed else why)


def _result(
    instance: Instance, report: dict | None, canaries: list[Canaries], ran: Ran, touched: tuple[str, ...]
) -> Result:
    """What a report comes to. None: the tests were ended before there was one."""
    passed, failed = (set(report[name]) if report else set() for name in ("passed", "failed"))
    left = len(_needed(instance) - passed)
    must_fail, must_hold = (frozenset().union(*(getattr(each, name) for each in canaries)) for name in ("fail", "hold"))
    why = ""
    if fooled := sorted(must_fail & passed):
        why = f"tests that must fail passed ({len(fooled)} of {len(must_fail)})"
    elif report is None and ran.returncode == 0:
        why = "the tests were ended before there was a result, as if all were well"
    elif not left and (must_fail - failed or must_hold - passed):
        why = "tests of ours did not end as they must"
    elif not left and report["patched"]:
        why = f"functions of pytest were replaced: {', '.join(report['patched'][:3])}"
    solved = not left and not ran.killed and not why
    return Result(solved=solved, patch="applied", failed=left, killed=ran.killed, touched=touched, tampered=why)


def _report(data: bytes, nonce: str) -> dict | None:
    lines = [line for line in data.split(b"\n") if line.startswith(nonce.encode())]
    try:  # of two, one is forged
        return json.loads(lines[0][len(nonce) :]) if len(lines) == 1 else None
    except ValueError:  # another process printed in between
        return None


def _canaries(instance: Instance, file: str, mark: str) -> Canaries:
    """Tests beside a file of the instance's, with names from it: what makes those pass makes these pass, too.

    A test class of pytest's own is one of unittest here, which is collected whatever its name.
    """
    path = str(PurePosixPath(file).with_name(f"test_{mark}.py"))
    mine = sorted(name for name in _needed(instance) if name.partition("::")[0] == file)
    names = dict.fromkeys(tuple(name.partition("[")[0].split("::")[1:]) for name in mine)
    names = [each for each in names if all(part.isidentifier() for part in each)]
    fail = [each for each in names if len(each) == 1 or (len(each) == 2 and each[1].startswith("test"))][:3]
    lines = ["import unittest", f"class TestOurs{mark}(unittest.TestCase):", "    def test_hold(self): pass"]
    lines.append(f"    def test_fail(self): {FAILS[0]}")
    for each, body in zip(fail, FAILS, strict=False):
        if len(each) == 1:
            lines.append(f"def {each[0]}(): {body}")
        else:
            lines += [f"class {each[0]}(unittest.TestCase):", f"    def {each[1]}(self): {body}"]
    # of two methods of one class the later class stands
    kept = {each[0]: each for each in fail}.values()
    return Canaries(
        path=path,
        text="\n".join(lines) + "\n",
        fail=frozenset("::".join((path, *each)) for each in (*kept, (f"TestOurs{mark}", "test_fail"))),
        hold=frozenset({f"{path}::TestOurs{mark}::test_hold"}),
    )


def _steering_of(instance: Instance) -> str:
    """The parts of the gold patch that change what steers the tests: these are the instance's own, too."""
    parts = re.split(r"^(?=diff --git )", instance.gold, flags=re.MULTILINE)
    named = [(re.match(r"diff --git a/(\S+)", part), part) for part in parts]
    return "".join(part for found, part in named if found and steers(found[1]))


def _unsolved(instance: Instance, patch: str) -> Result:
    return Result(solved=False, patch=patch, failed=len(_needed(instance)))


def _functions(instance: Instance) -> set[str]:
    """The pytest names, without parameters, of the needed tests that are Python functions: no doctests or others."""
    names = {name.partition("[")[0] for name in _needed(instance)}
    return {name for name in names if re.fullmatch(r".*\.py(::[^\W\d]\w*)+", name)}


def _needed(instance: Instance) -> set[str]:
    return {*instance.tests[0], *instance.tests[1]}


def _files_of(instance: Instance) -> set[str]:
    """The files that tests stand in, and those that the test patch changes."""
    files = {name.partition("::")[0] for name in _needed(instance)}
    return files | set(re.findall(r"^(?:\+\+\+ b|--- a)/([^\t\n]+)", instance.test_patch, re.MULTILINE))


def _put_tests(instance: Instance) -> str:
    """A command: files with tests as they were, those that were not there gone, then those of the test patch."""
    lines = [
        f"if git cat-file -e HEAD:{name} 2>/dev/null; then git checkout -q HEAD -- {name}; else rm -rf -- {name}; fi"
        for name in map(shlex.quote, sorted(_files_of(instance)))
    ]
    if _steering_of(instance):
        lines.insert(0, f"git apply --whitespace=nowarn {GIVEN}/steering.patch")
    if instance.test_patch.strip():
        lines.append(f"git apply --whitespace=nowarn {GIVEN}/test.patch")
    return "; ".join(lines)
