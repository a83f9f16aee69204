"""The folder of a run or a sweep: outputs/NAME-1, -2, ... where none is given; none is left of one that was refused."""

from __future__ import annotations

import atexit
import re
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

PARENT = Path("outputs")
_MADE_BEFORE_A_RUN = {"main.log", ".lock", "multirun.yaml"}  # beside empty files of records


def run_folder(given: str | None, name: str) -> str:
    """The folder `given`, or else a new one of this name. It is made at once, so that no other start takes it.

    Resolves ${run_folder:}. A folder that cannot be made is reported by whoever writes into it.
    """
    if given is not None:
        return given
    with suppress(OSError):
        PARENT.mkdir(exist_ok=True)
        known = (re.fullmatch(rf"{re.escape(name)}-(\d+)", path.name) for path in PARENT.iterdir())
        number = max((int(found[1]) for found in known if found), default=0)
        while True:
            number += 1
            with suppress(FileExistsError):
                (made := PARENT / f"{name}-{number}").mkdir()
                atexit.register(_discard_new, made)
                return str(made)
    return str(PARENT / f"{name}-1")


def discard(folder: Path) -> None:
    """Remove the folder of a run or a sweep that has not begun; one with a manifest, or a file of the user's, stays."""
    with suppress(OSError):
        files = list(folder.iterdir())
        if all(file.name in _MADE_BEFORE_A_RUN or _is_empty_record(file) or _is_empty_bank(file) for file in files):
            for file in files:
                file.unlink()
            folder.rmdir()


def _is_empty_record(file: Path) -> bool:
    ours = file.suffix == ".jsonl" or file.name.startswith(".bank.")
    return ours and file.is_file() and not file.stat().st_size


def _is_empty_bank(file: Path) -> bool:
    """Whether a file is the bank that a start made for itself, or what belongs to it, without a record."""
    if file.name.startswith("bank.sqlite."):
        return _is_empty_bank(file.with_name("bank.sqlite"))
    if file.name != "bank.sqlite" or not file.is_file():
        return False
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as db:
            return db.execute("SELECT count(*) FROM records").fetchone() == (0,)
    except sqlite3.Error:  # no bank; one in use has further files
        return False


def _discard_new(folder: Path) -> None:
    discard(folder)
    with suppress(OSError):
        PARENT.rmdir()  # if that was the first


def is_sweep(folder: Path) -> bool:
    """Whether a folder holds the runs of a sweep, and is not a run itself."""
    if not folder.is_dir() or (folder / "manifest.json").is_file():
        return False
    return (folder / "multirun.yaml").is_file() or any(folder.glob("*/manifest.json"))
