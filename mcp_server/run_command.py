"""A command run by `reasoningbank run`: given the lessons, its output streaming through, what it printed kept."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from core.errors import UserError
from core.models.reply_text import without_surrogates
from core.redact import redactor

HEAD, TAIL = 20_000, 180_000  # bytes kept of what the command prints, from its beginning and its end
LINGER_S = 2.0  # wait for output of processes that the command left in the background
LONGEST = 120_000  # bytes of a variable: Linux starts nothing that is given one over 128 KiB


@dataclass(kw_only=True)
class CommandResult:
    """The result of the command: its exit status as a shell reports it, and its output, cut in the middle.

    started    False: the system could not start it, so nothing was attempted
    too_long   the command line with the lessons was too long for the system (E2BIG): it was run with their file only
    """

    status: int
    output: str
    errors: str
    duration_s: float
    started: bool = True
    too_long: bool = False


def with_memory(task: str, memory: str) -> str:
    """The prompt: the lessons, then the task; without lessons the task alone."""
    return f"{memory}\n\nTask: {task}" if memory else task


def passes(check: str, folder: str, within_s: float) -> bool:
    """Whether a check, a command line of the shell, exits with 0; what it prints goes to stderr.

    within_s   UserError for a check that takes longer
    """
    how = {"shell": True, "cwd": folder, "stdout": sys.stderr, "start_new_session": True}
    with subprocess.Popen(check, **how) as process:
        try:
            return process.wait(within_s) == 0
        except BaseException as why:  # also Ctrl-C, which a session of its own does not hear
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(why, subprocess.TimeoutExpired):
                raise UserError(f"--check took longer than {within_s:g} s (--check-timeout).") from None
            raise


def run_command(
    command: list[str], plain: list[str], task: str, memory: str, stdin: str | None, out: IO[str]
) -> CommandResult:
    """Run a command, streaming its output through and passing on signals that end this process.

    plain   the command without lessons: run instead, with only the lessons' file, if `command` is too long (E2BIG)
    stdin   memory | prompt: what the command gets on stdin; None: this process's stdin
    out     where its stdout goes
    """
    with tempfile.TemporaryDirectory(prefix="reasoningbank-") as folder:
        file = Path(folder) / "memory.md"
        file.write_text(memory, encoding="utf-8", newline="\n")
        ours = {"REASONINGBANK_MEMORY": memory, "REASONINGBANK_MEMORY_FILE": str(file), "REASONINGBANK_TASK": task}
        others = {name: value for name, value in os.environ.items() if name not in ours}
        ours = {name: value for name, value in ours.items() if len(os.fsencode(value)) <= LONGEST}
        fed = {"memory": memory, "prompt": with_memory(task, memory), None: None}[stdin]
        given = None if fed is None else subprocess.PIPE
        began, too_long = time.monotonic(), False

        def start(words: list[str], env: dict[str, str]) -> subprocess.Popen:
            return subprocess.Popen(words, env=env, stdin=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

        try:
            try:
                process = start(command, others | ours)
            except OSError as error:
                if error.errno != errno.E2BIG:
                    raise
                few = {name: value for name, value in ours.items() if name.endswith("_FILE")}
                process, too_long = start(plain, others | few), True
        except OSError as error:
            print(f"reasoningbank run: {command[0]}: {error.strerror}", file=sys.stderr)
            status = 127 if isinstance(error, FileNotFoundError) else 126
            return CommandResult(status=status, output="", errors="", duration_s=0, started=False)
        with passing_signals(process):
            kept = [HeadAndTail(), HeadAndTail()]
            threads = [
                threading.Thread(target=copy, args=(process.stdout, out, kept[0]), daemon=True),
                threading.Thread(target=copy, args=(process.stderr, sys.stderr, kept[1]), daemon=True),
            ]
            for thread in threads:
                thread.start()
            if fed is not None:
                with suppress(BrokenPipeError), process.stdin:
                    process.stdin.write(fed.encode())
            status = process.wait()
            for thread in threads:
                thread.join(LINGER_S)
    status = 128 - status if status < 0 else status
    output, errors, took = kept[0].text(), kept[1].text(), time.monotonic() - began
    return CommandResult(status=status, output=output, errors=errors, duration_s=took, too_long=too_long)


@contextmanager
def passing_signals(process: subprocess.Popen) -> Iterator[None]:
    """Pass SIGTERM and SIGHUP on to the command, and ignore SIGINT: a Ctrl-C reaches the command by itself."""

    def pass_on(number: int, frame: Any) -> None:
        with suppress(ProcessLookupError):
            process.send_signal(number)

    passed_on = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]  # Windows lacks one
    before = {number: signal.signal(number, pass_on) for number in passed_on}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(kw_only=True)
class HeadAndTail:
    """The beginning and the end of a stream."""

    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    n: int = 0  # bytes that came

    def add(self, data: bytes) -> None:
        self.n += len(data)
        room = HEAD - len(self.head)
        self.head += data[:room]
        self.tail += data[max(room, 0) :]
        if len(self.tail) > 2 * TAIL:
            del self.tail[:-TAIL]

    def text(self) -> str:
        """What was kept, without known secrets: lessons are made of it, and the result holds it."""
        middle = b"\n[...]\n" if self.n > HEAD + TAIL else b""
        kept = (bytes(self.head) + middle + bytes(self.tail[-TAIL:])).decode("utf-8", "replace")
        return redactor().values(without_surrogates(kept))


def copy(source: IO[bytes], target: IO[str], kept: HeadAndTail) -> None:
    """Copy the command's output to `target` and into `kept` as it comes; go on draining it if `target` is closed."""
    while data := source.read1(65536):
        kept.add(data)
        with suppress(OSError, ValueError):
            target.buffer.write(data)
            target.buffer.flush()
