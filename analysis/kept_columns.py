"""The columns of runs that a table was made of before, kept in outputs/.cache: another look at them reads no episode.

What is kept of a run is used as long as none of its files has changed, nor the bank that it was given, nor this
program. A run that has not ended, or whose reading said something (of damage, of an earlier version), is read each
time. A file that another user could have written is not used: with it, tables would differ from records that pass an
audit. Without a folder outputs nothing is kept.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

from core.terminal import n_said
from core.types import content_id

FOLDER = Path("outputs/.cache/columns")
MOST = 5_000  # runs that are kept; of more, a tenth is dropped, those first that were kept first
YOUNG_NS = 2_000_000_000  # a file that has just changed can change again without a later time of change
PROGRAM = ("core", "analysis", "config")
Marks = dict[str, list[int]]  # {file: its size, time of change and inode}


def kept(path: Path) -> dict[str, Any] | None:
    """What is kept of a run; None if nothing is, or if it is damaged or of another state."""
    with suppress(OSError, ValueError, KeyError, TypeError), _file_of(path).open("rb") as opened:
        if not _is_own(os.fstat(opened.fileno())):
            return None
        head, _, data = opened.read().partition(b"\n")
        about = json.loads(head)
        if about["program"] == _program() and about["crc32"] == crc32(data):
            made = json.loads(data)
            if about["marks"] == _marks(path) | _marks_of(_bank_files(made["bank"])):
                return made
    return None


def made_and_kept(path: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `make` returns for a run, which is kept if it may be.

    make   returns JSON data; its "bank" is the path of the bank that the run was given, or None; its "keep" says
           whether it may be kept
    """
    if not FOLDER.parent.parent.is_dir():
        return make()
    before, n_before, began = _marks(path), n_said(), time.time_ns()
    made = make()
    if made["keep"] and n_said() == n_before and _marks(path) == before:
        marks = before | _marks_of(_bank_files(made["bank"]))
        if max(changed for _, changed, _ in marks.values()) < began - YOUNG_NS:
            _keep(_file_of(path), marks, made)
    return made


def _file_of(path: Path) -> Path:
    return FOLDER / f"{content_id(str(path.resolve()))}.json"


def _keep(file: Path, marks: Marks, made: dict[str, Any]) -> None:
    """Write what was made; where that is not possible, it is made again next time."""
    data = json.dumps(made, separators=(",", ":")).encode()
    head = json.dumps({"program": _program(), "crc32": crc32(data), "marks": marks}).encode()
    temporary = file.with_name(f"{file.name}.{os.getpid()}")
    with suppress(OSError):
        if not FOLDER.is_dir():
            FOLDER.mkdir(parents=True)
        temporary.write_bytes(head + b"\n" + data)
        temporary.chmod(0o600)
        temporary.replace(file)
        if len(kept := list(FOLDER.iterdir())) > MOST:
            for old in sorted(kept, key=lambda each: each.stat().st_mtime_ns)[: len(kept) - MOST * 9 // 10]:
                old.unlink()


def _is_own(facts: os.stat_result) -> bool:
    """Whether a file is this user's, and nobody else may write it. Windows has its folders for that."""
    return not hasattr(os, "getuid") or (facts.st_uid == os.getuid() and not facts.st_mode & 0o022)


def _marks(path: Path) -> Marks:
    """Those of all files of a run."""
    return _marks_of(Path(folder, name) for folder, _, names in os.walk(path.resolve()) for name in names)


def _bank_files(bank: str | None) -> list[Path]:
    """The files of the bank that a run was given, with its journal and what SQLite has beside it."""
    return sorted(Path(bank).absolute().parent.glob(f"{Path(bank).name}*")) if bank else []


def _marks_of(files: Iterable[Path]) -> Marks:
    found: Marks = {}
    for file in files:
        with suppress(FileNotFoundError):  # a run that is going on removes some
            facts = file.stat()
            found[str(file)] = [facts.st_size, facts.st_ctime_ns, facts.st_ino]
    return found


@cache
def _program() -> str:
    """An id of the code and the configuration that columns are made by."""
    root = Path(__file__).resolve().parents[1]
    files = [file for name in PROGRAM for kind in ("*.py", "*.yaml") for file in sorted((root / name).rglob(kind))]
    return content_id([[str(file), file.stat().st_size, file.stat().st_mtime_ns] for file in files])
