"""`bank edit`: lessons as Markdown in an editor, and what was changed there made in the bank, as one change."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import InfraError, UserError
from core.memory.formats.markdown import Section, document, parse, record_of
from core.memory.hygiene.scrub import scrub_records
from core.memory.moment import now
from core.memory.store.changes import Change
from core.textfile import read_text
from core.types import MemoryRecord

if TYPE_CHECKING:
    from core.memory.bank import MemoryBank

NOTE = (
    "Change tasks, outcomes, domains, tags, titles, descriptions, texts; take sections out; add some without an id: "
    "`## TASK`, `### TITLE`, and below it the text."
)
UNREADABLE = "<!-- This cannot be read: {} Mend it, or save it as it is to give up. -->\n"
FIELDS = ("query", "lessons", "outcome", "domain", "tags")  # of a section, what an edit may change
Edited = list[tuple[Section, Section]]


def edit(bank: MemoryBank) -> Generator[str, None, int]:
    """Let the user edit the active lessons of the bank's namespace; lines that say what was changed, and 0 or 1.

    A text that cannot be read is opened again; given up, it is kept and named in a UserError. Of a record only the
    fields that were edited are written. 1: others changed some of them meanwhile, so they stay, and the text is kept.
    """
    text = document(bank.records(bank.namespace, "active"), NOTE)
    before = {section.facts["id"]: section for section in parse(text, "the bank")}
    file, wrong = Path(tempfile.mkdtemp(prefix="lessons-")) / "LESSONS.md", ""
    try:
        while True:
            shown = (UNREADABLE.format(wrong) if wrong else "") + text
            file.write_text(shown, encoding="utf-8", errors="replace", newline="\n")
            _open_editor(file)
            text = read_text(file)
            if text == shown and wrong:
                raise UserError(wrong)
            try:
                changed, removed, added = compare(before, parse(text, file.name))
                break
            except UserError as error:
                text = text.removeprefix(UNREADABLE.format(wrong)) if wrong else text
                wrong = str(error)
                print(f"error: {error}", file=sys.stderr)
        since = bank.history.seq()
        made, left = _make(bank, changed, removed, added)
    except (UserError, InfraError) as error:
        raise UserError(f"{error} Nothing was changed, and your text is kept in {file}.") from error
    if any(made.values()):
        tenant = "" if bank.namespace == "default" else f" --namespace {bank.namespace}"
        yield ", ".join(f"{n} {what}" for what, n in made.items() if n)
        yield f"undo with: reasoningbank bank rollback {bank.path} --to {since}{tenant}"
    elif not left:
        yield "nothing was changed"
    if left:
        yield from (f"not touched, as others have changed it meanwhile: {id}" for id in left)
        yield f"your text is kept in {file}"
        return 1
    shutil.rmtree(file.parent)
    return 0


def _open_editor(file: Path) -> None:
    chosen = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ("notepad" if os.name == "nt" else "vi")
    try:
        status = subprocess.run([*shlex.split(chosen, posix=os.name != "nt"), str(file)], check=False).returncode
    except (OSError, ValueError) as error:
        raise UserError(f"the editor {chosen} cannot be started ({error}): set $EDITOR.") from error
    if status:
        raise UserError(f"the editor {chosen} ended with status {status}.")


def compare(before: Mapping[str, Section], after: list[Section]) -> tuple[Edited, list[Section], list[Section]]:
    """(changed sections as (before, after), removed, added). UserError for what an edit cannot change."""
    changed, added, kept = [], [], set()
    for section in after:
        where, id = f"line {section.line}", section.facts.get("id", "")
        if not id:
            added.append(section)
            continue
        if (old := before.get(id)) is None or id in kept:
            raise UserError(f"{where}: {id} was no lesson here, or is there twice: leave out the id of a new one.")
        kept.add(id)
        if section == old:
            continue
        fixed = [name for name in section.facts.keys() | old.facts.keys() if name not in FIELDS]
        for name in fixed:
            if section.facts.get(name) != old.facts.get(name):
                raise UserError(f"{where}: `{name}` cannot be changed: {', '.join(FIELDS)} can.")
        if section.heading != old.heading and old.heading and section.query == old.query:
            raise UserError(f"{where}: change the task where it stands in full, below its heading.")
        if not section.lessons and old.lessons:
            raise UserError(f"{where}: the task has no lesson left: take out its whole section.")
        changed.append((old, section))
    if before and not after:
        raise UserError("the text holds no lesson any more (to delete all for good: reasoningbank bank forget).")
    return changed, [section for id, section in before.items() if id not in kept], added


def _make(
    bank: MemoryBank, changed: Edited, removed: list[Section], added: list[Section]
) -> tuple[dict[str, int], list[str]]:
    """Make the changes, in one; ({what: how many}, ids of what others have changed meanwhile)."""
    made: dict[str, int] = {"changed": 0, "removed": 0, "added": 0, "without a credential that it held": 0}
    left: list[str] = []
    with bank.change("edit") as change:

        def clean(record: MemoryRecord) -> MemoryRecord:
            [kept], _ = scrub_records([record], personal=bank.redact == "personal")
            made["without a credential that it held"] += kept.text != record.text
            return kept

        for old, new in changed:
            record, there = _present(change, old)
            names = [name for name in FIELDS if _value(old, name) != _value(new, name)]
            if there is None or any(_value(there, n) not in (_value(old, n), _value(new, n)) for n in names):
                left.append(old.facts["id"])
                continue
            wanted = record_of(new, bank.namespace)
            exact = dict(zip(there.lessons, record.items))  # what cannot be seen stays, too
            fields: dict[str, Any] = {name: getattr(wanted, name) for name in names if name in ("domain", "tags")}
            fields |= {"items": tuple(exact.get(item, item) for item in new.lessons)} if "lessons" in names else {}
            if "outcome" in names:
                fields |= {"outcome": wanted.outcome, "score": wanted.score, "label_source": "hand"}
            if "query" in names:
                fields |= {"original_query": wanted.original_query, "task_id": wanted.task_id}
            edited = clean(replace(record, **fields))
            if "query" in names:  # its vector is new: the old row goes and a new one comes
                change.remove(record.id)
                change.add(edited)
            else:
                change.update(record.id, **{name: getattr(edited, name) for name in (*fields, "provenance")})
            made["changed"] += 1
        for old in removed:
            record, there = _present(change, old)
            if there is not None and any(_value(there, name) != _value(old, name) for name in FIELDS):
                left.append(record.id)
            elif there is not None:
                made["removed"] += change.remove(record.id)
        for new in added:
            record = replace(record_of(new, bank.namespace), namespace=bank.namespace, tick=bank.tick())
            made["added"] += change.add(clean(replace(record, created_at=record.created_at or now())))
    return made, left


def _present(change: Change, old: Section) -> tuple[Any, Section | None]:
    """(the record of a section as it is now, its section now); the latter None if it is no longer there, or active."""
    record = change.get(old.facts["id"])
    if record is None or record.status != "active":
        return record, None
    return record, parse(document([record], ""), "the bank")[0]


def _value(section: Section, name: str) -> Any:
    return getattr(section, name) if name in ("query", "lessons") else section.facts.get(name, "")
