"""The index's file beside a bank: `<bank>.index`. Only a cache: wrong, damaged or missing, it is made anew from SQLite.

A line of JSON {format, embedder, dim, graph, items, count, state, journal, codes, checksum}, then the keys as int64,
then FAISS's own bytes. `journal` is the bank's last entry at the time, by which a file of another bank is told.
"""

from __future__ import annotations

import json
import logging
import os
import zlib
from pathlib import Path
from typing import Any

from core.errors import StopRun
from core.memory.search.index import VectorIndex

FORMAT = 1
WORTH = 5_000  # entries: fewer are read from SQLite as fast
WIDTH = 200  # bytes before the header's line end, so that the checksum can be put in last


class Checked:
    """A file that sums up what passes."""

    def __init__(self, file: Any) -> None:
        self.file, self.sum = file, 1

    def write(self, data: Any) -> int:
        self.sum = zlib.adler32(data, self.sum)
        self.file.write(data)
        return len(data)

    def read(self, size: int) -> bytes:
        data = self.file.read(size)
        self.sum = zlib.adler32(data, self.sum)
        return data


def save(path: Path, index: VectorIndex, facts: dict[str, Any]) -> None:
    """Write an index, whole or not at all. The tail enters the main index first. Raises StopRun on a full disk."""
    import faiss

    index.merge()
    header = facts | {"format": FORMAT, "dim": index.dim, "graph": index.graph, "count": len(index)}
    header["codes"] = list(index.codes)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            body = Checked(file)
            file.write(b" " * WIDTH + b"\n")
            body.write(json.dumps(header).encode() + b"\n")
            body.write(index.keys.tobytes())
            writer = faiss.PyCallbackIOWriter(body.write)
            faiss.write_index(index.main, writer)
            del writer  # it writes what it still holds
            file.seek(0)
            file.write(json.dumps({"checksum": body.sum}).encode())
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise StopRun(f"{path} cannot be written: {error.strerror}.") from error
    finally:
        temporary.unlink(missing_ok=True)


def load(path: Path, facts: dict[str, Any]) -> tuple[VectorIndex, dict[str, Any]] | None:
    """(index, header) of a file that is whole and has these facts; None, and said, where it has not."""
    import faiss
    import numpy as np

    if not path.exists():
        return None
    try:
        with path.open("rb") as file:
            checksum = json.loads(file.readline())["checksum"]
            body = Checked(file)
            line = file.readline()
            body.sum = zlib.adler32(line, body.sum)
            header = json.loads(line)
            wrong = [name for name, value in (facts | {"format": FORMAT}).items() if header[name] != value]
            if wrong:
                raise ValueError(f"another {wrong[0]}")
            keys = np.frombuffer(body.read(24 * header["count"]), dtype=np.int64).reshape(-1, 3).copy()
            main = faiss.read_index(faiss.PyCallbackIOReader(body.read))
            if body.sum != checksum or main.ntotal != len(keys) or main.d != header["dim"]:
                raise ValueError("its checksum does not fit")
    except (ValueError, KeyError, TypeError, RuntimeError, OSError) as error:
        logging.getLogger(__name__).warning(f"{path} is not used ({error}): the index is made anew from the bank.")
        return None
    index = VectorIndex(header["dim"], header["graph"])
    codes = {None if a is None else tuple(a): code for code, a in enumerate(header["codes"])}
    index.restore(main, keys, codes)
    return index, header
