"""Operations on insights: store one under a unique title, filter by tags, delete, export."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from core.errors import UserError
from core.memory import formats
from core.memory.bank import MemoryBank
from core.memory.by_hand import set_status, versions
from core.memory.consolidation.deduplicate import titles_near
from core.memory.filter import normal_tag
from core.memory.formats.insight_memory import LAST, iso, next_id, query_of
from core.memory.hygiene.scrub import scrub_records
from core.normal_form import folded
from core.types import MemoryRecord, content_id
from mcp_server import checks
from mcp_server.service import clients_verdict, new_record

MAX_EXPORT = 200_000  # bytes in one answer
NEAR = 3  # titles fewer edits apart than this count as the same


def store_insight(
    bank: MemoryBank, title: str, tags: list[str], content: str, url: str, *, overwrite: bool
) -> tuple[str, str]:
    """Store an insight: (status, id). Raises UserError if one of the texts is too long or missing.

    saved         stored as a new insight
    same          an identical one exists
    duplicate     one with nearly the same title exists, and overwrite is False: nothing was stored
    updated       with overwrite: stored under the id and with the counts of that one, which a rollback restores
    quarantined   stored, but not retrievable; it replaces nothing
    """
    lesson, url, names = checks.lesson(title, "", content), checks.url(url), checks.tags(tags, 1)
    about = {"kind": "insight"} | ({"url": url} if url else {})
    id = content_id("insight", bank.namespace, lesson, names, url)
    query = query_of(lesson.title, names, lesson.content)
    record = new_record(bank, id, query, (lesson,), clients_verdict(True), tags=names, about=about)
    if bank.hygiene is not None:
        record = bank.hygiene.screen(record, bank, shown=())  # the client wrote it: nothing in it was copied
    [record], _ = scrub_records([record], personal=bank.redact == "personal")
    keys = bank.keys_of(record)
    with bank.change(f"insight: {id}") as change:
        added = datetime.now(UTC)
        record = replace(record, created_at=iso(added))
        twin = _of_like_title(bank, record.items[0].title)
        old = twin and change.get(twin)
        if old is not None and "url" in old.provenance:  # an update that names no source keeps the one that is there
            record = replace(record, provenance={"url": old.provenance["url"]} | record.provenance)
        if old is not None and _says_the_same(old, record):
            return "same", twin
        if old is not None and not overwrite:
            return "duplicate", twin
        if record.status != "active":
            change.put(record, keys)
            return "quarantined", id
        if old is None:
            id, number = next_id(bank)
            change.reason = f"insight: {id}"
            record = replace(record, id=id)
            change.put(record, keys)
            change.fact(LAST, str(number))
            return "saved", id
        kept = "id task_id created_at tick confidence n_used n_used_success n_helpful n_harmful".split()
        # Its query and so its vector are new: the old row goes and a new one comes, and the journal has both.
        change.reason = f"insight: {twin}, replaced"
        change.remove(twin)
        record = replace(record, **{name: getattr(old, name) for name in kept}, last_used=added.timestamp())
        change.put(record, keys)
        return "updated", twin


def _of_like_title(bank: MemoryBank, title: str) -> str | None:
    """The id of the active record with this title, else of the newest with nearly this one."""
    titles = bank.titles()[::-1]
    same = (id for id, taken in titles if folded(taken) == folded(title))
    near = (id for id, taken in titles if titles_near(title, taken, NEAR))
    return next(same, None) or next(near, None)


def _says_the_same(one: MemoryRecord, other: MemoryRecord) -> bool:
    return (one.items, one.tags, one.provenance.get("url")) == (other.items, other.tags, other.provenance.get("url"))


def with_tags(records: Iterable[MemoryRecord], tags: Iterable[str]) -> list[MemoryRecord]:
    """The records that have all of these tags, compared without regard to case."""
    wanted = {normal_tag(tag) for tag in tags}
    return [record for record in records if wanted <= {normal_tag(tag) for tag in record.tags}]


def delete(bank: MemoryBank, id: str, *, for_good: bool) -> list[str]:
    """Archive a record, or with for_good erase it, what it corrected and what was merged from it; returns the ids."""
    if for_good:
        return [gone for each in versions(bank, id) for gone in bank.history.forget(id=each)]
    set_status(bank, id, "archived", "deleted by the client")
    return [id]


def exported(bank: MemoryBank, form: str) -> str:
    """The memories of the bank's namespace as text. Raises UserError if that is too long for an answer."""
    form = "insight_memory" if form == "json" else form
    with tempfile.TemporaryDirectory() as folder:  # the caller names no path, and no file is left behind
        path = Path(folder) / "export"
        formats.export(bank, path, form, bank.namespace)
        if path.stat().st_size > MAX_EXPORT:
            raise UserError(
                f"the export has {path.stat().st_size} bytes, an answer at most {MAX_EXPORT}: run "
                f"`reasoningbank bank export {bank.path} FILE --format {form} --namespace {bank.namespace}`."
            )
        return path.read_text(encoding="utf-8")
