"""The figures of a benchmark, each beside its limit: taken, printed as soon as it is known, saved at the end."""

from __future__ import annotations

import json
import os
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripts.command_line import parser


def seconds(call: Callable[..., object], *arguments: object) -> float:
    """How long a call takes."""
    began = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - began


def peak_mb() -> float:
    """The most memory, in MiB, that this process has had."""
    # Not getrusage: what it calls the peak includes the process that started this one.
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024


@dataclass
class Lines:
    """`rows` is what --json saves: of each figure line, value, limit, unit, held and note."""

    rows: list[dict[str, Any]] = field(default_factory=list)

    def add(self, name: str, value: float, limit: float, unit: str, *, least: bool = False, note: str = "") -> None:
        """One figure, which is to be at most its limit, or with `least` at least. note: what to compare it with."""
        held = value >= limit if least else value <= limit
        self.rows.append({"line": name, "value": value, "limit": limit, "unit": unit, "held": held, "note": note})
        wanted = f"{'>=' if least else '<='} {limit:g}"
        print(f"{'ok  ' if held else 'MISS'} {name:<58} {value:>9.3f} {unit:<10} {wanted:<9} {note}", flush=True)

    def end(self, file: Path | None, timings: Sequence[dict[str, Any]] = ()) -> None:
        """Say how many lines held, and save them all, with timings that have no limit."""
        held = sum(row["held"] for row in self.rows)
        if file is not None:
            saved = {"held": held, "of": len(self.rows), "cores": os.cpu_count(), "lines": self.rows}
            saved |= {"timings": list(timings)} if timings else {}
            file.write_text(json.dumps(saved, indent=2) + "\n", encoding="utf-8")
        slow = "; PYTHONDONTWRITEBYTECODE is set, so starts take longer" if sys.dont_write_bytecode else ""
        print(f"{held} of {len(self.rows)} lines held ({os.cpu_count()} cores{slow})")


def lines_parser(doc: str, *, quick: bool = False) -> ArgumentParser:
    """The options of a benchmark that takes such lines."""
    made = parser(doc)
    made.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    if quick:
        made.add_argument("--quick", action="store_true", help="fewer tasks and calls: noisier")
    return made
