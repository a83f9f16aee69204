"""Run an object in its own process: for engines that are not thread-safe, may crash, or must end with the run.

    worker = WorkerProcess(factory=partial(Engine, path))    # picklable and importable; it runs in the child
    worker.start()                                    # a no-op while the child lives
    observation = worker.call("step", "go to desk 1")
    worker.close()

The child is a fresh interpreter, never a fork, and is used for many episodes. It ends when the parent is gone, even
after SIGKILL: its pipe hangs up, and a watchdog thread ends a call in progress. Only C code that holds the GIL delays
the watchdog; an object that may run such code needs its own alarm.

Not multiprocessing.Process: it runs the main script again in every child, and it cannot start a child inside a joblib
worker, where Hydra's joblib launcher runs a job.
"""

from __future__ import annotations

import json
import os
import pickle
import queue
import select
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from core.errors import InfraError, UserError

# The path of a worker in which no file may stand in for a library: not the working directory, nor the program's folder.
OURS = (str(Path(__file__).resolve().parents[1]),)
# The environment of one that reads what a model wrote: no key, no proxy, no home; sets in one order in every process.
BARE = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}
GRACE_S = 5.0  # time that a child gets to close before it is killed
PATIENCE_S = 0.2  # until a pool whose workers are all busy starts another: most calls are shorter than a start
HUNG_UP = (EOFError, BrokenPipeError, ConnectionResetError)
CHILD = (
    "import json, sys; sys.path[:0] = json.loads(sys.argv[2]); from core.process import serve; serve(int(sys.argv[1]))"
)


class WorkerTimeout(InfraError):
    """The child did not answer in time and was killed."""


@dataclass(kw_only=True)
class WorkerProcess:
    """Calls the methods of an object in a child process. One call at a time: not thread-safe, except `close` and
    `abort`. After an InfraError the child is gone; `start` makes a new one.

    factory      called without arguments in the child; returns the object that receives the calls. The object's
                 `close`, if it has one, is called at the end
    timeout_s    time limit of one call, and of the start; then the child is killed
    path         folders that the child searches for modules before PYTHONPATH and the installed libraries; None: those
                 of this process. The working directory is not among them unless it is named
    environment  environment variables of the child; None: those of this process
    """

    factory: Callable[[], Any]
    timeout_s: float = 300.0
    path: Sequence[str] | None = None
    environment: Mapping[str, str] | None = None
    _process: subprocess.Popen | None = field(default=None, init=False, repr=False)
    _connection: Connection | None = field(default=None, init=False, repr=False)
    _conversing: bool = field(default=False, init=False, repr=False)

    @property
    def pid(self) -> int | None:
        """The child's process id; None while there is no child."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the child and build the object in it, unless it is already there. Raises what the factory raised."""
        if (process := self._process) is not None and process.poll() is None:
            return
        self.kill()
        if sys.platform == "win32":
            raise UserError("a worker process needs Linux or macOS: Windows cannot hand it this end of a pipe.")
        self._connection, theirs = Pipe()
        with theirs:  # close our copy, or the child's death would not end the pipe
            path = json.dumps(sys.path if self.path is None else list(self.path))
            command = [sys.executable, "-P", "-c", CHILD, str(theirs.fileno()), path]
            # a new session, so that Ctrl-C reaches only the parent, which then closes its workers
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                # A copy: this may be a thread, and another may set a variable just now, which exec would not survive.
                env=dict(os.environ if self.environment is None else self.environment),
            )
        try:
            self._converse(self.factory, self.timeout_s)
        except UserError:
            self.kill()  # the object was never built
            raise

    def call(self, method: str, *args: Any, timeout_s: float | None = None) -> Any:
        """Return `object.method(*args)`. Raises InfraError if the object raises (with the child's traceback) or the
        child dies, WorkerTimeout if it takes too long; errors of core.errors keep their type.

        timeout_s   time limit of this call; None: the worker's
        """
        if self._process is None:
            raise InfraError("no worker process: start it first")
        return self._converse((method, args), self.timeout_s if timeout_s is None else timeout_s)

    def close(self) -> None:
        """Let the object close, then wait for the child to end. Idempotent.

        During another thread's call the child is killed instead, and that call raises InfraError.
        """
        process, connection = self._process, self._connection
        if process is not None and connection is not None and not self._conversing:
            connection.close()  # the child ends when the pipe closes
            _exit_code(process)
        self.kill()

    def kill(self) -> None:
        """Kill the child immediately. Idempotent."""
        process, self._process = self._process, None
        connection, self._connection = self._connection, None
        if process is not None:
            process.kill()
            process.wait()
        if connection is not None:
            connection.close()

    def abort(self) -> None:
        """From another thread: kill the child; the thread that waits for it gets an InfraError and cleans up."""
        if (process := self._process) is not None:
            process.kill()

    def _converse(self, message: Any, timeout_s: float) -> Any:
        process, connection = self._process, self._connection
        if process is None or connection is None:  # closed by another thread
            raise InfraError("the worker process was closed")
        self._conversing = True
        try:
            connection.send(message)
            if not connection.poll(timeout_s):
                raise WorkerTimeout(f"the worker process did not answer within {timeout_s:g} s")
            ok, value = connection.recv()
            if ok:
                return value
            raise value
        except UserError:
            raise  # the caller's mistake: the object remains usable
        except HUNG_UP:
            code = _exit_code(process)
            self.kill()
            raise InfraError(f"the worker process died (exit code {code})") from None
        except (OSError, TypeError) as error:  # another thread closed the connection, possibly during a read
            closed = isinstance(error, OSError) or connection.closed
            self.kill()
            if not closed:
                raise
            raise InfraError(f"the worker process was closed ({error})") from None
        except BaseException:
            self.kill()  # after an unfinished call (or an interrupt) the next call would get the wrong answer
            raise
        finally:
            self._conversing = False


class WorkerPool:
    """Workers of one kind, shared by many threads, kept from call to call. There are at most `size`; one more is
    started only while all others are busy, one at a time.

    make   makes a worker, not yet started
    size   None: two more than cores, at most 12: a few calls that hang must not hold up the others
    """

    def __init__(self, make: Callable[[], WorkerProcess], size: int | None = None) -> None:
        self._make, self._size = make, size or min(12, (os.cpu_count() or 1) + 2)
        self._all: list[WorkerProcess] = []
        self._free: queue.LifoQueue[WorkerProcess] = queue.LifoQueue()  # the last one used first: it is warm
        self._growing = threading.Lock()

    @contextmanager
    def lease(self) -> Iterator[WorkerProcess]:
        """A started worker, for the length of the with block. Raises what its start raises.

        One that is gone afterwards has left the pool, which makes another when it needs one.
        """
        worker = self._take()
        try:
            worker.start()  # it may have been killed while nobody used it
            yield worker
        finally:
            if worker.pid is None:
                self._all.remove(worker)
            else:
                self._free.put(worker)

    def pids(self) -> list[int]:
        """The process ids of the workers."""
        return [worker.pid for worker in list(self._all) if worker.pid is not None]

    def close(self) -> None:
        """End all workers; calls in progress raise InfraError. The next lease starts one anew. Idempotent."""
        for worker in list(self._all):
            worker.abort()
            worker.close()

    def _take(self) -> WorkerProcess:
        while True:
            with suppress(queue.Empty):
                return self._free.get(timeout=PATIENCE_S if self._all else 0)
            if len(self._all) < self._size and self._growing.acquire(blocking=False):
                self._all.append(worker := self._make())
                try:
                    worker.start()
                    return worker
                except BaseException:
                    self._all.remove(worker)
                    raise
                finally:
                    self._growing.release()


def _exit_code(process: subprocess.Popen) -> int | None:
    try:
        return process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        return None


def serve(descriptor: int) -> None:
    """The child's main function: build the object, answer calls until the pipe hangs up."""
    os.set_inheritable(descriptor, False)  # or a process started here would keep the pipe open after our end
    threading.Thread(target=_die_with_parent, args=(descriptor,), daemon=True).start()
    connection = Connection(descriptor)
    hosted: Any = None

    def build() -> None:
        nonlocal hosted
        hosted = connection.recv()()

    try:
        connection.send_bytes(_answer(build))
        while True:
            method, args = connection.recv()
            connection.send_bytes(_answer(lambda: getattr(hosted, method)(*args)))  # noqa: B023
    except HUNG_UP:
        pass  # the parent closed the pipe or is gone
    finally:
        if hasattr(hosted, "close"):
            hosted.close()


def _answer(ask: Callable[[], Any]) -> bytes:
    """The pickled (True, value) or (False, error) of a call; a value that cannot be pickled is an error too."""
    try:
        return pickle.dumps((True, ask()))
    except (UserError, InfraError) as error:
        return pickle.dumps((False, error))
    except Exception as error:  # noqa: BLE001 - passed on to the parent, not swallowed
        cause = "".join(traceback.format_exception_only(error)).strip()
        return pickle.dumps((False, InfraError(f"{cause}\n{traceback.format_exc()}")))


def _die_with_parent(descriptor: int) -> None:
    """Watchdog thread: end this process GRACE_S after the pipe hangs up, even during a long call."""
    poller = select.poll()
    poller.register(descriptor, 0)  # nothing but the hang-up, which cannot be masked
    poller.poll()
    time.sleep(GRACE_S)
    os._exit(1)


@contextmanager
def removed_with_us(folder: Path, group: Path | None = None) -> Iterator[None]:
    """While the with block lasts, a folder is removed also if this process is killed: another one waits for its end.

    group   a control group to remove first
    """
    script = 'cat; sleep 0.5; rmdir -- "$2"; chmod -R u+rwX -- "$1"; rm -rf -- "$1" || { sleep 2; rm -rf -- "$1"; }'
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True, "cwd": "/"}
    words = ["sh", "-c", script, "sh", str(folder), str(group or "")]
    waiting = subprocess.Popen(words, stdin=subprocess.PIPE, **quiet)
    try:
        yield
    finally:
        waiting.kill()
        waiting.communicate()
