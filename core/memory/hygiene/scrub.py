"""Removal of credentials and personal data from a text; mathematics stays as it is."""

from __future__ import annotations

from dataclasses import replace

from core.memory.hygiene import pii
from core.redact import secret_spans
from core.types import Lesson, MemoryRecord


def scrub(text: str, *, personal: bool = True) -> tuple[str, tuple[str, ...]]:
    """(text with placeholders such as `[removed secret]` or `[removed email]`, kinds found). Idempotent.

    personal   False: credentials only
    """
    found = [(start, end, "secret") for start, end in secret_spans(text)]
    found += pii.spans(text) if personal else ()
    parts, at = [], 0
    for start, end, label in _merged(found):
        parts += [text[at:start], f"[removed {label}]"]
        at = end
    return "".join((*parts, text[at:])), tuple(sorted({kind for *_, kind in found}))


def scrub_record(record: MemoryRecord, *, personal: bool = True) -> tuple[MemoryRecord, set[str]]:
    """(the record with its texts scrubbed, kinds found). personal   as of `scrub`."""
    found: set[str] = set()

    def clean(text: str) -> str:
        text, kinds = scrub(text, personal=personal)
        found.update(kinds)
        return text

    items = tuple(Lesson(**{name: clean(text) for name, text in vars(item).items()}) for item in record.items)
    query, tags, provenance = clean(record.original_query), tuple(map(clean, record.tags)), record.provenance
    for name in ("url", "notes"):  # given by a client, by a model
        if isinstance(text := provenance.get(name), str):
            provenance = provenance | {name: clean(text)}
    if not found:
        return record, found
    return replace(record, items=items, original_query=query, tags=tags, provenance=provenance), found


def scrub_records(records: list[MemoryRecord], *, personal: bool) -> tuple[list[MemoryRecord], set[str]]:
    """(the records scrubbed, with a note in their provenance of what was found; the queries that were changed)."""
    kept, changed = [], set()
    for record in records:
        clean, found = scrub_record(record, personal=personal)
        if found:
            notes = sorted({*record.provenance.get("hygiene", ()), *found})
            clean = replace(clean, provenance=clean.provenance | {"hygiene": notes})
        if clean.original_query != record.original_query:
            changed.add(clean.original_query)
        kept.append(clean)
    return kept, changed


def _merged(found: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """Merge overlapping spans; a merged one has the label of the first (a credential before personal data)."""
    merged: list[tuple[int, int, str]] = []
    for start, end, label in sorted(found, key=lambda f: (f[0], f[2] != "secret", -f[1])):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]), merged[-1][2])
        else:
            merged.append((start, end, label))
    return merged
