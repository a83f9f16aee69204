"""An object in a process of its own: for engines that are not thread-safe, crash, or must die with the run.

    worker = WorkerProcess(factory=partial(Engine, path))    # picklable and importable; it runs in the child
    worker.start()                                    # a no-op while the child lives
    observation = worker.call("step", "go to desk 1")
    worker.close()

The child is a fresh interpreter, never a fork, and is used for many episodes. It ends by itself when the parent is
gone, even by SIGKILL: its end of the pipe hangs up, and a watchdog cuts short whatever it was doing. Only C code that
keeps Python's lock also keeps the watchdog waiting; an object that may run such code needs an alarm of its own.

Not multiprocessing.Process: that runs the main script again in every child, and inside a joblib worker, where Hydra's
joblib launcher puts a job, it cannot start one at all.
"""

from __future__ import annotations

import json
import os
import pickle
import select
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from core.errors import InfraError, UserError

GRACE_S = 5.0  # how long a child may take over its last words before it is killed
HUNG_UP = (EOFError, BrokenPipeError, ConnectionResetError)
CHILD = (
    "import json, sys; sys.path[:0] = json.loads(sys.argv[2]); from core.process import serve; serve(int(sys.argv[1]))"
)


class WorkerTimeout(InfraError):
    """The child did not answer in time and was killed."""


@dataclass(kw_only=True)
class WorkerProcess:
    """Not thread-safe, except `close` and `abort`: one call at a time. After an InfraError the child is gone; `start`
    makes a new one.

    factory     called without arguments in the child; what it returns receives the calls, and its `close`, if it has
                one, is called at the end
    timeout_s   for one call and for the start; then the child is killed
    path        folders in which the child looks for modules before PYTHONPATH and the installed libraries; None: those
                of this process. The working directory is not among them unless it is named
    environment the environment variables of the child; None: those of this process
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
        self._connection, theirs = Pipe()
        with theirs:  # our copy must go, else the child's death would not reach us as the end of the pipe
            path = json.dumps(sys.path if self.path is None else list(self.path))
            command = [sys.executable, "-P", "-c", CHILD, str(theirs.fileno()), path]
            # a session of its own: Ctrl-C is for the parent, which then closes its workers
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env=self.environment,
            )
        try:
            self._converse(self.factory, self.timeout_s)
        except UserError:
            self.kill()  # the object was never built
            raise

    def call(self, method: str, *args: Any, timeout_s: float | None = None) -> Any:
        """Return `object.method(*args)`. Raises InfraError when the object raises (with the child's traceback) or the
        child dies, WorkerTimeout when it takes too long; errors of core.errors keep their type.

        timeout_s   for this call, if not the worker's own
        """
        if self._process is None:
            raise InfraError("no worker process: start it first")
        return self._converse((method, args), self.timeout_s if timeout_s is None else timeout_s)

    def close(self) -> None:
        """Let the object close itself, then wait for the child to end. Idempotent.

        In the middle of another thread's call, which then raises InfraError, the child is killed instead.
        """
        process, connection = self._process, self._connection
        if process is not None and connection is not None and not self._conversing:
            connection.close()  # the child reads this as the end
            _exit_code(process)
        self.kill()

    def kill(self) -> None:
        """End the child at once, whatever it is doing. Idempotent."""
        process, self._process = self._process, None
        connection, self._connection = self._connection, None
        if process is not None:
            process.kill()
            process.wait()
        if connection is not None:
            connection.close()

    def abort(self) -> None:
        """From another thread: kill the child and leave the rest to whoever waits for it, with an InfraError."""
        if (process := self._process) is not None:
            process.kill()

    def _converse(self, message: Any, timeout_s: float) -> Any:
        process, connection = self._process, self._connection
        if process is None or connection is None:  # another thread was quicker
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
            raise  # the caller's mistake; the object itself is sound
        except HUNG_UP:
            code = _exit_code(process)
            self.kill()
            raise InfraError(f"the worker process died (exit code {code})") from None
        except (OSError, TypeError) as error:  # of a connection that another thread closed, perhaps while it was read
            closed = isinstance(error, OSError) or connection.closed
            self.kill()
            if not closed:
                raise
            raise InfraError(f"the worker process was closed ({error})") from None
        except BaseException:
            self.kill()  # a conversation broken off half-way (an interrupt, too) would answer the next call wrongly
            raise
        finally:
            self._conversing = False


def _exit_code(process: subprocess.Popen) -> int | None:
    try:
        return process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        return None


def serve(descriptor: int) -> None:
    """The child's life: build the object, answer calls until the pipe hangs up."""
    os.set_inheritable(descriptor, False)  # a process started here must not keep the pipe open after our death
    threading.Thread(target=_die_with_parent, args=(descriptor,), daemon=True).start()
    connection = Connection(descriptor)
    hosted = None

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
    """During a long call nobody reads the pipe, so a thread watches it. The object gets GRACE_S to close in order."""
    poller = select.poll()
    poller.register(descriptor, 0)  # nothing but the hang-up, which cannot be masked
    poller.poll()
    time.sleep(GRACE_S)
    os._exit(1)
