"""The figures of a benchmark, each beside its limit: taken, printed as soon as it is known, saved at the end."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripts.command_line import REPO, parser


def seconds(call: Callable[..., object], *arguments: object) -> float:
    """How long a call takes."""
    began = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - began


def peak_mb() -> float:
    """The most memory, in MiB, that this process has had."""
    # Not getrusage: what it calls the peak includes the process that started this one.
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024


def machine() -> dict[str, Any]:
    """The processor, its cores and this Python, by which two machines are told apart."""
    cpu = Path("/proc/cpuinfo")
    named = re.search(r"^model name\s*: (.*)", cpu.read_text(), re.MULTILINE) if cpu.exists() else None
    name = named[1] if named else platform.processor()
    return {"processor": name, "cores": os.cpu_count(), "python": platform.python_version()}


def commit() -> str:
    """The commit of this checkout, with a + where files differ from it; "" outside a repository."""
    words = ["git", "-C", str(REPO), "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()


@dataclass
class Lines:
    """`rows` is what is saved: of each figure line, value, unit, least, note and, where it has one, limit and held."""

    rows: list[dict[str, Any]] = field(default_factory=list)

    def add(self, name: str, value: float, limit: float, unit: str, *, least: bool = False, note: str = "") -> None:
        """One figure, which is to be at most its limit, or with `least` at least. note: what to compare it with."""
        held = value >= limit if least else value <= limit
        self.keep(name, value, unit, least=least, note=note, limit=limit, held=held)
        wanted = f"{'>=' if least else '<='} {limit:g}"
        print(f"{'ok  ' if held else 'MISS'} {name:<58} {value:>9.3f} {unit:<10} {wanted:<9} {note}", flush=True)

    def keep(self, name: str, value: float, unit: str = "", *, least: bool = False, **more: Any) -> None:
        """One figure that is saved only: the program prints it in a table of its own."""
        self.rows.append({"line": name, "value": value, "unit": unit, "least": least, **more})

    def end(self, file: Path | None) -> int:
        """Say how many of the lines that have a limit held, and save them all. Returns 0."""
        limited = [row for row in self.rows if "held" in row]
        held = sum(row["held"] for row in limited)
        if file is not None:
            saved = {
                "commit": commit(),
                "date": time.strftime("%Y-%m-%d"),
                "machine": machine(),
                "load": os.getloadavg(),
            }
            saved |= {"held": held, "of": len(limited), "lines": self.rows}
            file.write_text(json.dumps(saved, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        slow = "; PYTHONDONTWRITEBYTECODE is set, so starts take longer" if sys.dont_write_bytecode else ""
        if limited:
            print(f"{held} of {len(limited)} lines held ({os.cpu_count()} cores{slow})")
        return 0


def lines_parser(doc: str, *, quick: bool = False) -> ArgumentParser:
    """The options of a benchmark that takes such lines. quick: `python -m benchmarks` runs it so."""
    made = parser(doc)
    made.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    if quick:
        made.add_argument("--quick", action="store_true", help="fewer tasks and calls: noisier")
    return made
