"""Lines as a shell runs them; the programs of Python among them are forked, which spares their imports."""

from __future__ import annotations

import shlex
import subprocess
import sys
from types import ModuleType

PYTHON = {"python": [], "reasoningbank": ["-m", "reasoningbank_harness"]}


def run(
    server: ModuleType, line: str, *, cwd, env: dict[str, str], timeout: float = 600
) -> subprocess.CompletedProcess:
    """`server`, the module forkserver of a checkout, forks a line of one Python command; bash runs any other."""
    options = {"cwd": cwd, "env": env, "capture_output": True, "text": True, "errors": "replace", "timeout": timeout}
    program, *more = shlex.shlex(line, posix=True, punctuation_chars=True)
    program = program.rpartition("/")[2]
    if program not in PYTHON or any(set(word) <= set("();<>|&") for word in more):
        return subprocess.run(["bash", "-c", line], check=False, **options)
    expanded = subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], check=True, **options).stdout
    return server.run([sys.executable, *PYTHON[program], *expanded.split("\0")[1:-1]], **options)
