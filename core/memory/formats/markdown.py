"""Markdown: lessons as a document to read and to edit, oldest record first.

    ## Deploy the site
    - outcome: failure
    - tags: ci, deploy

    ### Clear the cache before the upload
    *When the old page is still served.*
    > The uploader compares sizes, so a changed file of the same size stays as it was.

A section is a record: its task, facts, and lessons with title, description and text. A task of more than one line
stands in full below the facts. A text is quoted, or where a renderer would not show all of it, in a fence (```text); a
line is then in backquotes. What is written by hand needs neither. What precedes the first section is ignored.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import UserError
from core.escaping import markdown, printable
from core.memory.formats.portable import Portable
from core.memory.moment import last_use
from core.memory.policies.trust import feedback, warning_of
from core.memory.records import n_records, tried
from core.textfile import read_text
from core.types import Lesson, MemoryRecord, content_id

if TYPE_CHECKING:
    from core.memory.bank import MemoryBank

log = logging.getLogger(__name__)

HEADING = 200  # characters of a task in its heading
OUTCOMES = ("success", "failure")
FACTS = ("id", "outcome", "by", "domain", "tags", "namespace", "task", "created", "source")
TOLD = ("marked", "warning", "merged from")  # facts that are written and not read
_HEADING = re.compile(r"(###?)(?:[ \t]+(.*))?")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^`]*)")
_FACT = re.compile(r"- ([a-z][a-z ]*):(.*)")


@dataclass(frozen=True, kw_only=True)
class Section:
    """A record as a document has it. heading: of a task that stands in full below it; else ""."""

    line: int = field(compare=False)
    heading: str
    query: str
    facts: Mapping[str, str]
    lessons: tuple[Lesson, ...]


def write(bank: MemoryBank, path: Path, namespace: str | None) -> int:
    """Write every active record as a section; returns how many. `list --status` shows the other records."""
    found = bank.records(namespace)
    records = [record for record in found if record.status == "active"]
    others = Counter(record.status for record in found if record.status != "active")
    marks = f"marked {sum(r.n_helpful for r in records)} times helpful, {sum(r.n_harmful for r in records)} harmful"
    left_out = "".join(f", {count} {status} left out" for status, count in sorted(others.items()))
    text = document(records, f"{marks}{left_out}")
    path.write_text(text, encoding="utf-8", errors="replace", newline="\n")
    return len(records)


def document(records: Sequence[MemoryRecord], note: str) -> str:
    """Records as a document; `parse` reads it back. note: stands above them."""
    return (
        "\n\n".join([f"# Memory bank: {n_records(len(records))}", note, *(shown(r, whole=False) for r in records)])
        + "\n"
    )


def shown(record: MemoryRecord, links: Sequence[tuple[str, str, str, str]] = (), *, whole: bool = True) -> str:
    """A record as a section, in which all that others wrote can be read.

    whole   with all that is known of it; False: with what a document has, which does not change by a retrieval
    """
    quarantine, used = record.provenance.get("quarantine", ()), last_use(record) if record.last_used else None
    facts = {
        "id": record.id,
        "outcome": record.outcome,
        "by": record.label_source,
        "domain": record.domain,
        "tags": ", ".join(record.tags),
        "namespace": record.namespace if whole or record.namespace != "default" else "",
        "task": record.task_id if whole or record.task_id != content_id("task", record.original_query) else "",
        "marked": f"helpful {record.n_helpful}, harmful {record.n_harmful}, trust score {feedback(record):+.2f}"
        if whole or record.n_helpful or record.n_harmful
        else "",
        "tried": tried(record.provenance.get("validated")) if whole else "",
        "warning": warning_of(record),
        "merged from": ", ".join(record.parents),
        "created": record.created_at,
        "source": record.provenance.get("url"),
    }
    if whole:
        facts |= {
            "status": record.status,
            "quarantined for": ", ".join(quarantine) if record.status == "quarantined" else "",
            "confidence": record.confidence,
            "trust": record.trust if record.trust != 1.0 else "",
            "used": f"{record.n_used} times, {record.n_used_success} in a success" if record.n_used else "",
            "last used": used.isoformat(timespec="seconds") if used else "",
        }
    lines = [f"## {_line(record.original_query[:HEADING])}", ""]
    lines += [f"- {name}: {_line(str(value))}" for name, value in facts.items() if value not in (None, "")]
    lines += [f"- {_line(' '.join(link[:3]) + (link[3] and ': ' + link[3]))}" for link in links]
    if record.original_query != _flat(record.original_query)[:HEADING]:
        lines += ["", *_block(record.original_query)]
    for item in record.items:
        lines += ["", f"### {_line(item.title)}", ""]
        lines += [f"*{_line(item.description)}*", ""] if item.description.strip() else []
        lines += _block(item.content)
    return "\n".join(lines)


def _flat(text: str) -> str:
    return " ".join(text.split())


def _line(text: str) -> str:
    """A text in one line, in backquotes where a renderer would not show all of it or `_exact` would take off some."""
    text = _flat(text)
    if markdown(text) == text == _exact(text) == text.strip("*"):
        return text
    ticks = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{ticks} {printable(text)} {ticks}"


def _exact(line: str) -> str:
    """What `_line` was given."""
    quoted = re.fullmatch(r"(`+) (.+) \1", line)
    return quoted[2] if quoted else line


def _block(text: str) -> list[str]:
    """A text as a quote, or in a fence where a renderer would not show all of it."""
    text = text.replace("\r\n", "\n")
    if markdown(text) == text:
        return [f"> {line}".rstrip() for line in text.strip("\n").split("\n")] if text.strip() else []
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return [f"{fence}text", *printable(text).strip("\n").split("\n"), fence]


def _said(lines: list[str]) -> str:
    """The text that `_block` was given, or that stands there by itself."""
    while lines and not lines[-1]:
        lines = lines[:-1]
    while lines and not lines[0]:
        lines = lines[1:]
    fence = re.fullmatch("(`{3,})text", lines[0]) if lines else None
    if fence and fence[1] in lines and lines.index(fence[1]) == len(lines) - 1:
        return "\n".join(lines[1:-1])
    if all(line.startswith(">") for line in lines):
        lines = [line[1:].removeprefix(" ") for line in lines]
    return "\n".join(lines)


def parse(text: str, name: str) -> list[Section]:
    """The sections of a document. UserError, with `name` and the line, for what is none."""
    found: list[list[tuple[int, str, list[str]]]] = []  # for each section (line, heading, lines below) of its headings
    fence, opened = "", 0
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        line = line.rstrip()
        head, mark = None if fence else _HEADING.fullmatch(line), _FENCE.fullmatch(line)
        if mark and not fence:
            fence, opened = mark[1], number
        elif mark and mark[1].startswith(fence) and not mark[2]:
            fence = ""
        if head and head[1] == "##":
            found.append([])
        if head and not found:
            raise UserError(f"{name} line {number}: a lesson stands below its task: write `## TASK` above it.")
        if head:
            found[-1].append((number, _exact(head[2] or ""), []))
        elif found:
            found[-1][-1][2].append(line)
    if fence:
        raise UserError(f"{name} line {opened}: the fence is not closed: write {fence} below its text.")
    return [_read(section, name) for section in found]


def _read(headed: list[tuple[int, str, list[str]]], name: str) -> Section:
    (number, heading, lines), *lessons = headed
    facts, place = {}, 0
    while place < len(lines) and (not lines[place] or _FACT.fullmatch(lines[place])):
        if fact := _FACT.fullmatch(lines[place]):
            if fact[1] not in (*FACTS, *TOLD):
                raise UserError(f"{name} line {number + 1 + place}: {fact[1]} is none of {', '.join(FACTS)}.")
            facts[fact[1]] = _exact(fact[2].strip())
        place += 1
    query, where, is_new = _said(lines[place:]), f"{name} line {number}", not facts.get("id")
    if is_new and not (query or heading).strip():
        raise UserError(f"{where}: the task is missing: write it behind ##.")
    if facts.get("outcome", OUTCOMES[0]) not in OUTCOMES:
        raise UserError(f"{where}: outcome {facts['outcome'][:40]}: give {' or '.join(OUTCOMES)}.")
    if is_new and not lessons:
        raise UserError(f"{where}: the task has no lesson: write `### TITLE` and its text below it.")
    for line, title, _ in lessons:
        if is_new and not title.strip():
            raise UserError(f"{name} line {line}: the lesson has no title: write it behind ###.")
    items = tuple(_lesson(title, below) for _, title, below in lessons)
    return Section(line=number, heading=heading if query else "", query=query or heading, facts=facts, lessons=items)


def _lesson(title: str, lines: list[str]) -> Lesson:
    first = next((place for place, line in enumerate(lines) if line), 0)
    described = re.fullmatch(r"\*([^*].*[^*]|[^*])\*", lines[first]) if lines else None
    text = _said(lines[first + 1 :] if described else lines)
    return Lesson(title=title, description=_exact(described[1]) if described else "", content=text)


def record_of(section: Section, namespace: str) -> MemoryRecord:
    """The record of a section. namespace: where the section names none."""
    facts, outcome = section.facts, section.facts.get("outcome", OUTCOMES[0])
    made = content_id("by hand", section.query, section.lessons, outcome)
    return MemoryRecord(
        id=facts.get("id") or made,
        original_query=section.query,
        items=section.lessons,
        source_trajectory_id="",
        score=float(outcome == "success"),
        outcome=outcome,
        label_source=facts.get("by") or "hand",
        task_id=facts.get("task") or content_id("task", section.query),
        namespace=facts.get("namespace") or namespace,
        created_at=facts.get("created", ""),
        domain=facts.get("domain", ""),
        tags=tuple(tag for each in facts.get("tags", "").split(",") if (tag := each.strip())),
        provenance={"source": "hand"} | ({"url": facts["source"]} if facts.get("source") else {}),
    )


def read(path: Path, bank: MemoryBank) -> Portable:
    """Read a document. What the bank has under an id stays as it is, with a warning where the document says another."""
    records = [record_of(section, bank.namespace) for section in parse(read_text(path), str(path))]
    known = [(record, bank.of(record.namespace).get(record.id)) for record in records]
    if n := sum(
        there is not None and shown(there, whole=False) != shown(record, whole=False) for record, there in known
    ):
        log.warning(f"{n_records(n)} of {path} are in the bank in other words, and stay so: `bank edit` changes them.")
    return Portable(records=records)


def dated(links: list[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    """Convert links from `Contents.link_details` to the form that `shown` takes, with the date in the note."""
    return [
        (each["source"], each["relation"], each["target"], ", ".join(filter(None, (each["note"], each["created_at"]))))
        for each in links
    ]
