"""The commands of `reasoningbank bank`: (bank, arguments) -> lines to print. The docstrings are its help."""

from __future__ import annotations

import json
from argparse import Namespace
from collections import Counter
from collections.abc import Generator, Iterator
from typing import Any

from core.errors import UserError
from core.memory import formats
from core.memory.filter import Filter
from core.memory.formats.markdown import dated, shown
from core.memory.hygiene.notes import told
from core.memory.records import n_records
from core.memory.store.schema import to_dict
from core.types import Lesson, MemoryRecord, Scored, content_id


def stats(bank: Any, given: Namespace) -> Iterator[str]:
    """count what is in a bank"""
    records, made_with = bank.records(), bank.made_with()
    notes = [{*r.provenance.get("hygiene", ()), *r.provenance.get("quarantine", ())} for r in records]
    found = {
        "records": len(records),
        "items": sum(len(record.items) for record in records),
        "namespaces": dict(Counter(record.namespace for record in records)),
        "statuses": dict(Counter(record.status for record in records)),
        "outcomes": dict(Counter(record.outcome for record in records)),
        "domains": dict(Counter(record.domain for record in records if record.domain)),
        "hygiene": dict(Counter(note for of_record in notes for note in of_record)),
        "links": sum(len(bank.of(name).links()) for name in {record.namespace for record in records}),
        "tick": bank.tick(),
        "changes": bank.history.seq(),
        "snapshots": bank.history.snapshots(),
        "embedder": bank.embedder.name if records else None,
        "dimensions": made_with["dim"],
        "embedder since": made_with["since"],
        "megabytes": round(bank.size() / 1e6, 2),
    }
    if given.json:
        yield json.dumps(found)
        return
    for name, value in found.items():
        text = ", ".join(f"{key} {n}" for key, n in value.items()) if isinstance(value, dict) else value
        yield f"{name + ':':<16} {'-' if text in ('', None) else text}"


def list_(bank: Any, given: Namespace) -> Iterator[str]:
    """one line a record, oldest first"""
    records = bank.records(given.namespace, given.status)
    names = {record.namespace for record in records}
    width = 0 if names <= {"default"} else max(map(len, names))
    for record in records[-given.limit :] if given.limit else records:
        yield _line(record, given.json, namespace=f"{record.namespace:<{width}}" if width else "")


def show(bank: Any, given: Namespace) -> Iterator[str]:
    """one record in full"""
    record = bank.existing(_id(bank, given.id))
    links = bank.link_details(record.id)
    yield json.dumps(to_dict(record) | {"links": links}) if given.json else shown(record, dated(links))


def search(bank: Any, given: Namespace) -> Iterator[str]:
    """the records nearest to a query, with their similarity; a policy's threshold would leave some of them out"""
    where = Filter(domain=given.domain, tags=tuple(given.tag or ()), outcome=given.outcome)
    ask = bank.lexical if given.lexical else bank.nearest
    hits: list[Scored] = ask(given.query, given.k, where=where)
    for hit in hits:
        yield _line(hit.record, given.json, hit.score)


def add(bank: Any, given: Namespace) -> Iterator[str]:
    """store a lesson by hand"""
    item = Lesson(title=given.title, description=given.description, content=given.content)
    task = given.task or content_id("task", given.query)
    record = MemoryRecord(
        id=content_id("by hand", given.query, item, given.outcome),
        original_query=given.query,
        items=(item,),
        source_trajectory_id="",
        score=float(given.outcome == "success"),
        outcome=given.outcome,
        label_source="hand",
        task_id=task,
        tick=bank.tick(),
        domain=given.domain or "",
        tags=tuple(given.tag or ()),
        provenance={"source": "hand"},
    )
    yield f"{record.id} {'added' if bank.add(record) else 'was there already'}"


def mark(bank: Any, given: Namespace) -> Iterator[str]:
    """count a record as helpful or harmful"""
    from core.memory.by_hand import mark_record

    record = mark_record(bank, _id(bank, given.id), given.verdict == "helpful")
    yield f"{record.id} helpful {record.n_helpful} harmful {record.n_harmful}"


def status(bank: Any, given: Namespace) -> Iterator[str]:
    """release a record from quarantine, archive it, bring it back: only active ones are retrieved"""
    from core.memory.by_hand import set_status

    record = set_status(bank, _id(bank, given.id), given.status, "by hand")
    yield f"{record.id} {record.status}"


def review(bank: Any, given: Namespace) -> Iterator[str]:
    """show the quarantined lessons, which wait for a person; approve or reject some of them"""
    from core.memory.by_hand import set_status

    decided = dict.fromkeys(given.approve or (), "active") | dict.fromkeys(given.reject or (), "archived")
    decided = {_id(bank, id): status for id, status in decided.items()}
    for id in decided:
        if (status := bank.existing(id).status) != "quarantined":
            raise UserError(f"the record {id} is {status} and does not wait for a review: nothing was changed.")
    for id, status in decided.items():
        yield f"{id} {set_status(bank, id, status, 'reviewed').status}"
    if not decided:
        for record in bank.records(given.namespace, "quarantined"):
            yield f"{shown(record)}\n\n{told(record, given.bank)}\n"


def edit(bank: Any, given: Namespace) -> Generator[str, None, int]:
    """open the active lessons as Markdown in $VISUAL or $EDITOR, and make what you changed there, as one change"""
    from core.memory.edit import edit as edit_lessons

    return edit_lessons(bank)


def export(bank: Any, given: Namespace) -> Iterator[str]:
    """write all records to a file"""
    if str(given.file) == "-":
        raise UserError("export writes a file: give its name, or /dev/stdout.")
    form = given.format or formats.by_name(given.file)
    yield f"{n_records(formats.export(bank, given.file, form, given.namespace))} written to {given.file} as {form}"


def import_(bank: Any, given: Namespace) -> Iterator[str]:
    """add the records of a file"""
    form, space = given.format or formats.by_name(given.file), given.group or given.namespace
    found = formats.read(bank, given.file, form, space, authors=bool(given.group))
    there = [(record, bank.of(record.namespace).get(record.id)) for record in found.records]
    added, known = formats.take_in(bank, found, f"import {form}: {given.file.name}")
    yield f"{n_records(added)} added, {known} were there already or refused"
    if others := sum(old is not None and old.items != new.items for new, old in there):
        yield f"{others} of them say something else in the bank, which stays: `reasoningbank bank edit` changes it"


def consolidate(bank: Any, given: Namespace) -> Iterator[str]:
    """deduplicate, merge and prune now, without a model; with --contradict look for contradictions too"""
    from core.memory.consolidation.confidence import Confidence
    from core.memory.consolidation.consolidator import Consolidator
    from core.memory.consolidation.contradict import Contradict, NLIChecker
    from core.memory.consolidation.deduplicate import Deduplicate
    from core.memory.consolidation.merge import Merge, Voting
    from core.memory.consolidation.prune import Prune

    steps = {"deduplicate": Deduplicate, "merge": lambda: Merge(author=Voting())}
    if given.contradict is not None:
        checker = NLIChecker(model=given.contradict) if given.contradict else NLIChecker()
        steps["contradict"] = lambda: Contradict(many=given.many, checker=checker)
    steps["prune"] = lambda: Prune(delete_after_days=given.delete_after_days)
    if unknown := set(given.only or ()) - steps.keys():
        raise UserError(f"--only {unknown.pop()}: give --contradict as well.")
    chosen = {name: make() for name, make in steps.items() if name in (given.only or steps)}
    records, since = bank.records(), bank.history.seq()
    before = Counter(record.status for record in records)
    kept = any(r.confidence is not None for r in records if r.namespace == bank.namespace)  # else nothing fades in here
    bank.consolidate = Consolidator(confidence=Confidence() if kept else None, **chosen)
    bank.consolidate.consolidate(bank)
    after = Counter(record.status for record in bank.records())
    for status in sorted(before | after):
        yield f"{status}: {before[status]} -> {after[status]}"
    tenant = f" --namespace {given.namespace}" if given.namespace is not None else ""
    yield f"undo with: reasoningbank bank rollback {bank.path} --to {since}{tenant}"


def reembed(bank: Any, given: Namespace) -> Iterator[str]:
    """store the vectors that lessons are found by with memory.key=joined or item; those that are there are made anew"""
    yield f"{n_records(bank.reembed(given.key))} embedded anew, with their lessons"


def snapshot(bank: Any, given: Namespace) -> Iterator[str]:
    """name the present state, or list what there is to go back to"""
    if given.name:
        yield f"{given.name} is change {bank.history.snapshot(given.name)}"
        return
    for name, seq in bank.history.snapshots().items():
        yield f"{seq:>8}  {name}"
    for entry in bank.history.journal()[-given.limit :]:
        yield f"{entry['seq']:>8}  {entry['at']}  {entry['reason']} ({len(entry['undo'])} steps)"


def rollback(bank: Any, given: Namespace) -> Generator[str, None, int]:
    """undo every change after a point; can itself be undone"""
    before, by_name = bank.history.seq(), given.to in bank.history.snapshots() or not given.to.isdigit()
    count = bank.history.rollback(given.to if by_name else int(given.to), everyone=given.namespace is None)
    if count:
        yield f"{count} changes undone; undo that with --to {before}"
        return 0
    of = "" if given.namespace is None else f" of {given.namespace}"
    more = "" if by_name or given.to == "0" else f", and --to {int(given.to) - 1} undoes it too"
    yield f"nothing was undone: no change{of} came after {given.to}, which stays{more}. `snapshot` lists the changes."
    return 1


def forget(bank: Any, given: Namespace) -> Generator[str, None, int]:
    """delete records, what was merged from them, and with --id the older versions of the lesson, for good"""
    from core.memory.by_hand import versions

    ids = [None] if given.id is None else versions(bank, _id(bank, given.id))
    gone = [one for id in ids for one in bank.history.forget(id=id, task=given.task, run=given.run)]
    if not gone:
        yield "nothing was deleted: no record has this id, task or run; `reasoningbank bank list` shows what there is."
        return 1
    yield f"{n_records(len(gone))} deleted for good: {', '.join(gone[:20])}"
    if bank.remains:
        yield bank.remains
    return 0


def retry(bank: Any, given: Namespace) -> Iterator[str]:
    """queue the failed extractions of a server again; the last 100 of a tenant have kept their text"""
    yield f"{bank.jobs().retry_failed()} extractions wait for the server again"


def compact(bank: Any, given: Namespace) -> Iterator[str]:
    """give back the room that deleted rows and dropped vectors left in the file"""
    before, after = bank.compact()
    yield f"{before} bytes before, {after} after"


def doctor(bank: Any, given: Namespace) -> Iterator[str]:
    """check everything, set a damaged file aside and rebuild the bank"""
    yield "the database is whole"  # a damaged one was rebuilt when it was opened
    yield from bank.verify_indexes()


def _id(bank: Any, id: str) -> str:
    """The id that begins so."""
    found = bank.find(id)
    return id if found is None else found.id


def _line(record: MemoryRecord, as_json: bool, score: float | None = None, namespace: str = "") -> str:
    if as_json:
        return json.dumps(to_dict(record) | ({} if score is None else {"retrieved_score": score}))
    titles = " / ".join(" ".join(item.title.split()) for item in record.items)
    about = [f"{record.outcome:<7}", f"{record.status:<8}", namespace]
    parts = [" ".join(record.id.split()), "" if score is None else f"{score:.3f}", *about]
    return "  ".join(part for part in (*parts, " ".join(record.original_query.split())[:60], titles[:100]) if part)
