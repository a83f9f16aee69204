"""env.sandbox=bwrap: a command sees no network, no process but its own, no environment but ours, a read-only system,
its copy of a repository at /testbed, and a /tmp of its own. It ends with everything that it started.

The kernel limits how large a process and a file are and how many processes there are, and, where it can be had, the
memory of all of them (envs/swe/cgroup.py); what they use together is also watched (envs/swe/usage.py).
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from select import select

from core.errors import InfraError, StopRun, UserError
from core.file_lock import FileLock, try_lock
from core.outfit import RELAY, Outfit
from core.process import removed_with_us
from envs.swe.bubblewrap_words import FILTER, SCRIPTS, check_bubblewrap, enter
from envs.swe.cgroup import MemoryGroup, memory_group
from envs.swe.sandbox import (
    GIVEN,
    HANG_UP_S,
    TESTBED,
    Limits,
    Ran,
    Sandbox,
    as_bytes,
    collect,
    ran_as,
    said_to,
    unusable,
)
from envs.swe.usage import MEASURE_S, UNMEASURED, TooSlow, UsageWatch, check_room, passed, usage

PREFIX, LOCK = "reasoningbank-sandbox-", ".lock"
PLACES = ("testbed", "tmp", "given", "scripts")  # below the folder of a sandbox


class FirstProcess:
    """The first process in a sandbox: all others there end with it, and before it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        try:
            self._handle = os.pidfd_open(pid)  # the number alone may be another's by the time that it is used
        except ProcessLookupError:  # it was a short command
            self._handle = None

    def kill(self) -> None:
        if self._handle is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def end(self) -> None:
        """Kill it, and wait until it is gone."""
        if self._handle is not None:
            self.kill()
            select([self._handle], [], [], HANG_UP_S)
            os.close(self._handle)
            self._handle = None


@dataclass(kw_only=True)
class Bubblewrap(Sandbox):
    """Milliseconds a command; each has its own namespaces, and only files stay from one to the next.

    Where root starts it, its commands run as an ordinary user with a number of its own: no limit holds for root.
    """

    limits: Limits
    _folder: Path | None = field(default=None, init=False, repr=False)
    _lock: FileLock | None = field(default=None, init=False, repr=False)  # held as long as the folder is in use
    _uid: int = field(default=0, init=False, repr=False)
    _given: tuple[int, int] = field(default=(0, 0), init=False, repr=False)  # bytes and files of the repository
    _used: tuple[int, int] = field(default=(0, 0), init=False, repr=False)  # likewise, of all that is there now
    _process: subprocess.Popen | None = field(default=None, init=False, repr=False)
    _aborted: bool = field(default=False, init=False, repr=False)
    _closing: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)
    _remover: ExitStack = field(default_factory=ExitStack, init=False, repr=False)  # for when the harness is killed
    _group: MemoryGroup | None = field(default=None, init=False, repr=False)  # None where none can be had

    def check(self) -> None:
        check_bubblewrap()

    def open(self, source: str) -> None:
        self.close()
        if self._aborted:
            raise InfraError("aborted")
        remove_left_over()
        made = False
        try:
            self._make(source)
            made = True
        except OSError as error:  # a full disk above all
            raise InfraError(f"the sandbox could not be made: {_why(error, source)}") from error
        finally:
            if not made:  # what was copied until then must not keep the disk full
                self.close()

    def give(self, name: str, text: str) -> None:
        path = self._open_folder() / "given" / name
        try:
            path.write_bytes(as_bytes(text))
            path.chmod(0o644)
        except OSError as error:
            raise InfraError(f"{GIVEN}/{name} could not be written: {error.strerror}") from error

    def wear(self, outfit: Outfit) -> None:
        try:
            there = self._open_folder() / "given" / "history"
            shutil.copytree(self._open_folder() / "testbed" / ".git", there, dirs_exist_ok=True)
            subprocess.run(["chmod", "-R", "a+rX", "--", str(there)], check=False)  # whatever the umask
        except OSError as error:
            raise InfraError(f"the repository's history could not be kept: {error.strerror}") from error

    def run(self, command: str, timeout_s: float, told: str = "", outfit: Outfit | None = None) -> Ran:
        if (refused := unusable(command)) is not None:
            return refused
        folder = self._open_folder()
        kills = self._group.kills() if self._group else 0
        process, first = self._start(command, folder, told, outfit)
        watch = UsageWatch(
            limits=self.limits, root=first.pid, folder=folder, before=self._used, group=self._group, kills=kills
        )
        try:
            data, killed = collect(process, timeout_s, self.limits.output_mb << 20, watch, first.kill)
        finally:  # what the command left running must not be there any more when we are back
            first.end()
            code = process.wait()
        if self._folder is None:
            raise InfraError("the sandbox was closed while a command ran in it")
        self._used = usage(folder, MEASURE_S)  # with what was written since the last look; there may have been none
        over = "memory" if watch.starved() else watch.written(self._used)
        if killed == UNMEASURED and not over:
            raise TooSlow("this machine is too slow: what a command writes could not be measured while it ran")
        killed = over if killed == UNMEASURED else killed or over
        return ran_as(data, code, killed)

    def close(self) -> None:
        with self._closing:  # Ctrl-C closes what another thread is working with, and perhaps closing
            folder, self._folder = self._folder, None
            lock, self._lock = self._lock, None
            remover, self._remover = self._remover, ExitStack()
            group, self._group = self._group, None
        if folder is None:
            return
        self._kill()
        remove(folder)
        if folder.exists():  # what was killed was still writing
            time.sleep(0.2)
            remove(folder)
        remover.close()
        if group is not None:
            group.close()
        if lock is not None:
            lock.close()

    def abort(self) -> None:
        self._aborted = True
        self._kill()

    def check_room(self) -> None:
        check_room(self._open_folder())

    def _kill(self) -> None:
        if (process := self._process) is not None and process.poll() is None:
            process.kill()  # --die-with-parent: all inside ends with it

    def _open_folder(self) -> Path:
        if self._aborted:
            raise InfraError("aborted")
        if (folder := self._folder) is None:
            raise InfraError("no sandbox is open")
        return folder

    def _make(self, source: str) -> None:
        """A new folder with all that a sandbox has of its own, locked."""
        folder = self._folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        try:
            self._group = memory_group(folder.name, self.limits.memory_mb << 20)
            self._remover.enter_context(removed_with_us(folder, self._group and self._group.folder))
            self._fill(folder, source)
            check_room(folder)
            self._used = self._given = usage(folder, MEASURE_S)
        finally:
            if self._folder is None:  # another thread closed it, but not what was copied since
                remove(folder)
                raise InfraError("aborted")

    def _fill(self, folder: Path, source: str) -> None:
        lock = folder / f"{LOCK}.new"  # locked before others can find it by its name
        self._lock = FileLock(lock)
        self._lock.take()
        lock.replace(folder / LOCK)
        shutil.copytree(source, folder / "testbed", symlinks=True)
        for name in PLACES[1:]:
            (folder / name).mkdir()
        program = folder / "scripts" / "pytest"
        program.write_text('#!/bin/sh\nexec python -m pytest "$@"\n', encoding="utf-8", newline="\n")
        program.chmod(0o755)
        for name in PLACES:  # whatever the repository's folder and the umask allow: inside may be another user
            (folder / name).chmod(0o755)
        if os.geteuid() == 0:
            self._uid = 60_000 + random.SystemRandom().randrange(5_000)
            for place in (folder / "testbed", folder / "tmp"):
                for path in (place, *place.rglob("*")):
                    os.chown(path, self._uid, self._uid, follow_symlinks=False)

    def _start(
        self, command: str, folder: Path, told: str, outfit: Outfit | None
    ) -> tuple[subprocess.Popen, FirstProcess]:
        """(bubblewrap, the first process inside)."""
        import fcntl

        read, low = os.pipe()
        write = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, FILTER + 1)  # not the number of the filter
        os.close(low)
        with os.fdopen(read, "rb") as report, said_to(told) as source:
            try:
                full = bool(passed(self.limits, self._used, self._given))
                kept = limited(self.limits, may_write=not full, address_space=outfit is None)
                grouped = self._group.enter() if self._group else []
                binds = [*_binds(folder), *_worn(outfit), "--info-fd", str(write)]
                words = [*grouped, *enter(self._uid, binds), *kept, command]
                # a session of its own: Ctrl-C is for the harness, which then closes its sandboxes
                process = self._process = subprocess.Popen(
                    words,
                    stdin=source.fileno(),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    pass_fds=[write],
                    start_new_session=True,
                    env={},
                    bufsize=0,
                )
            except OSError as error:
                raise InfraError(f"bubblewrap: {error}") from error
            finally:
                os.close(write)
            if self._aborted:  # before there was anything to kill
                process.kill()
            info = report.read()
        try:
            return process, FirstProcess(json.loads(info)["child-pid"])
        except ValueError as error:  # it ended before it had reported all
            with process.stdout:
                said = process.stdout.read().decode("utf-8", "replace").strip()
            process.wait()
            why = "the sandbox was closed" if self._folder is None else f"bubblewrap did not start: {said[:500]}"
            raise InfraError(why) from error


def _binds(folder: Path) -> list[str]:
    testbed, tmp, given, scripts = (str(folder / name) for name in PLACES)
    written = ["--bind", testbed, TESTBED, "--bind", tmp, "/tmp"]
    return [*written, "--ro-bind", given, GIVEN, "--ro-bind", scripts, SCRIPTS, "--chdir", TESTBED]


def _worn(outfit: Outfit | None) -> list[str]:
    """Options for what an agent's program finds besides. Raises UserError for what it may not read."""
    if outfit is None:
        return []
    words = []
    for place in map(Path, outfit.shows):
        needed = 0o005 if place.is_dir() else 0o004
        if os.geteuid() == 0 and place.stat().st_mode & needed != needed:
            raise UserError(f"agent.shows: as root the program runs as another user, who may not read {place}.")
        for parent in reversed(place.parents[:-1]):  # of a folder that it makes by itself bwrap bars all other users
            words += ["--perms", "0755", "--dir", str(parent)]
        words += ["--ro-bind", str(place), str(place)]
    words += ["--ro-bind", outfit.relay, RELAY] if outfit.relay else []
    return words + [word for name, value in outfit.variables.items() for word in ("--setenv", name, value)]


def _why(error: OSError, source: str) -> str:
    """In a line, without the names of this machine's folders; of a copy that failed in many places the first."""
    if isinstance(error, shutil.Error) and isinstance(error.args[0], list):
        path, _, said = error.args[0][0]
        return f"{str(said).partition(': ')[0]} ({os.path.relpath(path, source)})"
    return error.strerror or type(error).__name__


def remove(folder: Path) -> None:
    """By coreutils, which follow no link and mind no depth; a command may have made a folder unreadable."""
    if os.geteuid() != 0:
        subprocess.run(["chmod", "-R", "u+rwX", "--", str(folder)], capture_output=True, check=False)
    subprocess.run(["rm", "-rf", "--", str(folder)], capture_output=True, check=False)


def remove_left_over() -> None:
    """The folders of sandboxes that were killed together with their remover: nobody holds their lock."""
    for lock in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{LOCK}"):
        with suppress(StopRun, OSError):  # another user's
            if held := try_lock(lock):  # else it is in use
                with closing(held):
                    remove(lock.parent)


def limited(limits: Limits, *, may_write: bool = True, address_space: bool = True) -> list[str]:
    """The words that run what follows them, one word, by bash under the limits of the kernel.

    may_write       False: no file can grow, but files can be removed
    address_space   whether it is limited; JavaScript's runtimes reserve many times what they use
    """
    memory, size = limits.memory_mb << 10 if address_space else "unlimited", limits.file_mb << 10 if may_write else 0
    kept = f"ulimit -c 0; ulimit -u {limits.processes}; ulimit -v {memory}; ulimit -f {size}"
    return ["bash", "-c", f'{{ {kept}; }} 2>/dev/null; exec bash -c "$1"', "bash"]  # a limit that is lower stays
