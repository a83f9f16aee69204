"""Removal of credentials and personal data from a text; mathematics stays as it is."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import replace

from core.memory.hygiene import pii
from core.redact import forms_in
from core.types import Lesson, MemoryRecord


def scrub(text: str, *, personal: bool = True) -> tuple[str, tuple[str, ...]]:
    """(text with placeholders such as `[removed secret]` or `[removed email]`, kinds found). Idempotent.

    personal   False: credentials only
    """
    found = [(start, end, "secret", kind) for start, end, kind in credential_spans(text)]
    found += [(start, end, kind, kind) for start, end, kind in (pii.spans(text) if personal else ())]
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


def _merged(found: list[tuple[int, int, str, str]]) -> list[tuple[int, int, str]]:
    """Merge overlapping spans; a merged one has the label of the first (a credential before personal data)."""
    merged: list[tuple[int, int, str]] = []
    for start, end, label, _ in sorted(found, key=lambda f: (f[0], f[2] != "secret", -f[1])):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]), merged[-1][2])
        else:
            merged.append((start, end, label))
    return merged


# Detection of credentials: by a provider's format, by the name before them, by how random they look.

# A name such as "secret", then a value with both letters and digits; `token = 5` or `key: x+1` are no secrets.
_NAME = (
    r"api[_-]?key|secret(?:[_-]?key)?|access[_-]?key|passw(?:or)?d|passwd|pwd|passphrase|"
    r"auth[_-]?token|token|credential"
)
_NAMED = re.compile(_NAME)
_ASSIGNED = re.compile(
    rf"(?i)\b(?:[a-z0-9]{{1,20}}[_-]){{0,3}}(?:{_NAME})s?[\"']?(?:\s*[:=]\s*|\s+is\s+)[\"']?"
    r"([^\s\"'`,;)\]}\\]{8,200})"
)
# In a URL: the value of a parameter such as "key", or a user name before the host.
_IN_URL = re.compile(
    r"(?i)(?<=[?&;#])(?:[a-z0-9]{1,20}[_.-]){0,3}(?:key|token|secret|sig(?:nature)?|password|passwd|pwd|pass|auth|code|session(?:id)?|"
    r"jwt|credential|sas)=([^\s&#\"'<>)\]]{6,2000})|(?<=://)([^\s/:@?#]{12,200})(?=@)"
)
_LONG = re.compile(r"(?<![A-Za-z0-9\\])[A-Za-z0-9]{32,400}(?![A-Za-z0-9])")


def credential_spans(text: str) -> list[tuple[int, int, str]]:
    """Spans of credentials in a text: (start, end, kind), unsorted, possibly overlapping."""
    found = [(m.start(), m.end(), kind) for kind, pattern in forms_in(text) for m in pattern.finditer(text)]
    if not text.isascii() or _NAMED.search(text.lower()):  # most texts hold no such name, and _ASSIGNED is slow
        found += [(m.start(1), m.end(1), "assigned") for m in _ASSIGNED.finditer(text) if _is_opaque(m.group(1))]
    if "=" in text or "://" in text:
        found += [(*m.span(m.lastindex or 0), "url") for m in _IN_URL.finditer(text) if _is_real(m)]
    return found + [(m.start(), m.end(), "token") for m in _LONG.finditer(text) if _is_random(m.group())]


def _is_real(match: re.Match[str]) -> bool:
    # Excludes placeholders, such as <key> or your_key.
    value = match.group(match.lastindex or 0)
    return bool(re.search(r"\d", value)) and not re.match(r"[<{$%\[(]|\.\.\.|x{4}|your", value, re.IGNORECASE)


def _is_opaque(value: str) -> bool:
    # Excludes links, placeholders and formulas.
    return bool(re.search(r"[A-Za-z]", value) and re.search(r"\d", value)) and not re.search(r"[\\^(<$]|://", value)


def _is_random(text: str) -> bool:
    """Whether a string mixes upper case, lower case and digits with at least 4 bits of entropy per character."""
    if re.fullmatch(r"(?i)(?:0x)?[0-9a-f]+", text):
        return False  # a hexadecimal number
    kinds = (sum(map(test, text)) for test in (str.isupper, str.islower, str.isdigit))
    if min(kinds) < 3:
        return False
    counts = Counter(text).values()
    return -sum(n / len(text) * math.log2(n / len(text)) for n in counts) >= 4.0
