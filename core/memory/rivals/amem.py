"""memory=amem: A-MEM, agentic memory (Xu et al. 2025, arXiv 2502.12110, section 3).

Every attempt becomes a note: its text, with keywords, a context and tags that the model writes (3.1). The model links
the note to those nearest to it that it has something in common with (3.2), and may rewrite context and tags of these
neighbours in its light (3.3, evolution). Retrieval finds notes by their text and attributes together, and takes what
they link to along (3.4).

Deviations. What is remembered is an attempt and not a dialogue's turn. The neighbours are those nearest to the task's
query. Attributes that have evolved are shown, but the vector is that of the first ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from core.learning.lessons import Distills
from core.learning.structured import object_schema, parse_json, text_schema
from core.memory.rivals.notebook import ADD, EDIT, LINK, Curator, Note, joined, log, spent
from core.models.base import Reply
from core.types import Extraction, Lesson, Scored, Task, Trajectory, Verdict

_WORDS = {"type": "array", "items": text_schema(40), "maxItems": 10}
_IDS = {"type": "array", "items": text_schema(20), "maxItems": 10}
NOTE = object_schema({"keywords": _WORDS, "context": text_schema(400), "tags": _WORDS})
NEIGHBOUR = object_schema({"note": text_schema(20), "context": text_schema(400), "tags": _WORDS})
EVOLUTION = object_schema({"connections": _IDS, "neighbours": {"type": "array", "items": NEIGHBOUR, "maxItems": 10}})


@dataclass(kw_only=True)
class Amem(Curator, Distills):
    """Makes a note of an attempt, links it and evolves its neighbours.

    max_items       maximum links of a new note
    attempt_chars   maximum characters of the attempt that is the note's text, cut in the middle
    neighbours      notes that a new one is compared with
    """

    attempt_chars: int = 3000
    neighbours: int = 5

    def distil(
        self, task: Task, trajectory: Trajectory, verdict: Verdict, memories: list[Scored], gold: str | None
    ) -> Extraction:
        """ADD, LINK and EDIT from one attempt, whatever its label. gold is not used. Raises InfraError."""
        text, sample = self.text_of(trajectory, self.attempt_chars), trajectory.sample
        described = self.ask("rivals/amem_note", "note", task, NOTE, sample, trajectory=text)
        about, dropped = self._read(described, "keywords", task)
        heading = _heading(about.get("context"), about.get("keywords"), about.get("tags"))
        made = [Extraction(lessons=(Lesson(title=ADD, description=heading, content=text),), n_dropped=dropped)]
        made.append(spent(described))
        if near := self.bank.ranked(task.query, self.bank.notes())[: self.neighbours]:
            values = {"trajectory": text, "heading": heading, "notes": near}
            evolved = self.ask("rivals/amem_evolve", "evolution", task, EVOLUTION, sample, **values)
            found, dropped = self._read(evolved, "connections", task)
            known = {note.id: note for note in near}
            links = [_id(each) for each in _list(found.get("connections"))]
            linked = [known[id] for id in dict.fromkeys(links) if id in known][: self.max_items]
            lessons = [Lesson(title=f"{LINK} {note.id}", description=note.heading, content="") for note in linked]
            changed = list(_evolved(_list(found.get("neighbours")), known))
            dropped += len(links) - len(lessons) + sum(each is None for each in changed)
            made.append(Extraction(lessons=(*lessons, *filter(None, changed)), n_dropped=dropped))
            made.append(spent(evolved))
        return joined(*made)

    def _read(self, reply: Reply, key: str, task: Task) -> tuple[dict[str, Any], int]:
        """(the object of a reply, 0), or ({}, 1) if what it says is none."""
        found = parse_json(reply.text, key)
        unread = found is None and bool(reply.text.strip())
        if unread:
            log.warning("%s: no %s in the reply %.300r", task.id, key, reply.text)
        return found or {}, int(unread)


def _evolved(rows: list[Any], known: dict[str, Note]) -> Iterator[Lesson | None]:
    """EDIT of each neighbour whose attributes change; None for a row that names none."""
    for row in rows:
        note = known.get(_id(row.get("note"))) if isinstance(row, dict) else None
        heading = _heading(row.get("context"), [], row.get("tags")) if note else ""
        yield Lesson(title=f"{EDIT} {note.id}", description=heading, content=note.text) if note and heading else None


def _heading(context: Any, keywords: Any, tags: Any) -> str:
    words = {"keywords": _list(keywords), "tags": _list(tags)}
    parts = [str(context or "").strip(), *(f"{name}: {', '.join(map(str, of))}" for name, of in words.items() if of)]
    return "; ".join(filter(None, parts))


def _list(given: Any) -> list[Any]:
    return given if isinstance(given, list) else []


def _id(given: Any) -> str:
    return str(given or "").strip().strip("[]")
