"""Markdown: a bank as a document to read, oldest record first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.escaping import markdown
from core.memory.moment import last_use
from core.memory.policies.trust import feedback, warning_of
from core.memory.records import n_records
from core.types import MemoryRecord

if TYPE_CHECKING:
    from core.memory.bank import MemoryBank


def write(bank: MemoryBank, path: Path, namespace: str | None) -> int:
    """Write every active record as a section; returns how many. `list --status` shows the other records."""
    found = bank.records(namespace)
    records = [record for record in found if record.status == "active"]
    others = Counter(record.status for record in found if record.status != "active")
    marks = f"marked {sum(r.n_helpful for r in records)} times helpful, {sum(r.n_harmful for r in records)} harmful"
    left_out = "".join(f", {count} {status} left out" for status, count in sorted(others.items()))
    parts = [f"# Memory bank: {n_records(len(records))}", f"{marks}{left_out}"]
    # Not how often each was used: a bank's document that is kept in git would change with every retrieval.
    parts += [shown(record, bank.of(record.namespace).links(record.id), uses=False) for record in records]
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8", errors="replace", newline="\n")
    return len(records)


def shown(record: MemoryRecord, links: Sequence[tuple[str, str, str, str]] = (), *, uses: bool = True) -> str:
    """One record as Markdown, in which all that others wrote can be read: its query, fields, links and items.

    uses   also how often and when it was last retrieved
    """
    facts = {
        "id": record.id,
        "outcome": f"{record.outcome} (by {record.label_source})",
        "status": record.status,
        "quarantined for": ", ".join(record.provenance.get("quarantine", ())) if record.status == "quarantined" else "",
        "task": record.task_id,
        "namespace": record.namespace,
        "domain": record.domain,
        "tags": ", ".join(record.tags),
        "confidence": record.confidence,
        "trust": record.trust if record.trust != 1.0 else None,
        "used": f"{record.n_used} times, {record.n_used_success} in a success" if uses and record.n_used else None,
        "marked": f"helpful {record.n_helpful}, harmful {record.n_harmful}, trust score {feedback(record):+.2f}",
        "tried": _tried(record.provenance.get("validated")),
        "warning": warning_of(record),
        "merged from": ", ".join(record.parents),
        "created": record.created_at,
        "last used": used.isoformat(timespec="seconds")
        if uses and record.last_used and (used := last_use(record))
        else None,
        "source": record.provenance.get("url"),
    }
    lines = [f"## {_flat(record.original_query[:200])}", ""]
    lines += [f"- {name}: {_flat(str(value))}" for name, value in facts.items() if value not in (None, "")]
    lines += [
        f"- {_flat(f'{source} {relation} {target}')}{note and ': ' + _flat(note)}"
        for source, relation, target, note in links
    ]
    for item in record.items:
        lines += ["", f"### {_flat(item.title)}", ""]
        lines += [f"*{_flat(item.description)}*", ""] if item.description else []
        # Quoted, so that a heading in the content is not one of the document.
        lines += [f"> {line}".rstrip() for line in markdown(item.content).splitlines()]
    return "\n".join(lines)


def _tried(found: dict[str, Any] | None) -> str:
    """What the trials of memory.validate found of a record."""
    if not found:
        return ""
    n = len(found["tasks"])
    return f"on {n} earlier task{'s' * (n != 1)}: {found['won_with']} solved with it, {found['won_without']} without"


def dated(links: list[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    """Convert links from `Contents.link_details` to the form that `shown` takes, with the date in the note."""
    return [
        (each["source"], each["relation"], each["target"], ", ".join(filter(None, (each["note"], each["created_at"]))))
        for each in links
    ]


def _flat(text: str) -> str:
    return markdown(" ".join(text.split()))
