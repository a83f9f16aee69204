"""Start the project's programs from a process that has already imported what they import.

Of the 1 to 3 s that a program takes in a test, nearly all is imports. `Popen` and `run` are those of subprocess, but a
command of this Python (`[sys.executable, "main.py", ...]`, `-m module`, `-c code`) is forked from a server with the
imports done. It is a real process and a child of the tests: argv, environment, working directory, stdin, stdout,
stderr, session, signals, pid and exit status are its own. /proc/PID/cmdline alone shows the server's.

Nothing of a test reaches the next one: the server runs nothing but `fork`, each program gets a copy of its memory, and
before each fork the server compares its threads, open files, environment and working directory with those it began
with. Python's and NumPy's global random numbers are seeded anew in each program; the order of sets of strings is the
server's, unless PYTHONHASHSEED is set.

Started as usual, by exec: what is no program of this checkout, what sets something that an interpreter or a library
reads while it starts (BEFORE_IMPORTS), and all with fresh=True, which tests of starting itself ask for.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import io
import os
import pickle
import runpy
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT  # noqa: F401 - so that this module can stand for subprocess

REPO = Path(__file__).resolve().parent.parent
# Where the kits of the tests lie, for a process of its own; pytest has them from pyproject.toml.
KITS = [str(REPO / "tests"), *map(str, sorted((REPO / "tests").glob("[a-z]*/")))]
# What an interpreter or a library reads while it is loaded: a program that has it otherwise is started by exec.
BEFORE_IMPORTS = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "OMP_", "OPENBLAS_", "MKL_", "NUMPY_")
# Imported by most programs. What begins threads on import, or reads the environment then, must not be here.
PRELOADED = (
    "main core.build core.run.session core.memory.bank core.memory.open workflows.build workflows.plan "
    "workflows.reasoningbank envs.toy envs.single_turn core.learning.judges core.models.offline core.models.direct "
    "analysis.load analysis.matrix analysis.tables analysis.stats analysis.audit analysis.verdict "
    "mcp_server.server mcp_server.tools mcp_server.service mcp_server.run_command mcp_server.hooks "
    "faiss httpx httptools hydra jinja2 json_repair math_verify mcp.server.lowlevel mcp.server.stdio mcp.client.stdio "
    "numpy omegaconf pandas pydantic rapidfuzz rich.progress scipy.stats starlette sympy "
    "tokenizers uvicorn uvloop yaml"
).split()
SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)
# Or the imports of NumPy and pyarrow begin threads.
NO_THREADS = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}


class Popen(subprocess.Popen):
    """subprocess.Popen, by way of the server where that makes no difference to the program; fresh=True: never."""

    def __init__(self, args, *more, fresh: bool = False, **options):
        self._fresh = fresh
        super().__init__(args, *more, **options)

    def _execute_child(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *rest):
        _, _, shell, *pipes, _restore, gid, gids, uid, umask, new_session, group = rest
        settled = (executable, preexec_fn, gid, gids, uid) == (None,) * 5 and (umask, group) == (-1, -1)
        plain = settled and close_fds and not shell and not isinstance(args, str | bytes | os.PathLike)
        words = list(map(os.fspath, args)) if plain else []
        surroundings = {str(key): str(value) for key, value in (os.environ if env is None else env).items()}
        if not {"LC_ALL", "LC_CTYPE", "LANG"} & set(surroundings):
            surroundings["LC_CTYPE"] = "C.UTF-8"  # as an interpreter sets it, which then takes it for given (PEP 538)
        place = str(Path(cwd or Path.cwd()).resolve())
        if self._fresh or not _same_when_forked(words, surroundings, place):
            super()._execute_child(args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *rest)
            return
        given = [number if number != -1 else own for own, number in enumerate((pipes[0], pipes[3], pipes[5]))]
        self.pid = server().fork(words[1:], surroundings, place, [*given, *pass_fds], list(pass_fds), new_session)
        self._child_created = True
        self._close_pipe_fds(*pipes)


def run(args, *, input=None, capture_output=False, timeout=None, check=False, **options):
    """subprocess.run, with this module's Popen."""
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if input is not None:
        options["stdin"] = subprocess.PIPE
    with Popen(args, **options) as process:
        try:
            out, err = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    if check and process.returncode:
        raise subprocess.CalledProcessError(process.returncode, args, out, err)
    return subprocess.CompletedProcess(args, process.returncode, out, err)


def _same_when_forked(words: list[str], surroundings: dict[str, str], place: str) -> bool:
    """Whether a program that is forked does what it does when executed."""
    if sys.platform != "linux" or len(words) < 2 or words[0] != sys.executable or not Path(place).is_dir():
        return False
    own = {Path(entry).resolve() for entry in surroundings.get("PYTHONPATH", "").split(os.pathsep) if entry}
    if not own <= set(map(Path, [str(REPO), *KITS])) or _read_early(surroundings) != server().early:
        return False
    elsewhere = Path(place) != REPO and any((Path(place) / name).exists() for name in ("core", "main.py", "envs"))
    if words[1] in ("-m", "-c"):
        return len(words) > 2 and not elsewhere
    script = Path(place, words[1]).resolve()
    return script.suffix == ".py" and script.is_file() and REPO in script.parents


def _read_early(surroundings) -> dict[str, str]:
    return {k: v for k, v in surroundings.items() if k.startswith(BEFORE_IMPORTS) and k != "PYTHONPATH"}


class Server:
    """The process that forks, from outside. One a pytest process; ends with it."""

    def __init__(self):
        self.early = _read_early(os.environ)
        self._ours, theirs = socket.socketpair()
        self._lock = threading.Lock()
        self._libc = ctypes.CDLL(None, use_errno=True)
        code = f"import forkserver; forkserver.serve({theirs.fileno()})"
        env = {**os.environ, **NO_THREADS, "PYTHONPATH": str(REPO / "tests")}
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], pass_fds=[theirs.fileno()], env=env, cwd=REPO, stdin=subprocess.DEVNULL
        )
        theirs.close()
        atexit.register(self.close)

    def fork(self, argv, environ, place, files, numbers, new_session) -> int:
        """Start a program. Returns its pid; it is a child of this process.

        files     descriptors of its stdin, stdout, stderr, then of those it gets under the same `numbers`
        """
        request = pickle.dumps((argv, environ, place, numbers, new_session))
        with self._lock:  # the new process becomes a child of the next "subreaper" above the server: this process
            self._libc.prctl(SUBREAPER, 1, 0, 0, 0)
            try:
                socket.send_fds(self._ours, [struct.pack("Q", len(request))], files)
                self._ours.sendall(request)
                answer = pickle.loads(_receive(self._ours, struct.unpack("Q", _receive(self._ours, 8))[0]))
            finally:
                self._libc.prctl(SUBREAPER, 0, 0, 0, 0)
        if isinstance(answer, int):
            return answer
        raise RuntimeError(f"the fork server is not as it was when it began: {answer}")

    def close(self) -> None:
        self._ours.close()
        self._process.wait()


_servers: dict[int, Server] = {}


def server() -> Server:
    """This process's server, started with the first program."""
    if os.getpid() not in _servers:
        _servers[os.getpid()] = Server()
    return _servers[os.getpid()]


def serve(number: int) -> None:
    """In the server: fork a program for each request, until the tests have ended; in each program: run it."""
    channel = socket.socket(fileno=number)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests, which then hang up
    for name in PRELOADED:
        if find_spec(name.partition(".")[0]) is not None:  # an extra's library may be absent
            importlib.import_module(name)
    for name in NO_THREADS:
        os.environ.pop(name)
    gc.collect()
    gc.freeze()  # what is imported is no garbage: no program looks through it
    began = _state()
    assert began["threads"] == 1, "an import began threads, which a fork would lose"
    while True:
        try:
            head, files, _, _ = socket.recv_fds(channel, 8, 64)
        except ConnectionResetError:
            return
        if not head:
            return
        request = pickle.loads(_receive(channel, struct.unpack("Q", head)[0]))
        for fd in files:
            os.set_inheritable(fd, True)
        now = _state(without=files)
        answer = next((f"{name}: {began[name]} -> {now[name]}" for name in began if began[name] != now[name]), None)
        if answer is None and (answer := _fork()) == 0:
            _become(*request, files)
            return
        for fd in files:
            os.close(fd)
        answer = pickle.dumps(answer)
        channel.sendall(struct.pack("Q", len(answer)) + answer)


def _state(without=()) -> dict:
    """What a program could inherit of an earlier one, if there were a way."""
    open_ones = {path for path in Path("/proc/self/fd").iterdir() if path.exists()}  # the listing's own no longer is
    return {
        "threads": len(list(Path("/proc/self/task").iterdir())),
        "files": {int(path.name) for path in open_ones} - set(without),
        "environment": dict(os.environ),
        "directory": Path.cwd(),
    }


def _fork() -> int:
    """The pid of a process whose parent is the tests' process; 0 in that process."""
    told, tell = os.pipe()
    go, let = os.pipe()
    middle = os.fork()
    if middle == 0:
        child = os.fork()
        if child == 0:
            os.close(let)
            os.read(go, 1)  # until its parent has ended, and the tests' process is its parent
            return 0
        os.write(tell, struct.pack("Q", child))
        os._exit(0)
    os.waitpid(middle, 0)
    (child,) = struct.unpack("Q", os.read(told, 8))
    for fd in (told, tell, go, let):
        os.close(fd)
    return child


def _become(argv, environ, place, numbers, new_session, files) -> None:
    """Run the program in this process, as the interpreter does after its own start."""
    if new_session:
        os.setsid()
    copies = [os.dup2(fd, 200 + n) for n, fd in enumerate(files)]
    os.closerange(3, 200)
    for copy, to in zip(copies, (0, 1, 2, *numbers), strict=True):
        os.dup2(copy, to)
        os.close(copy)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(place)
    os.environ.clear()
    os.environ.update(environ)
    time.tzset()
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = _standard_stream(number, name, getattr(sys, name))
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.path[:2] = [entry for entry in environ.get("PYTHONPATH", "").split(os.pathsep) if entry]  # less the server's
    importlib.invalidate_caches()
    sys.orig_argv = [sys.executable, *argv]
    main = sys.modules["__main__"].__dict__
    for name in [name for name in main if not name.startswith("__")]:
        del main[name]
    if argv[0] == "-m":
        sys.argv = ["-m", *argv[2:]]
        sys.path.insert(0, place)
        sys.modules.pop(argv[1], None)
        sys.modules.pop(f"{argv[1]}.__main__", None)
        runpy._run_module_as_main(argv[1])
    elif argv[0] == "-c":
        sys.argv = ["-c", *argv[2:]]
        sys.path.insert(0, "")
        exec(compile(argv[1], "<string>", "exec"), main)
    else:
        sys.argv = argv
        sys.path.insert(0, str(Path(argv[0]).resolve().parent))
        main["__file__"], main["__cached__"] = str(Path(argv[0]).absolute()), None
        exec(compile(Path(argv[0]).read_bytes(), main["__file__"], "exec"), main)


def _standard_stream(number: int, name: str, of_server: io.TextIOWrapper) -> io.TextIOWrapper:
    """As CPython's create_stdio makes it; encoding and buffering follow what the server was started with, too."""
    raw = io.FileIO(number, of_server.mode, closefd=False)
    raw.name = f"<{name}>"
    unbuffered = of_server.write_through
    buffer = io.BufferedReader(raw) if name == "stdin" else raw if unbuffered else io.BufferedWriter(raw)
    lines = not unbuffered and (name == "stderr" or raw.isatty())
    stream = io.TextIOWrapper(buffer, of_server.encoding, of_server.errors, "\n", lines, unbuffered)
    stream.mode = of_server.mode
    return stream


def _receive(channel: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        if not (part := channel.recv(size - len(data))):
            raise EOFError("the fork server has ended")
        data += part
    return data
