"""The warnings of `reasoningbank run`, in a file beside the bank: the bank may itself be what broke."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from core.memory.moment import now

MOST = 1000  # only the last entries are counted


def file_of(bank: Path) -> Path:
    """The file with a bank's warnings."""
    return bank.with_name(f"{bank.name}.warnings.jsonl")


def note(bank: Path, what: str, why: str) -> None:
    """Keep one warning; where the folder cannot be written to, say so."""
    try:
        with file_of(bank).open("a", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps({"at": now(), "what": what, "why": why}, ensure_ascii=False) + "\n")
    except OSError as error:
        print(f"memory: the warning is not counted: {file_of(bank)}: {error.strerror}", file=sys.stderr)


def count(bank: Path) -> dict[str, Any]:
    """{counts: {what: how often}, last} of the warnings that are kept; {} without any."""
    try:
        lines = file_of(bank).read_text(encoding="utf-8", errors="replace").splitlines()[-MOST:]
    except FileNotFoundError:
        return {}
    entries = []
    for line in lines:
        try:
            entry = json.loads(line)
            entries.append({"at": str(entry["at"]), "what": str(entry["what"]), "why": str(entry["why"])})
        except (ValueError, KeyError, TypeError):
            entries.append({"at": "", "what": "unreadable", "why": line[:200]})
    return {"counts": dict(Counter(entry["what"] for entry in entries)), "last": entries[-1]} if entries else {}
