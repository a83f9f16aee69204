"""What `reasoningbank run` says on stderr, and its result object."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

from core.errors import UserError
from core.jsonl import in_strings
from core.memory.bank import MemoryBank
from core.redact import redactor
from core.types import Scored
from mcp_server import run_records
from mcp_server.run_command import CommandResult

SHARE_OF_SAME = 0.005  # a difference of less than half a per cent is none


def list_lessons(hits: list[Scored]) -> None:
    """One line on stderr for each lesson that was retrieved."""
    for number, hit in enumerate(hits, 1):
        titles, record = " / ".join(lesson.title for lesson in hit.record.items), hit.record
        sure = "" if record.confidence is None else f", confidence {record.confidence:.2f}"
        about = f"from a {record.outcome}, {min(hit.score, 1):.2f}{sure}"
        print(f"memory: [{number}] {titles} ({about})", file=sys.stderr)


def new_memories(bank: MemoryBank, ids: list[str], verdict: dict[str, Any]) -> list[dict[str, Any]]:
    """{id, title, verdict, confidence} of the records that a run has learned."""
    about = {"verdict": verdict["label"], "confidence": verdict["confidence"]}
    return [{"id": id, "title": " / ".join(item.title for item in bank.get(id).items), **about} for id in ids]


def note_run(bank: Path, command: list[str], result: dict[str, Any], task: str, done: CommandResult, most: int) -> None:
    """Add the run to the bank's list of runs, and the comparison with the earlier ones to its result.

    Without a folder for the bank there is no list either, and an earlier warning said so.
    """
    if not bank.parent.is_dir():
        return
    verdict = result["verdict"] or {}
    row = {
        "agent_id": result["agent_id"],
        "exit_status": result["exit_status"],
        "verdict": verdict.get("label"),
        "label_source": verdict.get("source"),
        "confidence": result["confidence"],
        "memory_enabled": result["memory_enabled"],
        **{name: len(result[name]) for name in ("retrieved", "used", "learned", "warnings")},
        **{name: result[name] for name in ("retrieve_s", "duration_s", "learn_s")},
    }
    earlier = run_records.keep(bank, command, row, (task, done.output, done.errors), most)
    if earlier:
        result |= {"mean_duration_s": fmean(earlier), "earlier_runs": len(earlier)}


def report(where: str | None, result: dict[str, Any]) -> None:
    """Print what was learned and how it went to stderr, and write the result as JSON where --result asks for it.

    Raises UserError if the file cannot be written.
    """
    verdict = result["verdict"] or {}
    for new in result["new_memories"]:
        sure = "" if new["confidence"] is None else f", {new['confidence']:.2f}"
        print(f"memory: learned: {new['title']} (from a {new['verdict']}{sure})", file=sys.stderr)
    label, took = verdict.get("label") or "not judged", f"{result['duration_s']:.1f} s{compared(result)}"
    why_not = f" ({result['why_not']})" if result["why_not"] else ""
    print(f"memory: {label}, {result['memories_learned']} learned{why_not}, {took}", file=sys.stderr)
    result = in_strings(result, redactor().certain)
    if where == "-":
        print(json.dumps(result, ensure_ascii=False))
    elif where:
        try:
            Path(where).write_text(json.dumps(result, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n")
        except OSError as error:
            raise UserError(f"{where}: {error.strerror}") from error


def compared(result: dict[str, Any]) -> str:
    """How the duration compares with the mean of earlier successful runs of the same command; "" without any."""
    mean, n = result["mean_duration_s"], result["earlier_runs"]
    if not mean or result["exit_status"] != 0:
        return ""
    share = 1 - result["duration_s"] / mean
    how = "as long as" if abs(share) < SHARE_OF_SAME else f"{abs(share):.0%} {'faster' if share > 0 else 'slower'} than"
    return f", {how} the mean of {n} earlier run{'s' if n > 1 else ''}"
