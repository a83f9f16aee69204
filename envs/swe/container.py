"""env.sandbox=docker|podman: a container of an image that holds the repository, as the official SWE-bench images do.

No network, no capabilities, limits of memory, processes and file size; files and what a command leaves running stay
until the end of the attempt. The container lives as long as the client that started it: when the harness is killed,
the client's input ends, and with it the container's first process. (The disk is the daemon's: it is not limited.)
For env=harbor folder, user and capabilities are the image's own, and the task says whether there is a network.
"""

from __future__ import annotations

import shutil
import subprocess
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from select import select

from core.errors import InfraError, UserError
from core.outfit import RELAY, Outfit
from envs.swe.sandbox import (
    ENVIRONMENT,
    FREE_MB,
    GIVEN,
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

PULL_S = 3600.0  # an official image has several GB
CALL_S = 120.0
READY = b"ready"


@dataclass(kw_only=True)
class Container(Sandbox):
    """A sandbox in a container. program: docker, podman, or a program with the same command line."""

    program: str
    limits: Limits
    _opened: tuple[str, bool | None] = field(default=("", None), init=False, repr=False)  # as given to `open`
    _name: str = field(default="", init=False, repr=False)
    _client: subprocess.Popen | None = field(default=None, init=False, repr=False)
    _running: subprocess.Popen | None = field(default=None, init=False, repr=False)  # the client of a command
    _aborted: bool = field(default=False, init=False, repr=False)

    def check(self) -> None:
        if shutil.which(self.program) is None:
            raise UserError(f"env.sandbox={self.program}: {self.program} is not installed.")
        try:
            done = self._call("version")
        except InfraError as error:
            raise UserError(f"env.sandbox={self.program}: it does not work here ({error}).") from error
        if done.returncode:
            said = (done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no reason given"])[-1]
            raise UserError(f"env.sandbox={self.program}: it does not work here ({said}).")

    def open(self, source: str, online: bool | None = None, outfit: Outfit | None = None) -> None:
        """online: for env=harbor, whether there is a network; None: for SWE-bench. outfit: see `wear`."""
        self.close()
        self._opened = source, online
        if self._aborted:
            raise InfraError("aborted")
        self._name = f"reasoningbank-{uuid.uuid4().hex[:16]}"
        memory = f"{self.limits.memory_mb}m"
        binds = [f"{path}:{path}:ro" for path in outfit.shows] if outfit else []
        binds += [f"{outfit.relay}:{RELAY}:ro"] if outfit and outfit.relay else []
        # fmt: off
        words = [
            self.program, "run", "--rm", "-i", "--name", self._name, *([] if online else ["--network", "none"]),
            *(["--cap-drop", "ALL", "--security-opt", "no-new-privileges"] if online is None else []),
            "--memory", memory, "--memory-swap", memory,
            "--pids-limit", str(self.limits.processes),
            *(word for bind in binds for word in ("-v", bind)), *self._place(),
            source, "sh", "-c", f"mkdir -p {GIVEN} && echo {READY.decode()} && exec cat",
        ]
        # fmt: on
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        try:
            self._client = subprocess.Popen(words, **pipes, bufsize=0, start_new_session=True)
        except OSError as error:
            raise InfraError(f"{self.program}: {error}") from error
        client, said, end = self._client, b"", time.monotonic() + PULL_S
        if self._aborted:  # before there was anything to kill
            client.kill()
        while READY not in said.splitlines():
            heard = select([client.stdout], [], [], max(0.0, end - time.monotonic()))[0]
            line = client.stdout.readline() if heard else b""
            if not line:
                self.close()
                raise InfraError(f"{self.program} did not start {source}: {said.decode('utf-8', 'replace')[-500:]}")
            said += line

    def give(self, name: str, text: str) -> None:
        done = self._call("exec", "-i", self._name, "sh", "-c", f"cat > {GIVEN}/{name}", data=as_bytes(text))
        if done.returncode:
            raise InfraError(f"{self.program}: {GIVEN}/{name} could not be written")

    def wear(self, outfit: Outfit) -> None:
        """A container anew, with the folders that the program sees: nothing was done in the one that there was."""
        if self._opened[1] is None:
            raise UserError("agent=command needs env.sandbox=bwrap, or tasks in Harbor's layout.")
        self.open(*self._opened, outfit)

    def build(self, folder: Path) -> str:
        """The image of a folder with a Dockerfile; the second time it is in the program's own cache."""
        done = self._call("build", "-q", str(folder), timeout_s=PULL_S)
        if done.returncode:
            raise InfraError(f"{self.program} build: {done.stderr.decode('utf-8', 'replace').strip()[-500:]}")
        return done.stdout.decode().split()[-1]

    def copy(self, folder: Path | None, there: str) -> None:
        """A folder of the container's holds what one of this machine does, and nothing else. None: it is empty."""
        self._call("exec", "-u", "0", self._name, "sh", "-c", f"rm -rf {there} && mkdir -p {there}")
        if folder and (done := self._call("cp", f"{folder}/.", f"{self._name}:{there}")).returncode:
            raise InfraError(f"{self.program} cp: {done.stderr.decode('utf-8', 'replace').strip()[-500:]}")

    def run(self, command: str, timeout_s: float, told: str = "", outfit: Outfit | None = None) -> Ran:
        if (refused := unusable(command)) is not None:
            return refused
        self._check_open()
        variables = {**ENVIRONMENT, **(outfit.variables if outfit else {})}
        given = [word for name, value in variables.items() for word in ("-e", f"{name}={value}")]
        told_by = ["-i"] if told else []
        words = [self.program, "exec", *told_by, *self._place(), *given, self._name]
        # --ulimit would do the same, but with it podman raises other limits, which a machine may forbid
        words += ["bash", "-c", f'ulimit -f {self.limits.file_mb << 10}; exec bash -lc "$0"', command]
        try:
            with said_to(told) as source:
                pipes = {"stdin": source.fileno(), "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
                process = self._running = subprocess.Popen(words, **pipes, bufsize=0, start_new_session=True)
        except OSError as error:
            raise InfraError(f"{self.program}: {error}") from error
        if self._aborted:  # before there was anything to kill
            process.kill()

        def kill() -> None:
            with suppress(InfraError):
                self._call("exec", self._name, "sh", "-c", "kill -9 -1")  # all but the container's first process
            process.kill()

        def over() -> str:  # an abort; what it leaves holding the output is not waited for
            return "time" if self._aborted else ""

        try:
            data, killed = collect(process, timeout_s, self.limits.output_mb << 20, over, kill)
        finally:
            process.kill()
            code = process.wait()
        if code:  # a container that is gone looks like an error of the command
            self._check_open(data.decode("utf-8", "replace"), wait_s=0.1)
        return ran_as(data, code, killed)

    def close(self) -> None:
        client, self._client = self._client, None
        if client is None:
            return
        with suppress(OSError):
            client.stdin.close()
        try:
            client.wait(10)
        except subprocess.TimeoutExpired:
            with suppress(InfraError):
                self._call("rm", "-f", self._name)
            client.kill()
            client.wait()
        client.stdout.close()

    def abort(self) -> None:
        self._aborted = True
        for process in (self._running, self._client):  # which may be pulling the image still
            if process is not None:
                process.kill()
        if self._client is not None:
            with suppress(InfraError):
                self._call("rm", "-f", self._name)

    def check_room(self) -> None:
        """By df in the container; an image without it tells nothing."""
        done = self._call("exec", self._name, "sh", "-c", f"df -Pk . {GIVEN}")
        rows = (line.split() for line in done.stdout.splitlines()[1:])
        free = [int(words[3]) for words in rows if len(words) > 3 and words[3].isdigit()]
        if free and min(free) < FREE_MB << 10:
            raise InfraError(f"{self.program}: the disk of its containers is full: less than {FREE_MB} MB are free")

    def _place(self) -> list[str]:
        """The words for the working folder; of a task of Harbor's it is the image's own."""
        return ["-w", TESTBED] if self._opened[1] is None else []

    def _check_open(self, said: str = "", wait_s: float = 0.0) -> None:
        """Raises InfraError where there is no container any more. wait_s: for its end to be known here."""
        if self._aborted:
            raise InfraError("aborted")
        if (client := self._client) is None:
            raise InfraError("no sandbox is open")
        with suppress(subprocess.TimeoutExpired):
            client.wait(wait_s)
            raise InfraError(f"{self.program}: the container has ended: {said.strip()[-500:]}")

    def _call(self, *words: str, data: bytes = b"", timeout_s: float | None = None) -> subprocess.CompletedProcess:
        """Raises InfraError where it does not answer. timeout_s: None: CALL_S."""
        how = {"input": data, "capture_output": True, "check": False, "timeout": timeout_s or CALL_S}
        try:
            return subprocess.run([self.program, *words], **how)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InfraError(f"{self.program} {words[0]}: {error}") from error
