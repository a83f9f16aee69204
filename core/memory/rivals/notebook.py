"""What the rivals share: notes that a model keeps by operations on them.

The bank of such a rival is a `Notebook`: append-only as any bank, but its records hold operations, and the notes are
what all operations leave, applied in order. Each operation is stored as a lesson: its title is the operation's name and
the note that it changes, its description the note's heading, its content the note's text. So runs resume, and tables
count, as with the paper's bank. What makes the operations is a `Curator`, which asks a model after each attempt.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from core.learning.learner import Learner
from core.learning.lessons import Reads
from core.learning.structured import object_schema, parse_json, text_schema
from core.memory.bank import MemoryBank
from core.models.base import Reply
from core.reply_marks import plain_reply
from core.types import Extraction, Lesson, MemoryRecord, Scored, Task, Usage

# KEEP stores an attempt as it was; LINK is from the note that its record has just added.
ADD, EDIT, DELETE, UPVOTE, DOWNVOTE, LINK, KEEP = "ADD EDIT DELETE UPVOTE DOWNVOTE LINK KEEP".split()
TAMPERED = "Tampered: "  # begins the titles of what was learned from an attempt that forged its result
HEADING_CHARS, TEXT_CHARS = 200, 900  # maximum of a note's heading and text in a reply

log = logging.getLogger("run.learning")


@dataclass(frozen=True, kw_only=True)
class Note:
    """A note as it stands.

    id       TICK-N: the N-th note that the episode of this tick added
    record   the record that wrote its text
    origin   id of the record that added it
    tasks    ids of the tasks that its text comes from
    up, down numbers of votes
    links    ids of other notes
    kept     success | failure: an attempt that is kept as it was; "": a note
    before   the note before its last EDIT
    """

    id: str
    heading: str
    text: str
    record: MemoryRecord
    origin: str
    tasks: frozenset[str]
    up: int = 0
    down: int = 0
    links: tuple[str, ...] = ()
    kept: str = ""
    before: Note | None = None

    def without(self, task: str | None) -> Note | None:
        """The note with its newest text that does not come from the task; None if there is none."""
        note: Note | None = self
        while note is not None and task in note.tasks:
            note = note.before
        return note and replace(note, up=self.up, down=self.down, links=self.links)


def notes_of(records: Iterable[MemoryRecord], start: int | None = None) -> list[Note]:
    """The notes that the operations of these records leave, the oldest first.

    start   a note begins with so many votes, and is removed when it has none left; None: votes remove nothing

    An operation on a note that is not there is ignored: of the tasks of a batch, one may delete what another edits.
    """
    notes: dict[str, Note] = {}
    made: Counter[int] = Counter()
    for record in records:
        added = ""
        for item in record.items:
            mark = TAMPERED if item.title.startswith(TAMPERED) else ""
            name, _, target = item.title.removeprefix(mark).partition(" ")
            item = replace(item, description=mark + item.description)
            if name in (ADD, KEEP):
                made[record.tick] += 1
                added = f"{record.tick}-{made[record.tick]}"
                about = {"record": record, "origin": record.id, "tasks": frozenset((record.task_id,))}
                notes[added] = Note(id=added, heading=item.description, text=item.content, kept=target, **about)
            elif target not in notes:
                continue
            elif name == DELETE:
                del notes[target]
            elif name == LINK and added in notes:
                notes[added] = replace(notes[added], links=(*notes[added].links, target))
            else:
                notes[target] = _changed(notes[target], name, item, record)
                if start is not None and start + notes[target].up <= notes[target].down:
                    del notes[target]
    return list(notes.values())


def _changed(note: Note, name: str, item: Lesson, record: MemoryRecord) -> Note:
    if name == EDIT:
        tasks = note.tasks | {record.task_id}
        return replace(note, heading=item.description, text=item.content, record=record, tasks=tasks, before=note)
    return replace(note, up=note.up + (name == UPVOTE), down=note.down + (name == DOWNVOTE))


@dataclass(kw_only=True)
class Notebook(MemoryBank):
    """A bank of operations, of which retrieval shows the notes. A task is shown no text that comes from itself.

    near      retrieve so many notes: those of the records that the policy ranks first for the query, then those that
              they link to, as many again at most. None: every note is shown, whatever the query is
    attempts  besides, so many kept successful attempts, those of the records ranked first
    start     as in `notes_of`; the notes with the most votes come first. None: the oldest
    counted   a note is shown with its id and its votes
    """

    near: int | None = None
    attempts: int = 0
    start: int | None = None
    counted: bool = False

    def notes(self, exclude_task: str | None = None) -> list[Note]:
        """The notes as they stand, the oldest first, without texts that come from exclude_task."""
        exclude = None if self.allow_self else exclude_task or None
        records = reversed(self.recent(sum(self.statuses().values())))
        active = (record for record in records if record.status == "active")
        return [seen for note in notes_of(active, self.start) if (seen := note.without(exclude)) is not None]

    def _retrieved(self, query: str, top_k: int, exclude_task: str | None = None, *within: Any) -> list[Scored]:
        """As in MemoryBank, with a hit for each note. `near` says how many, not top_k."""
        every = self.notes(exclude_task)
        notes = [note for note in every if not note.kept]
        if self.near is not None:
            notes = self._with_links(self.ranked(query, notes, exclude_task, *within)[: self.near], notes)
        elif self.start is not None:
            notes.sort(key=lambda note: note.down - note.up)
        won = [note for note in every if note.kept == "success"] if self.attempts else []
        notes += self.ranked(query, won, exclude_task, *within)[: self.attempts] if won else []
        return [
            Scored(record=replace(note.record, items=(self._shown(note),)), score=1.0, rewritten=True) for note in notes
        ]

    def ranked(self, query: str, notes: list[Note], exclude_task: str | None = None, *within: Any) -> list[Note]:
        """The notes by the policy's ranking of the records that added them; without those that it does not rank."""
        if not notes:
            return []
        hits = super()._retrieved(query, sum(self.statuses().values()), exclude_task, *within)
        place = {hit.record.id: number for number, hit in reversed(list(enumerate(hits)))}
        return sorted((note for note in notes if note.origin in place), key=lambda note: place[note.origin])

    def likeness(self, text: str, notes: list[Note]) -> float:
        """The highest cosine of a text with the texts of the notes; -1 if there are none. Raises InfraError."""
        rows = self.embedder.embed([text, *(note.text for note in notes)])
        return max((float(row @ rows[0]) for row in rows[1:]), default=-1.0)

    def _with_links(self, found: list[Note], notes: list[Note]) -> list[Note]:
        by_id, linked = {note.id: note for note in notes}, [link for note in found for link in note.links]
        more = [by_id[link] for link in dict.fromkeys(linked) if link in by_id and by_id[link] not in found]
        return [*found, *more[: len(found)]]

    def _shown(self, note: Note) -> Lesson:
        votes = f"[{note.id}] helpful {note.up}, harmful {note.down}" if self.counted and not note.kept else ""
        about = f"{note.kept} at an earlier task" if note.kept else note.heading
        return Lesson(title=" ".join(filter(None, (votes, about))), description="", content=note.text)


@dataclass(kw_only=True)
class Curator(Learner, Reads):
    """Asks a model for operations on the notes of a bank, after an attempt.

    max_items   maximum operations of one reply
    max_chars   maximum characters of an attempt in a prompt; longer ones are cut in the middle
    """

    bank: Notebook
    max_items: int = 5
    max_chars: int = 24000

    def operations(
        self,
        template: str,
        purpose: str,
        task: Task,
        known: Mapping[str, str],
        notes: list[Note],
        sample: int | None = None,
        most: int | None = None,
        **values: Any,
    ) -> tuple[Reply, Extraction]:
        """(the reply to a prompt, the operations that it holds, as lessons). Raises InfraError.

        known   {an operation's name in the prompt: its name here}
        notes   those that the operations may change
        most    maximum number of operations; None: max_items

        Dropped, and counted, is a reply that holds none in the form asked for, and each operation that is unknown,
        names no note, says what a note says already, repeats another, was cut off or is one too many.
        """
        most = self.max_items if most is None else most
        values |= {"notes": notes, "names": list(known), "max_items": most}
        reply = self.ask(template, purpose, task, _schema(known, most), sample, **values)
        given = (parse_json(reply.text, "operations") or {}).get("operations")
        rows = given if isinstance(given, list) else []
        cut_off = reply.finish_reason == "length"
        if cut_off:
            rows[-1:] = [None]
        by_id = {note.id: note for note in notes}
        made = [_operation(row, known, by_id) for row in rows]
        kept = list(dict.fromkeys(each for each in made if each is not None))[:most]
        unread = not isinstance(given, list) and bool(reply.text.strip())
        if len(rows) > len(kept) or unread:
            log.warning("%s, the %s: operations dropped from the reply %.300r", task.id, purpose, reply.text)
        counts = {"n_dropped": len(rows) - len(kept) + unread, "n_truncated": int(cut_off), "usage": reply.usage}
        return reply, Extraction(lessons=tuple(kept), **counts)


def joined(*made: Extraction) -> Extraction:
    """Several extractions from the same attempts as one."""
    return Extraction(
        lessons=tuple(lesson for each in made for lesson in each.lessons),
        n_dropped=sum(each.n_dropped for each in made),
        n_truncated=sum(each.n_truncated for each in made),
        usage=sum((each.usage for each in made), Usage()),
    )


def named(made: Extraction, task: Task, purpose: str) -> Extraction:
    """The extraction; if something was dropped from its reply, the log says of which task."""
    if made.n_dropped:
        log.warning("%s, the %s: %d items of the reply dropped", task.id, purpose, made.n_dropped)
    return made


def thoughts_of(reply: Reply) -> str:
    """What a reply with operations says before them; the whole reply if it has not their form."""
    said = (parse_json(reply.text, "operations") or {}).get("thoughts")
    return said.strip() if isinstance(said, str) else plain_reply(reply.text).strip()


def spent(reply: Reply) -> Extraction:
    """A reply that is no operations but part of the way to them: what it cost."""
    return Extraction(n_truncated=int(reply.finish_reason == "length"), usage=reply.usage)


def _schema(known: Mapping[str, str], most: int) -> dict:
    """{thoughts, operations: at most `most` of {operation, note, title, content}}; of a vote the last two are ""."""
    texts = {"note": 20, "title": HEADING_CHARS, "content": TEXT_CHARS}
    item = {"operation": {"type": "string", "enum": list(known)}}
    item |= {name: {"type": "string", "maxLength": longest} for name, longest in texts.items()}
    items = {"type": "array", "items": object_schema(item), "maxItems": most}
    return object_schema({"thoughts": text_schema(1200), "operations": items})


def _operation(row: Any, known: Mapping[str, str], notes: Mapping[str, Note]) -> Lesson | None:
    """An operation as it is stored; None if it cannot be done."""
    if not isinstance(row, dict):
        return None
    said = {name: str(row.get(name) or "").strip() for name in ("operation", "note", "title", "content")}
    name, note = known.get(said["operation"].upper()), notes.get(said["note"].strip("[]"))
    if name in (ADD, EDIT):
        text = said["content"]
        if not text or any(_plain(text) == _plain(each.text) for each in notes.values()):
            return None
        heading = said["title"] or (note.heading if note else "")
        if name == ADD:
            return Lesson(title=ADD, description=heading, content=text)
        return note and Lesson(title=f"{EDIT} {note.id}", description=heading, content=text)
    return Lesson(title=f"{name} {note.id}", description=note.heading, content="") if name and note else None


def _plain(text: str) -> str:
    return " ".join(text.lower().split())
