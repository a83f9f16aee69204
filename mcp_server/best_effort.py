"""What `reasoningbank run` does for a task with its memory: a failure is a warning, and the task goes on."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.errors import InfraError, UserError
from core.redact import redactor
from mcp_server import run_records


@dataclass(kw_only=True)
class BestEffort:
    """Runs the memory's steps for a task. An error or a timeout is only a warning: the task goes on."""

    bank: Path
    warnings: list[dict[str, str]] = field(default_factory=list)
    step: str = "start"  # the current step
    stuck: bool = False  # a step exceeded its time and still runs

    def do(self, step: str, seconds: float, function: Callable[[], Any], otherwise: str = "") -> Any:
        """Call the function and return its result; None if it fails or takes longer than `seconds`.

        otherwise   a sentence for the warning: what is done instead
        """
        self.step = step
        outcome: dict[str, Any] = {}

        def work() -> None:
            try:
                outcome["value"] = function()
            except BaseException as error:  # noqa: BLE001 - warned of and counted below; the task must go on
                outcome["error"] = error

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(seconds)
        if "value" in outcome:
            return outcome["value"]
        if "error" in outcome:
            error = outcome["error"]
            plain = isinstance(error, UserError | InfraError)
            why = str(error) if plain else f"{type(error).__name__}: {error}"
        else:
            self.stuck = True
            why = f"not done within {seconds:.3g} s."
        self.warn(step, f"{why[:400]} {otherwise}")
        return None

    def warn(self, step: str, why: str) -> None:
        """Print a warning to stderr and record it for bank_status; a repeated one is ignored."""
        why = " ".join(redactor()(why).split())[:500]  # a provider's error may quote a key
        if why in [warning["why"] for warning in self.warnings]:
            return
        self.warnings.append({"what": step, "why": why})
        print(f"memory: warning: {step}: {why}", file=sys.stderr)
        try:
            run_records.warn(self.bank, step, why)
        except UserError as error:
            print(f"memory: the warning is not counted: {error}", file=sys.stderr)


class WarningHandler(logging.Handler):
    """Turns logged warnings, such as of a repaired bank or a failed consolidation, into warnings of the task."""

    def __init__(self, best_effort: BestEffort) -> None:
        super().__init__(logging.WARNING)
        self.best_effort = best_effort

    def emit(self, record: logging.LogRecord) -> None:
        self.best_effort.warn(self.best_effort.step, record.getMessage())
