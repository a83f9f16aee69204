"""How many lines each file of a folder has, noted beside them: a file that is shorter than that has lost its end.

A number is noted after a line is written, and before lines are removed, so a kill never leaves one that is too large.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from zlib import crc32

_BYTES = getattr(os, "O_BINARY", 0)


class LineCounts:
    """The notes of the one process that writes the files. Thread-safe.

    names   of the files
    """

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | _BYTES, 0o644)
        lengths = [len(_line(name, 0)) for name in names]
        self._places = {name: sum(lengths[:place]) for place, name in enumerate(names)}
        self._lock = threading.Lock()
        known = noted_lines(path)
        for name in names:
            self.note(name, known.get(name, 0))

    def of(self, name: str) -> Callable[[int], None]:
        """The function that notes the number of lines of this file."""
        return partial(self.note, name)

    def note(self, name: str, n: int) -> None:
        with self._lock:
            os.lseek(self._file, self._places[name], os.SEEK_SET)
            os.write(self._file, _line(name, n))

    def close(self) -> None:
        os.close(self._file)


def noted_lines(path: Path) -> dict[str, int]:
    """{file: the number of lines that is noted}, without what is damaged; {} if nothing is noted."""
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return {}
    found = [line.split() for line in lines]
    noted = {each[0].decode("ascii", "replace"): each[1] for each in found if len(each) == 3 and each[1].isdigit()}
    return {name: int(n) for name, n in noted.items() if _line(name, int(n)) in lines}


def _line(name: str, n: int) -> bytes:
    text = f"{name} {n:012}".encode()
    return b"%b %08x\n" % (text, crc32(text))
