"""The interface of a sandbox, in which alone a model's commands run, and the code that its two kinds share.

    box = make_sandbox("bwrap", Limits())   # of envs/swe/env.py, by env.sandbox
    box.check()                             # UserError where it cannot be had
    box.open(source)                        # a copy of a folder, or an image, at /testbed
    ran = box.run("ls", timeout_s=60)       # each command in a bash of its own
    box.close()

bwrap: namespaces of the kernel, no daemon, no image (envs/swe/bubblewrap.py). docker, podman: an image that holds the
repository (envs/swe/container.py).
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from select import select
from typing import BinaryIO, Protocol

from core.errors import UserError
from core.outfit import Outfit

TESTBED = "/testbed"
GIVEN = "/given"  # files for a command that the agent does not write (`Sandbox.give`)
FREE_MB = 512  # on the disk that is written to; with less nothing goes on
POLL_S = 0.25  # between two looks at what a command uses; more where a look takes long
HANG_UP_S = 10.0  # what was killed hangs up at once; the wait is for a machine under load
CHUNK = 1 << 16
ESCAPED = re.compile("[\ud800-\udfff]")
NO_BYTE = re.compile("[\ud800-\udc7f\udd00-\udfff]")  # the surrogates that `as_text` never makes
LONGEST = 100_000  # bytes of a command; the kernel takes no argument above 131 072
# What every command finds in its environment: no pager, and nothing written beside the sources.
ENVIRONMENT = {
    "LANG": "C.UTF-8",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTEST_ADDOPTS": "-p no:cacheprovider --color=no",
    "GIT_AUTHOR_NAME": "Engineer",
    "GIT_AUTHOR_EMAIL": "engineer@example.com",
    "GIT_COMMITTER_NAME": "Engineer",
    "GIT_COMMITTER_EMAIL": "engineer@example.com",
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "safe.directory",
    "GIT_CONFIG_VALUE_0": TESTBED,
}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Resource limits of one command, including all processes that it starts.

    memory_mb   of all together; in bwrap also of each process's address space, but not for agent=command
    processes   max. number at the same time
    file_mb     max. size of a file
    disk_mb     of the copy of the repository and /tmp together; where they are larger already, they must not grow.
                A command that passes it may be over before that is seen; then no more can be written until enough is
                removed
    files       likewise: max. number of files
    output_mb   max. size of stdout and stderr
    """

    memory_mb: int = 2048
    processes: int = 128
    file_mb: int = 256
    disk_mb: int = 1024
    files: int = 50_000
    output_mb: int = 16

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise UserError(f"env.limits.{name}={value}: give a whole number of at least 1.")


@dataclass(frozen=True, kw_only=True)
class Ran:
    """The result of a command.

    output       stdout and stderr, for a reader: bytes that are no UTF-8 are replaced
    data         the same, as they came
    returncode   None if it was killed
    killed       the limit at which it was killed: time | memory | disk | files | output; "" for none
    refused      True: the command could not be passed to bash, and nothing ran
    """

    output: str
    returncode: int | None
    killed: str = ""
    refused: bool = False
    data: bytes = field(default=b"", repr=False)


class Sandbox(Protocol):
    """Not thread-safe, except `close` and `abort`. InfraError where the sandbox itself breaks, or its machine's disk is
    full: neither is the agent's failure.
    """

    def check(self) -> None:
        """Raises UserError where such a sandbox cannot be had here."""
        ...

    def open(self, source: str) -> None:
        """Begin afresh with a copy of a folder (bwrap), or with an image; what was there is gone."""
        ...

    def run(self, command: str, timeout_s: float, told: str = "", outfit: Outfit | None = None) -> Ran:
        """A command in a bash of its own, in TESTBED. What it started ends with it, or at the latest at `close`.

        told     its input, at most 4 kB (of a pipe): in no argument, variable or file that other processes may read
        outfit   what it finds there besides: the one that it was made to `wear`
        """
        ...

    def wear(self, outfit: Outfit) -> None:
        """Prepare for agent=command, before anything runs. In bwrap GIVEN/history is a copy of .git from then on, which
        no command can change."""
        ...

    def give(self, name: str, text: str) -> None:
        """Put a file at GIVEN/name, out of the reach of a command that has not begun yet. text: as of `as_text`."""
        ...

    def close(self) -> None:
        """End it, with what is running, and remove what it held. Idempotent."""
        ...

    def abort(self) -> None:
        """From another thread: kill what is running. For good: `open` and `run` raise InfraError from now on."""
        ...

    def check_room(self) -> None:
        """Raises InfraError where the disk that it writes to is full: what failed in it may have failed by that."""
        ...


def as_text(data: bytes) -> str:
    """Bytes as a text from which `as_bytes` makes the same bytes. JSON can hold it: the byte E9 is `\\udce9`."""
    return data.decode("utf-8", "surrogateescape")


def as_bytes(text: str) -> bytes:
    """The bytes that `as_text` has read. Of other lone surrogates, which stand for no byte, each is a question mark."""
    return NO_BYTE.sub("?", text).encode("utf-8", "surrogateescape")


def is_text(text: str) -> bool:
    """Whether it stands for nothing but UTF-8 without a null byte."""
    return "\x00" not in text and not ESCAPED.search(text)


def unusable(command: str) -> Ran | None:
    """The message for a command that cannot be passed to bash; None for all others."""
    why = "it holds a null byte" if "\x00" in command else None if command.strip() else "it is empty"
    try:
        if len(command.encode()) > LONGEST:
            why = f"it is longer than {LONGEST} bytes"
    except UnicodeEncodeError:
        why = "it is not Unicode text"
    return why and Ran(output=f"bash: the command cannot be run: {why}\n", returncode=126, refused=True)


def said_to(text: str) -> BinaryIO:
    """A process's input that holds a text, and then ends."""
    read, write = os.pipe()
    with os.fdopen(write, "wb") as file:
        file.write(text.encode())
    return os.fdopen(read, "rb")


def ran_as(data: bytes, code: int, killed: str) -> Ran:
    """The result of a command that was started. code: its exit status, which does not count if it was killed."""
    output = data.decode("utf-8", "replace")
    return Ran(output=output, data=data, returncode=None if killed else code, killed=killed)


def collect(
    process: subprocess.Popen, timeout_s: float, most: int, watch: Callable[[], str], kill: Callable[[], None]
) -> tuple[bytes, str]:
    """Wait for a process: (what it printed, the limit at which it was killed or "").

    most    max. bytes of output
    watch   measures the process: returns the limit that it has exceeded, or ""
    kill    ends it, with all that it started
    """
    with process.stdout:
        return _collected(process, timeout_s, most, watch, kill)


def _collected(
    process: subprocess.Popen, timeout_s: float, most: int, watch: Callable[[], str], kill: Callable[[], None]
) -> tuple[bytes, str]:
    found, killed, hung_up = bytearray(), "", False
    now = time.monotonic()
    end, look = now + timeout_s, now + POLL_S
    while not (hung_up and process.poll() is not None):
        wait = max(0.0, min(end, look) - now)
        if hung_up:  # it closed its output and works on
            time.sleep(min(wait, 0.02))
        elif select([process.stdout], [], [], wait)[0]:
            chunk = os.read(process.stdout.fileno(), CHUNK)
            hung_up = not chunk
            found += chunk if len(found) <= most else b""
        now = time.monotonic()
        if killed:
            if now >= end:
                break
            continue
        killed = "output" if len(found) > most else "time" if now >= end else ""
        if not killed and now >= look:
            killed = watch()
            look = time.monotonic() + max(POLL_S, 4 * (time.monotonic() - now))
        if killed:
            kill()
            end = look = now + HANG_UP_S
    return bytes(found[:most]), killed
