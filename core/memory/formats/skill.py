"""Lessons as files that coding agents read: a SKILL.md for each domain, or a marked block in AGENTS.md.

    DIR/lessons-python/SKILL.md     format skill; front matter that says when to use it
    AGENTS.md                       format agents; only what stands between BEGIN and END is ever replaced

Only lessons that are active and, where they were marked or tried, did no harm. A comment before each, which `read`
needs, says where it comes from.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from core.errors import UserError
from core.escaping import printable
from core.memory.formats.portable import Portable
from core.textfile import read_text, write_whole
from core.types import Lesson, MemoryRecord, content_id

if TYPE_CHECKING:
    from core.memory.bank import MemoryBank

BEGIN, END = "<!-- reasoningbank:begin -->", "<!-- reasoningbank:end -->"
MADE = "<!-- The next export replaces this: change lessons by `reasoningbank bank edit`. -->"
GENERAL = "general"  # the domain of records without one
MOST = 20_000  # characters of one file: about 5 000 tokens, what clients advise for a skill
HEAD = 250  # characters before a skill's lessons, without its description
DESCRIPTION, TASK = 1_024, 100  # characters of a skill's description, which clients limit, and of a task in it
_LESSON = re.compile(r"<!-- lesson (\{.*\}) -->\n")


def write_skills(bank: MemoryBank, path: Path, namespace: str | None = None) -> int:
    """Write a folder of skills; returns the number of records in them."""
    if path.is_file():
        raise UserError(f"{path} is a file: a skill is a folder, give its parent, such as .claude/skills.")
    by_domain = defaultdict(list)
    for record in _fit(bank, namespace):
        by_domain[record.domain or GENERAL].append(record)
    written = 0
    for domain, records in sorted(by_domain.items()):
        slug = re.sub(r"[^a-z0-9]+", "-", domain.lower()).strip("-")
        is_plain = slug == domain and len(slug) < 50
        name = f"lessons-{slug}" if is_plain else f"lessons-{slug[:40]}-{content_id(domain)[:6]}"  # C and C++ are two
        text, n = _sections(records, MOST - DESCRIPTION - HEAD)
        about = _about(domain, records[:n])
        head = f"---\nname: {name}\ndescription: {json.dumps(about, ensure_ascii=False)}\n---\n\n{MADE}\n# Lessons\n\n"
        (path / name).mkdir(parents=True, exist_ok=True)
        write_whole(path / name / "SKILL.md", head + text)
        written += n
    return written


def _about(domain: str, records: list[MemoryRecord]) -> str:
    """A skill's description, by which alone an agent decides whether to read it: the tasks that its lessons are of."""
    begun = "Lessons from earlier tasks" + (f" about {domain}" if domain != GENERAL else "") + ", such as: "
    end = ". Read them before you begin a task like these."
    tasks = dict.fromkeys(" ".join(re.sub("[<>]", "", record.original_query).split())[:TASK] for record in records)
    text = begun + "; ".join(tasks)
    return text[: DESCRIPTION - len(end)].rsplit("; ", 1)[0] + end if len(text + end) > DESCRIPTION else text + end


def write_agents(bank: MemoryBank, path: Path, namespace: str | None = None) -> int:
    """Write the block of a file, and leave all else in it as it is; returns the number of records in the block."""
    before = read_text(path) if path.exists() else ""
    path = path.resolve()  # of a link the file that it leads to
    in_order = BEGIN not in before or before.find(BEGIN) < before.find(END)
    if before.count(BEGIN) != before.count(END) or before.count(BEGIN) > 1 or not in_order:
        raise UserError(f"{path} has {BEGIN} or {END} without the other, or twice: mend that by hand first.")
    text, n = _sections(_fit(bank, namespace), MOST)
    block = f"{BEGIN}\n{MADE}\n# Lessons from earlier tasks\n\n{text}{END}"
    if BEGIN in before:
        first, _, rest = before.partition(BEGIN)
        whole = first + block + rest.partition(END)[2]
    else:
        whole = f"{before.rstrip()}\n\n{block}\n" if before.strip() else f"{block}\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, whole)
    return n


def read(path: Path, bank: MemoryBank) -> Portable:
    """The records of a skill's folder, of a folder of skills, or of a file with a block."""
    files = sorted(path.rglob("SKILL.md")) if path.is_dir() else [path]
    found: dict[str, MemoryRecord] = {}
    for file in files:
        for record in _records(read_text(file), bank.namespace):
            known = found.get(record.id)
            found[record.id] = record if known is None else _joined(known, record)
    if not found:
        raise UserError(f"{path} holds no lesson that `bank export` wrote.")
    return Portable(records=list(found.values()))


def _fit(bank: MemoryBank, namespace: str | None) -> list[MemoryRecord]:
    """The active records that did no harm, the best first."""
    records = [record for record in bank.records(namespace, status="active") if record.items and not _harms(record)]
    return sorted(records, key=lambda r: (r.n_harmful - r.n_helpful, -(r.confidence or 0.0), -r.tick, r.id))


def _harms(record: MemoryRecord) -> bool:
    tried = record.provenance.get("validated") or {}
    return record.n_harmful > record.n_helpful or tried.get("won_with", 0) < tried.get("won_without", 0)


def _sections(records: Iterable[MemoryRecord], most: int) -> tuple[str, int]:
    """(the lessons as text of at most so many characters, how many records that are)."""
    parts, size, left = [], 0, 0
    records = list(records)
    for number, record in enumerate(records):
        text = "".join(_section(record, item) for item in record.items)
        if size + len(text) > most - 100:
            left = len(records) - number
            break
        parts.append(text)
        size += len(text)
    more = f"({left} more are in the bank.)\n\n" if left else ""
    return "".join(parts) + more, len(parts)


def _section(record: MemoryRecord, item: Lesson) -> str:
    about = {"id": record.id, "task": record.original_query, "outcome": record.outcome, "domain": record.domain}
    about |= {"title": item.title, "description": item.description}
    comment = json.dumps(about, ensure_ascii=False).replace("--", "-\\u002d").replace(">", "\\u003e")
    text = printable(item.content).replace("<!--", "&lt;!--")
    return f"<!-- lesson {comment} -->\n## {printable(' '.join(item.title.split()))}\n\n{text.strip()}\n\n"


def _records(text: str, namespace: str) -> Iterator[MemoryRecord]:
    if BEGIN in text:
        text = text.partition(BEGIN)[2].partition(END)[0]
    pieces = _LESSON.split(re.sub(r"\(\d+ more are in the bank\.\)\s*\Z", "", text))
    for about, said in zip(pieces[1::2], pieces[2::2], strict=True):
        facts = json.loads(about)
        content = said.partition("\n")[2].strip().replace("&lt;!--", "<!--")  # without the heading
        yield MemoryRecord(
            id=facts["id"],
            original_query=facts["task"],
            items=(Lesson(title=facts["title"], description=facts["description"], content=content),),
            source_trajectory_id="",
            score=float(facts["outcome"] == "success"),
            outcome=facts["outcome"],
            label_source="import",
            task_id=content_id("task", facts["task"]),
            namespace=namespace,
            domain=facts.get("domain", ""),
            provenance={"source": "skill"},
        )


def _joined(one: MemoryRecord, other: MemoryRecord) -> MemoryRecord:
    """A record with the lessons of both parts."""
    from dataclasses import replace

    return replace(one, items=(*one.items, *other.items))


SKILLS = SimpleNamespace(write=write_skills, read=read)
AGENTS = SimpleNamespace(write=write_agents, read=read)
