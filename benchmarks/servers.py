"""Servers as processes of their own: the MCP server over stdio or HTTP, and a free port for it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from scripts.command_line import REPO, command_of


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listened on a moment ago."""
    with socket.socket() as one:
        one.bind((host, 0))
        return one.getsockname()[1]


def mcp_over_stdio(*words: object, env: dict[str, str] | None = None) -> Any:
    """What the SDK's client starts a server with. env: variables beside those of this process."""
    from mcp.client.stdio import StdioServerParameters

    program, *arguments = command_of("mcp_server", *words)
    return StdioServerParameters(command=program, args=arguments, cwd=REPO, env={**os.environ, **(env or {})})


@contextmanager
def mcp_over_http(*words: object, log: IO[str] | None = None) -> Iterator[tuple[int, int]]:
    """A server on a free port, once it can be reached: (its port, its process id). log: of what it says."""
    port = free_port()
    command = command_of("mcp_server", "--host", "127.0.0.1", "--port", port, *words)
    process = subprocess.Popen(command, cwd=REPO, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                if process.poll() is not None:
                    sys.exit(f"{' '.join(command)} ended.")
                time.sleep(0.1)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait()
