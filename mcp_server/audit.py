"""A sample of the extractions, kept beside the bank for a person to check (`server.audit_share`)."""

from __future__ import annotations

import argparse
import json
import logging
from pathlib import Path
from typing import Any

from core.errors import InfraError, UserError
from core.jsonl import JsonLines, read_lines
from core.learning.transcript import transcript
from core.memory.hygiene.scrub import scrub
from core.memory.moment import now
from core.types import MemoryRecord, Trajectory, Verdict, digest
from mcp_server.config import bank_file

log = logging.getLogger(__name__)


def is_sampled(job_id: str, share: float) -> bool:
    """Whether a job is in a sample of this share: by a hash of its id, so that every server draws alike."""
    return int(digest("audit", job_id)[:8], 16) / 16**8 < share


def path_of(bank: str | Path) -> Path:
    """Where the sample of a bank lies."""
    return Path(f"{bank}.audit.jsonl")


def keep(bank: str | Path, job_id: str, attempt: Trajectory, verdict: Verdict, record: MemoryRecord) -> None:
    """Append an extraction to the sample, credentials and personal data taken out as from a lesson.

    Where it cannot be written a warning says so, and the extraction goes on.
    """
    row = {
        "at": now(),
        "job": job_id,
        "memory_id": record.id,
        "agent_id": record.namespace,
        "query": record.original_query,
        "attempt": transcript(attempt),
        "verdict": {"label": verdict.label, "by": verdict.source, "reason": verdict.reason},
        "confidence": verdict.confidence,
        "lessons": [dict(vars(lesson)) for lesson in record.items],
    }
    try:
        file = JsonLines(path_of(bank), redact=lambda text: scrub(text)[0])
        try:
            file.append(row)
        finally:
            file.close()
    except (UserError, InfraError) as error:
        log.warning(f"an extraction is not in the audit's sample: {error}")


def run_audit(argv: list[str]) -> int:
    """The command `audit`: print the sample, oldest first; returns the exit code."""
    top = argparse.ArgumentParser(prog="reasoningbank serve audit", description=__doc__.partition("\n")[0])
    top.add_argument("--bank", type=Path, metavar="PATH", help="the bank's file; left out: as for the server")
    top.add_argument("--last", type=int, metavar="N", help="only the last N")
    top.add_argument("--json", action="store_true", help="one JSON object a line")
    given = top.parse_args(argv)
    if given.last is not None and given.last < 1:
        raise UserError(f"--last {given.last}: give a whole number of at least 1.")
    path = path_of(bank_file(given))
    if not path.exists():
        raise UserError(f"there is no {path}: a server keeps a sample with server.audit_share=0.05.")
    rows = list(read_lines(path))
    first = 0 if given.last is None else max(0, len(rows) - given.last)
    for number, row in enumerate(rows[first:], first + 1):
        print(json.dumps(row, ensure_ascii=False) if given.json else as_text(row, f"{number} of {len(rows)}"))
    return 0


def as_text(row: dict[str, Any], place: str) -> str:
    """An extraction as a person reads it."""
    verdict = row["verdict"]
    sure = "" if row["confidence"] is None else f", confidence {row['confidence']:.2f}"
    lines = [
        f"# {place}: memory {row['memory_id']} of {row['agent_id']}, {row['at']}",
        f"\n## Task\n{row['query']}\n\n## What the agent did\n{row['attempt']}",
        f"\n## Verdict: {verdict['label']} (by {verdict['by']}{sure})\n{verdict['reason']}".rstrip(),
        "\n## Lessons",
        *(f"- {item['title']}: {item['description']}\n  {item['content']}" for item in row["lessons"]),
    ]
    return "\n".join(lines) + "\n"
