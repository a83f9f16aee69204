"""Import and export of banks: JSON lines (lossless), Markdown (to edit), formats of other servers and the authors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import UserError
from core.memory.formats import insight_memory, json_lines, markdown, paper_authors, reasoningbank_mcp, skill
from core.memory.formats.portable import Portable, check, take_in

if TYPE_CHECKING:
    from core.memory.bank import MemoryBank
    from core.types import MemoryRecord

FORMATS = {  # each a module with `write` and `read`
    "jsonl": json_lines,
    "markdown": markdown,
    "mcp": reasoningbank_mcp,
    "insight_memory": insight_memory,
    "authors": paper_authors,
    "skill": skill.SKILLS,  # a folder
    "agents": skill.AGENTS,
}
# What a reader meets where a value is not of the kind that the format has there.
_MALFORMED = (AttributeError, LookupError, TypeError, ValueError, ArithmeticError, RecursionError)


def export(bank: MemoryBank, path: Path, form: str, namespace: str | None = None) -> int:
    """Write a bank's records to a file; returns how many. namespace None: all. UserError on a bad path."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return _known(form).write(bank, path, namespace)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}.") from error


def by_name(path: Path) -> str:
    """The format that a file's name asks for."""
    return "markdown" if path.suffix.lower() in (".md", ".markdown") else "jsonl"


def load(
    bank: MemoryBank, path: Path, form: str, namespace: str | None = None, *, authors: bool = False
) -> tuple[int, int]:
    """Import a file, as `read`; returns (records added, records stored already)."""
    return take_in(bank, read(bank, path, form, namespace, authors=authors), f"import {form}: {path.name}")


def read(bank: MemoryBank, path: Path, form: str, namespace: str | None = None, *, authors: bool = False) -> Portable:
    """What a file holds for a bank. UserError names the entry that does not fit.

    namespace   the tenant that gets the records; None: each record's own
    authors     note in each record's provenance whose it was in the file
    """
    others = f"It was read as {form}: --format also knows {', '.join(name for name in FORMATS if name != form)}."
    reader = _known(form).read
    try:
        found: Portable = reader(path, bank)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from error
    except UserError as error:
        raise UserError(f"{error} {others}" if path.is_file() else str(error)) from error
    except _MALFORMED as error:
        raise UserError(f"{_malformed(path, form, error)} {others}") from error
    try:
        check(bank, found)
    except _MALFORMED as error:
        raise UserError(_malformed(path, form, error)) from error
    if namespace is not None:
        _check_one_lesson_an_id(found.records, namespace, path)
        if authors:
            found.records = [replace(r, provenance={"author": r.namespace} | r.provenance) for r in found.records]
        found.records = [replace(record, namespace=namespace) for record in found.records]
        found.links = {namespace: [link for links in found.links.values() for link in links]}
    return found


def _malformed(path: Path, form: str, error: Exception) -> str:
    why = " ".join(f"{type(error).__name__}: {error}".split())
    return f"{path} is no file of the format {form}, or is damaged ({why:.200})."


def _check_one_lesson_an_id(records: list[MemoryRecord], namespace: str, path: Path) -> None:
    """UserError if two namespaces have different lessons with the same id: one of them would be lost."""
    first: dict[str, MemoryRecord] = {}
    for record in records:
        other = first.setdefault(record.id, record)
        if other.namespace != record.namespace and _taught(other) != _taught(record):
            raise UserError(
                f"{path}: {other.namespace} and {record.namespace} have different lessons of the id {record.id}, which "
                f"cannot both go to {namespace}: import without --namespace, or an export of one tenant alone."
            )


def _taught(record: MemoryRecord) -> tuple:
    return record.original_query, record.items, record.outcome, record.task_id


def _known(form: str) -> Any:
    if form not in FORMATS:
        raise UserError(f"format={form}: give {', '.join(FORMATS)}.")
    return FORMATS[form]
