"""An instance's repository in a sandbox, and whether a patch solves the instance: its tests on a fresh copy decide."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from core.errors import InfraError
from envs.swe.data import Instance
from envs.swe.sandbox import GIVEN, Sandbox, as_text, is_text

APPLY_S = 120.0
APPLY = f"git apply --whitespace=nowarn {GIVEN}/answer.patch || patch --batch --fuzz=5 -p1 -i {GIVEN}/answer.patch"
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
PASSED = re.compile(r"^PASSED (\S.*)$", re.MULTILINE)
BROKEN = re.compile(r"^ERROR (\S.*)$", re.MULTILINE)  # with a reason, and also of a test that passed before its end
# What makes the copy of a folder a repository with one commit, the same whenever and wherever it is made.
COMMIT = """
export GIT_AUTHOR_NAME=Maintainer GIT_AUTHOR_EMAIL=maintainer@example.com GIT_AUTHOR_DATE=2024-01-01T00:00:00Z
export GIT_COMMITTER_NAME=Maintainer GIT_COMMITTER_EMAIL=maintainer@example.com GIT_COMMITTER_DATE=2024-01-01T00:00:00Z
git init -q -b main . && printf '%s\\n' __pycache__/ '*.pyc' .pytest_cache/ > .git/info/exclude \
    && git add -A && git commit -q -m 'Initial commit'
"""


@dataclass(frozen=True, kw_only=True)
class Result:
    """The outcome of an evaluation.

    patch    applied | empty | does not apply
    failed   number of the instance's tests that did not pass
    killed   the limit at which the tests were killed, as for a command; "" for none
    """

    solved: bool
    patch: str
    failed: int = 0
    killed: str = ""


def begin(box: Sandbox, source: str, instance: Instance) -> None:
    """Open a sandbox with the instance's repository in it, as one commit where it comes from a folder.

    Raises InfraError where the disk has no room for what is to be done in it.
    """
    box.open(source)
    box.check_room()
    if instance.folder is not None and (ran := box.run(COMMIT, APPLY_S)).returncode != 0:
        why = f"it passes a limit ({ran.killed})" if ran.killed else ran.output.strip()[-500:]
        raise InfraError(f"{instance.id}: its repository could not be made: {why}")


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
        if found.patch != "empty":
            box.check_room()
        return found
    finally:
        box.close()


def _resolved(box: Sandbox, patch: str, instance: Instance, source: str, timeout_s: float) -> Result:
    begin(box, source, instance)
    box.give("answer.patch", patch)
    box.give("test.patch", instance.test_patch)
    if box.run(APPLY, APPLY_S).returncode != 0:
        return _unsolved(instance, "does not apply")
    if box.run(_put_tests(instance), APPLY_S).returncode != 0:  # the patch stands in their way
        return _unsolved(instance, "applied")
    needed = _needed(instance)
    files = shlex.join(sorted({name.partition("::")[0] for name in needed}))
    ran = box.run(f"python -m pytest -rpE --tb=no {files}", timeout_s)
    broken = BROKEN.findall(ran.output)
    passed = {name for name in PASSED.findall(ran.output) if not any(_is_of(line, name) for line in broken)}
    failed = len(needed - passed)
    return Result(solved=not failed and not ran.killed, patch="applied", failed=failed, killed=ran.killed)


def _is_of(line: str, name: str) -> bool:
    """Whether a line of pytest's summary, "NAME" or "NAME - REASON", is of this test."""
    return line == name or line.startswith(f"{name} - ")


def _unsolved(instance: Instance, patch: str) -> Result:
    return Result(solved=False, patch=patch, failed=len(_needed(instance)))


def _needed(instance: Instance) -> set[str]:
    return {*instance.tests[0], *instance.tests[1]}


def _put_tests(instance: Instance) -> str:
    """A command: files with tests as they were, those that were not there gone, then those of the test patch."""
    files = {name.partition("::")[0] for tests in instance.tests for name in tests}
    files |= set(re.findall(r"^(?:\+\+\+ b|--- a)/([^\t\n]+)", instance.test_patch, re.MULTILINE))
    lines = [
        f"if git cat-file -e HEAD:{name} 2>/dev/null; then git checkout -q HEAD -- {name}; else rm -rf -- {name}; fi"
        for name in map(shlex.quote, sorted(files))
    ]
    if instance.test_patch.strip():
        lines.append(f"git apply --whitespace=nowarn {GIVEN}/test.patch")
    return " && ".join(lines)
