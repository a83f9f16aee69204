"""JSON lines: a header, then each record with its embedding, then the links. Lossless, except for the journal.

An import can be undone, but changes made before the export cannot, since the journal is not exported.
"""

from __future__ import annotations

import base64
import json
from array import array
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import UserError
from core.memory.formats.portable import Portable, rows
from core.memory.records import record_from
from core.memory.store.schema import to_dict

if TYPE_CHECKING:
    from core.memory.bank import MemoryBank

HEAD = "reasoning memory"


def write(bank: MemoryBank, path: Path, namespace: str | None) -> int:
    """Write records and links; returns the number of records."""
    records = bank.records(namespace)
    known = {record.id for record in records}
    spaces = sorted({record.namespace for record in records})
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(json.dumps({"format": HEAD, "version": 1, "embedder": bank.embedder.name}) + "\n")
        for record in records:
            vector = base64.b64encode(array("f", record.query_embedding).tobytes()).decode()
            file.write(json.dumps({"record": to_dict(record) | {"query_embedding": vector}}) + "\n")
        for space in spaces:
            for link in bank.of(space).links():
                if {link[0], link[2]} <= known:
                    file.write(json.dumps({"link": link, "namespace": space}) + "\n")
    return len(records)


def read(path: Path, bank: MemoryBank) -> Portable:
    """Read a file made by `write`. UserError names the line that does not fit."""
    lines = rows(path)
    _, head = next(lines, (0, None))
    if not isinstance(head, dict) or head.get("format") != HEAD or head.get("version") != 1:
        raise UserError(f"{path} does not begin as an export of a bank does.")
    found, spaces = Portable(records=[], embedder=head.get("embedder")), {}
    for number, line in lines:
        try:
            if "link" in line:
                source, *_ = line["link"]
                space = line.get("namespace") or spaces.get(source, bank.namespace)  # older files: unique ids
                found.links.setdefault(space, []).append(tuple(line["link"]))
                continue
            vector = array("f", base64.b64decode(line["record"].get("query_embedding", "")))
            found.records.append(record_from(line["record"] | {"query_embedding": vector}))
            spaces[found.records[-1].id] = found.records[-1].namespace
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{path} line {number} holds no record: {error}.") from error
    return found
