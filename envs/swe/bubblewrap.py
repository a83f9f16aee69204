"""env.sandbox=bwrap: a command sees no network, no process but its own, no environment but ours, a read-only system,
its copy of a repository at /testbed, and a /tmp of its own. It ends with everything that it started.

The kernel limits how large a process and a file are and how many processes there are; what all of them use together is
watched while the command runs (envs/swe/usage.py).
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from select import select

from core.errors import InfraError, StopRun, UserError
from core.file_lock import FileLock, try_lock
from envs.swe.sandbox import (
    ENVIRONMENT,
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
from envs.swe.seccomp import filter_file
from envs.swe.usage import MEASURE_S, UNMEASURED, TooSlow, UsageWatch, check_room, passed, usage

ROOT = Path(__file__).resolve().parents[2]
TOOLS = "/opt/tools"  # pytest, as a library
SCRIPTS = "/opt/scripts"  # pytest, as a program
PYTHON = "/opt/python"  # the interpreter, where it does not lie in /usr
SHM_MB = 64
OLDEST = (0, 8)
APT = "apt-get install -y bubblewrap"
FILTER = 9  # the descriptor from which bubblewrap reads the filter of system calls
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
    _remover: subprocess.Popen | None = field(default=None, init=False, repr=False)  # for when the harness is killed

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

    def run(self, command: str, timeout_s: float, told: str = "") -> Ran:
        if (refused := unusable(command)) is not None:
            return refused
        folder = self._open_folder()
        process, first = self._start(command, folder, told)
        watch = UsageWatch(limits=self.limits, root=first.pid, folder=folder, before=self._used)
        try:
            data, killed = collect(process, timeout_s, self.limits.output_mb << 20, watch, first.kill)
        finally:  # what the command left running must not be there any more when we are back
            first.end()
            code = process.wait()
        if self._folder is None:
            raise InfraError("the sandbox was closed while a command ran in it")
        self._used = usage(folder, MEASURE_S)  # with what was written since the last look; there may have been none
        over = watch.written(self._used)
        if killed == UNMEASURED and not over:
            raise TooSlow("this machine is too slow: what a command writes could not be measured while it ran")
        killed = over if killed == UNMEASURED else killed or over
        return ran_as(data, code, killed)

    def close(self) -> None:
        with self._closing:  # Ctrl-C closes what another thread is working with, and perhaps closing
            folder, self._folder = self._folder, None
            lock, self._lock = self._lock, None
            remover, self._remover = self._remover, None
        if folder is None:
            return
        self._kill()
        remove(folder)
        if folder.exists():  # what was killed was still writing
            time.sleep(0.2)
            remove(folder)
        if remover is not None:
            remover.kill()
            remover.wait()
            remover.stdin.close()
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
            self._remover = remover_of(folder)
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

    def _start(self, command: str, folder: Path, told: str) -> tuple[subprocess.Popen, FirstProcess]:
        """(bubblewrap, the first process inside)."""
        import fcntl

        read, low = os.pipe()
        write = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, FILTER + 1)  # not the number of the filter
        os.close(low)
        with os.fdopen(read, "rb") as report, said_to(told) as source:
            try:
                full = bool(passed(self.limits, self._used, self._given))
                kept = limited(self.limits, may_write=not full)
                words = [*enter(self._uid, [*_binds(folder), "--info-fd", str(write)]), *kept, command]
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


def remover_of(folder: Path) -> subprocess.Popen:
    """A process that removes a folder when this one ends, however it does: its input ends then."""
    script = 'cat; sleep 0.5; chmod -R u+rwX -- "$1"; rm -rf -- "$1" || { sleep 2; rm -rf -- "$1"; }'
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(
        ["sh", "-c", script, "sh", str(folder)], stdin=subprocess.PIPE, cwd="/", start_new_session=True, **quiet
    )


def remove_left_over() -> None:
    """The folders of sandboxes that were killed together with their remover: nobody holds their lock."""
    for lock in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{LOCK}"):
        with suppress(StopRun, OSError):  # another user's
            if held := try_lock(lock):  # else it is in use
                with closing(held):
                    remove(lock.parent)


def limited(limits: Limits, *, may_write: bool = True) -> list[str]:
    """The words that run what follows them, one word, by bash under the limits of the kernel.

    may_write   False: no file can grow, but files can be removed
    """
    memory, size = limits.memory_mb << 10, limits.file_mb << 10 if may_write else 0
    kept = f"ulimit -c 0; ulimit -u {limits.processes}; ulimit -v {memory}; ulimit -f {size}"
    return ["bash", "-c", f'{{ {kept}; }} 2>/dev/null; exec bash -c "$1"', "bash"]  # a limit that is lower stays


def enter(uid: int, own: list[str]) -> list[str]:
    """The words that run what follows them in a sandbox. uid: as whom, where we are root. own: further options."""
    # A file anew for each, as a reader moves on in it: /proc opens it from its beginning.
    opened = ["sh", "-c", f'exec {FILTER}< /proc/{os.getpid()}/fd/{filter_file()}; exec "$@"', "sh"]
    # fmt: off
    words = [
        *opened, shutil.which("bwrap") or "bwrap", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts",
        "--unshare-cgroup-try", "--die-with-parent", "--new-session", "--clearenv", "--hostname", "testbed",
        *system(),
        "--proc", "/proc", "--dev", "/dev", "--size", str(SHM_MB << 20), "--tmpfs", "/dev/shm", *own,
        "--remount-ro", "/dev", "--remount-ro", "/", "--cap-drop", "ALL",
    ]
    if os.geteuid() != 0:
        return [*words, "--unshare-user", "--disable-userns", "--seccomp", str(FILTER), "--"]
    # The kernel limits no process of root, in whatever namespace: so first an ordinary user, then his own namespace.
    return [
        *words, "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_SETPCAP", "--",
        "setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all", "--",
        "bwrap", "--unshare-user", "--disable-userns", "--die-with-parent",
        "--bind", "/", "/", "--dev-bind", "/dev", "/dev", "--seccomp", str(FILTER), "--",
    ]
    # fmt: on


@cache
def system() -> tuple[str, ...]:
    """Options: the programs of this machine, our interpreter and pytest, read-only; the environment variables.

    Left out is what lies among them and is none of them: installed libraries, this project, the user's own folders.
    """
    words = ["--ro-bind", "/usr", "/usr"]
    for name in ("/etc", "/opt", "/opt/bin", TOOLS):  # of a folder that it makes by itself bwrap bars all other users
        words += ["--dir", name]
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        place = Path("/", name)
        if place.is_symlink():
            words += ["--symlink", str(place.readlink()), str(place)]
        elif place.is_dir():
            words += ["--ro-bind", str(place), str(place)]
    for name in ("/etc/alternatives", "/etc/ld.so.cache", "/etc/localtime"):
        words += ["--ro-bind-try", name, name]
    base = Path(sys.base_prefix).resolve()
    inside = base if base.is_relative_to("/usr") else Path(PYTHON)
    if inside != base:
        words += ["--ro-bind", str(base), PYTHON]
    for place in hidden(base):
        words += ["--tmpfs", str(inside / place.relative_to(base) if place.is_relative_to(base) else place)]
    for name, path in tools().items():
        words += ["--ro-bind", str(path), f"{TOOLS}/{name}"]
    python = f"{inside}/bin/python{sys.version_info[0]}.{sys.version_info[1]}"
    for name in ("python", "python3"):
        words += ["--symlink", python, f"/opt/bin/{name}"]
    variables = {"HOME": "/tmp", "PYTHONPATH": TOOLS, "PATH": f"/opt/bin:{SCRIPTS}:/usr/local/bin:/usr/bin:/bin"}
    if inside != base and sysconfig.get_config_var("Py_ENABLE_SHARED"):
        variables["LD_LIBRARY_PATH"] = f"{PYTHON}/lib"
    for name, value in {**ENVIRONMENT, **variables}.items():
        words += ["--setenv", name, value]
    return tuple(words)


def hidden(base: Path) -> list[Path]:
    """Folders in /usr and in the interpreter's that a command must not read, outer ones first.

    They hold the answers of tasks where this project lies or is installed there, and runs, banks and keys of the user.
    """
    paths = sysconfig.get_paths(vars={"base": str(base), "platbase": str(base)})
    places = [Path(each[name]) for each in (paths, sysconfig.get_paths()) for name in ("purelib", "platlib")]
    places += [*Path("/usr/lib/python3").glob("dist-packages"), *Path("/usr/local/lib").glob("python3*/*-packages")]
    places += [ROOT, Path.cwd(), Path.home()]
    needed = [Path("/usr", name) for name in ("bin", "sbin", "lib", "lib64", "share", "local/bin", "local/lib")]
    shown = [Path("/usr"), base]
    return sorted(
        place
        for place in {each.resolve() for each in places}
        if place.is_dir()
        and any(place.is_relative_to(each) for each in shown)
        and not any(each.is_relative_to(place) for each in (*shown, *needed))
    )


def tools() -> dict[str, Path]:
    """{name: path} of the files and folders, in the libraries' folder, of pytest and of what it requires."""
    try:
        from packaging.requirements import Requirement  # a requirement of pytest

        found: dict[str, Path] = {}
        todo, seen = ["pytest"], set()
        while todo:
            name = todo.pop()
            if name in seen:
                continue
            seen.add(name)
            package = distribution(name)
            wanted = map(Requirement, package.requires or ())
            todo += [each.name for each in wanted if each.marker is None or each.marker.evaluate({"extra": ""})]
            for top in {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
                found[top] = Path(package.locate_file(top)).resolve()
    except (ImportError, PackageNotFoundError) as error:
        raise UserError("env.sandbox=bwrap needs pytest, which runs the tests: pip install pytest") from error
    return {name: path for name, path in sorted(found.items()) if path.exists()}


@cache
def check_bubblewrap() -> None:
    """Raises UserError where bubblewrap is missing, too old, or not allowed to work here."""
    if not sys.platform.startswith("linux"):
        raise UserError("env.sandbox=bwrap needs Linux: what a model writes is run in bubblewrap.")
    if shutil.which("bwrap") is None:
        raise UserError(f"env.sandbox=bwrap: bubblewrap is not installed: {APT}")
    version = subprocess.run(["bwrap", "--version"], capture_output=True, text=True, check=False).stdout.split()[-1:]
    if tuple(int(number) for number in "".join(version).split(".")[:2] if number.isdigit()) < OLDEST:
        raise UserError(f"env.sandbox=bwrap: bubblewrap 0.8 or newer is needed, this is {''.join(version)}: {APT}")
    with tempfile.TemporaryDirectory() as empty:
        words = [*enter(65_000, ["--bind", empty, "/tmp"]), "python", "-m", "pytest", "--version"]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, env={})
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no reason given"]
        raise UserError(
            f"env.sandbox=bwrap: bubblewrap cannot work here ({said[0]}). It needs user namespaces, which a container "
            "or a setting of the system may forbid."
        )
