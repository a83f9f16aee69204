"""agent.deliver=mcp: the lessons of one attempt as a server of MCP, for a program in a sandbox without a network.

    agent in the sandbox -> BRIDGE there, its server over stdio -> a socket file -> `reasoningbank serve`

The server has a bank of its own with the lessons that were retrieved for the task, so that an arm shows by this way
what it shows by every other. What the agent writes there is gone with the attempt.
"""

from __future__ import annotations

import json
import os
import shutil
import socketserver
import subprocess
import sys
import tempfile
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from core.memory.bank import MemoryBank
from core.memory.policies.cosine import Cosine
from core.models.embedding import HashingEmbedder
from core.types import Scored

SOCKET, BRIDGE = "lessons.sock", "bridge.py"
MOST = 8  # servers that are started for one attempt: a program that connects without end must not fill the machine
ROOT = Path(__file__).resolve().parents[1]
BRIDGING = f"""
import os, socket, sys, threading
server = socket.socket(socket.AF_UNIX)
server.connect(os.path.join(os.path.dirname(os.path.abspath(__file__)), "{SOCKET}"))
def out():
    while data := server.recv(65536):
        os.write(1, data)
    os._exit(0)
threading.Thread(target=out, daemon=True).start()
while data := os.read(0, 65536):
    server.sendall(data)
server.shutdown(socket.SHUT_WR)
threading.Event().wait(5)
"""


class LessonDoor:
    """A server for each connection to SOCKET in a folder that the sandbox sees. `close` ends them all."""

    def __init__(self, folder: Path, memories: list[Scored]) -> None:
        self._private = Path(tempfile.mkdtemp(prefix="reasoningbank-lessons-"))
        self._running: list[subprocess.Popen] = []
        self._lock, self._closed, door = threading.Lock(), False, self
        bank = self._private / "lessons.sqlite"
        policy = Cosine(top_k=max(1, len(memories)))
        embedder = HashingEmbedder()
        with closing(MemoryBank(path=str(bank), embedder=embedder, policy=policy)) as made:
            for memory in memories:
                made.add(replace(memory.record, namespace=made.namespace, status="active", query_embedding=()))
        words = [sys.executable, "-m", "mcp_server", "--bank", str(bank), "--embedder", embedder.name]
        words += ["retrieval=cosine", "retrieval.min_score=null"]
        words += [f"retrieval.top_k={policy.top_k}"]
        environment = os.environ | {"PYTHONPATH": str(ROOT), "REASONINGBANK_SETTINGS": "none"}

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                pipe = self.request.fileno()
                quiet = {"stdin": pipe, "stdout": pipe, "stderr": subprocess.DEVNULL}
                with door._lock:
                    if door._closed or len(door._running) >= MOST:
                        return
                    door._running.append(process := subprocess.Popen(words, cwd=ROOT, env=environment, **quiet))
                process.wait()

        (folder / BRIDGE).write_text(BRIDGING, encoding="utf-8", newline="\n")
        (folder / BRIDGE).chmod(0o644)  # whatever the umask
        self._server = socketserver.ThreadingUnixStreamServer(str(folder / SOCKET), Handler)
        self._server.daemon_threads = True
        (folder / SOCKET).chmod(0o666 if os.geteuid() == 0 else 0o600)  # as root the sandbox has another user
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        with self._lock:
            self._closed = True
            for process in self._running:
                process.kill()
                process.wait()
        self._server.server_close()
        shutil.rmtree(self._private, ignore_errors=True)


def settings(there: str | None) -> str:
    """The settings of a client, in the form that most read. there: the folder in the sandbox; None: no server."""
    servers = {} if there is None else {"lessons": {"command": "python3", "args": ["-I", f"{there}/{BRIDGE}"]}}
    return json.dumps({"mcpServers": servers}, indent=1) + "\n"
