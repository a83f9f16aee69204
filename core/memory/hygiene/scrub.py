"""Take credentials and personal data out of a text; mathematics stays as it is."""

from __future__ import annotations

from core.memory.hygiene import pii, secrets


def scrub(text: str) -> tuple[str, tuple[str, ...]]:
    """(the text with `[removed secret]` or `[removed email]` and the like in their place, the kinds found).

    Scrubbing its own result changes nothing.
    """
    found = [(start, end, "secret", kind) for start, end, kind in secrets.credential_spans(text)]
    found += [(start, end, kind, kind) for start, end, kind in pii.spans(text)]
    parts, at = [], 0
    for start, end, label in _merged(found):
        parts += [text[at:start], f"[removed {label}]"]
        at = end
    return "".join((*parts, text[at:])), tuple(sorted({kind for *_, kind in found}))


def _merged(found: list[tuple[int, int, str, str]]) -> list[tuple[int, int, str]]:
    """Overlapping findings as one, named after the first (a credential before personal data)."""
    merged: list[tuple[int, int, str]] = []
    for start, end, label, _ in sorted(found, key=lambda f: (f[0], f[2] != "secret", -f[1])):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]), merged[-1][2])
        else:
            merged.append((start, end, label))
    return merged
