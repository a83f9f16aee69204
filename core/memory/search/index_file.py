"""The index's file beside a bank: `<bank>.index`. Only a cache: wrong, damaged or missing, it is made anew from SQLite.

A zip archive, whose checksums tell damage: facts.json {format, embedder, dim, graph, items, state, journal, codes},
keys.npy, and what faiss.write_index writes. `items` is the memory.key of an index of items, else false; `journal` is
the bank's last entry at the time: another bank's is another.
"""

from __future__ import annotations

import json
import logging
import os
import zipfile
from pathlib import Path
from typing import Any

from core.errors import StopRun
from core.memory.search.index import VectorIndex

FORMAT = 2
WORTH = 5_000  # entries: fewer are read from SQLite as fast


def path_of(bank: Path, items: bool) -> Path:
    """Where the index of a bank's records lies, or that of their items."""
    return bank.with_name(bank.name + (".items.index" if items else ".index"))


def remove(bank: Path) -> None:
    """Remove both."""
    for items in (False, True):
        path_of(bank, items).unlink(missing_ok=True)


def save(path: Path, index: VectorIndex, facts: dict[str, Any]) -> None:
    """Write an index, whole or not at all. The tail enters the main index first. Raises StopRun on a full disk."""
    import faiss
    import numpy as np

    index.merge()
    facts = facts | {"format": FORMAT, "dim": index.dim, "graph": index.graph, "codes": list(index.codes)}
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with zipfile.ZipFile(temporary, "w") as archive:
            archive.writestr("facts.json", json.dumps(facts))
            with archive.open("keys.npy", "w", force_zip64=True) as part:
                np.save(part, index.keys)
            with archive.open("faiss", "w", force_zip64=True) as part:
                writer = faiss.PyCallbackIOWriter(part.write)
                faiss.write_index(index.main, writer)
                del writer  # it writes what it still holds
        temporary.replace(path)
    except OSError as error:
        raise StopRun(f"{path} cannot be written: {error.strerror}.") from error
    finally:
        temporary.unlink(missing_ok=True)


def load(path: Path, facts: dict[str, Any]) -> tuple[VectorIndex, dict[str, Any]] | None:
    """(index, its facts) of a file that is whole and has these facts; None, and said, where it has not."""
    import faiss
    import numpy as np

    if not path.exists():
        return None
    try:
        with zipfile.ZipFile(path) as archive:
            found = json.loads(archive.read("facts.json"))
            if wrong := [name for name, value in (facts | {"format": FORMAT}).items() if found[name] != value]:
                raise ValueError(f"another {wrong[0]}")
            with archive.open("keys.npy") as part:
                keys = np.load(part)
            with archive.open("faiss") as part:
                main = faiss.read_index(faiss.PyCallbackIOReader(part.read))
                if part.read():
                    raise ValueError("it goes on behind its end")
    except (zipfile.BadZipFile, ValueError, LookupError, TypeError, RuntimeError, OSError, EOFError) as error:
        logging.getLogger(__name__).warning(f"{path} is not used ({error}): the index is made anew from the bank.")
        return None
    index = VectorIndex(found["dim"], found["graph"])
    index.restore(main, keys, {None if a is None else tuple(a): code for code, a in enumerate(found["codes"])})
    return index, found
