"""The write filter of the bank (`memory.hygiene`): scrubs, cuts, removes copied lessons, quarantines.

It looks at where a lesson's text comes from and at its form, never at what its words say: whoever knows a list of words
writes around it. docs/security.md has the measured rates.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from core.errors import InfraError, OverBudget, UserError, check_choice, check_numbers
from core.escaping import without_hidden
from core.learning.structured import object_schema, parse_json, text_schema
from core.memory.hygiene.classifier import Classifier
from core.memory.hygiene.executed import never_executed, successful
from core.memory.hygiene.foreign import foreign_texts, share_of
from core.memory.hygiene.scrub import scrub_record
from core.memory.ports import Bank, Hygiene
from core.memory.protocol import Steps
from core.memory.records import source_of
from core.models.base import Role
from core.reply_marks import plain_reply
from core.seeding import derive_seed
from core.types import Lesson, MemoryRecord, Usage
from prompts import registry


def same_source(record: MemoryRecord, bank: Bank, by: str, window: int) -> list[MemoryRecord]:
    """Other records of the same source among the last `window` of the bank, newest first."""
    source = source_of(record, by)
    recent = bank.recent(window, everyone=by == "namespace") if source else []
    return [other for other in recent if other.id != record.id and source_of(other, by) == source]


# A second opinion on a lesson by the extractor's model (`memory.hygiene.opinion=llm`).

LONGEST = 120  # max. characters of the reason
SCHEMA = object_schema({"reason": text_schema(LONGEST), "harmful": {"type": "boolean"}})
_SAID = re.compile(r"(?i)\bharmful[\"']?\s*[:=]\s*[\"']?(true|false)\b(?!\s*(?:or\b|/|\|))")
MOST = 6000  # max. characters of the lessons shown to the model


def second_opinion(record: MemoryRecord, role: Role, seed: int) -> dict[str, Any]:
    """{harmful, reason, usage}; if the model fails or its reply is unreadable, harmful is None and there is an `error`.

    The lessons are shown as one JSON text that cannot close its block in the prompt. Raises OverBudget.
    """
    lessons = [vars(item) for item in record.items]
    # Cut in the middle, because injected orders are usually at the beginning or at the end.
    quoted = json.dumps(lessons, ensure_ascii=False).replace("<", "\\u003c")
    if len(quoted) > MOST:
        quoted = f"{quoted[: MOST // 2]} [...] {quoted[-MOST // 2 :]}"
    prompt = role.prompts.render(
        registry.SECOND_OPINION_PROMPT, lessons=quoted, structured=bool(role.llm.supports_schema)
    )
    try:
        message = {"role": "user", "content": prompt}
        reply = role.chat([message], task=record.task_id, seed=derive_seed(seed, record.id, "opinion"), schema=SCHEMA)
    except OverBudget:
        raise  # ends the run; the resumed run asks again
    except InfraError as error:
        return {"harmful": None, "reason": "", "error": f"{error.kind}: {error}", "usage": None}
    said = {word.lower() for word in _SAID.findall(plain_reply(reply.text))}
    # A reply that quotes the lesson may say both: then "false" may be planted by the lesson, so "true" counts.
    harmful = "true" in said if said else None
    reason = (parse_json(reply.text, "reason") or {}).get("reason", "")
    found = {"harmful": harmful, "reason": str(reason)[:LONGEST], "usage": asdict(reply.usage)}
    return found if harmful is not None else found | {"error": "unreadable reply"}


_BLOCK = re.compile(r"<\s*memory_items\s*>.{0,20000}?<\s*/\s*memory_items\s*>", re.IGNORECASE | re.DOTALL)
_MARK = re.compile(r"(?:\[memory item\][ \t]*)+", re.IGNORECASE)  # a transcript's placeholder for a quoted lesson
_ENDS = ".!?;\n。！？；"  # where a sentence, or a part that can stand alone, ends
_LEFT_OVER = _ENDS + ",:，：、 "
_SHORTEST_COPY = 20  # characters; shorter passages of a lesson occur by chance


@dataclass(kw_only=True)
class Guard(Hygiene):
    """The write filter: screens each record before it is stored. Idempotent. The paper has none.

    scrub         replace credentials by a placeholder; personal data is `memory.redact`'s
    strip         remove passages copied from lessons that the task's prompt showed, the memory block's markup, and
                  characters that a model reads and a person does not see
    provenance    quarantine a lesson that names an address, a package, a command or a credential that no action of its
                  own attempt used successfully. Skipped if the attempt is not known, as with a lesson written by a
                  client; strict: such a lesson is held against an attempt that did nothing
    foreign       quarantine a lesson that repeats what its attempt read by actions with one of these words, e.g.
                  [https, mail]; ["*"]: by any action; None: off. What the environment said when it ended the attempt
                  is its own word and not foreign
    foreign_share   share of the words of a sentence that counts as a repetition, see `share_of`
    source        what identifies a source: task | namespace | a key of the records' provenance
    window        number of the bank's last records that max_per_source looks at
    max_per_source  quarantine a lesson if its source has this many already; None: no limit
    review        quarantine every lesson until a person approves it; a merged record only if its text is new
    classifier    asked about a lesson that nothing else quarantined; None: off
    opinion       llm: then also ask the extractor's model; None: off
    role, seed    of that model; set at runtime
    max_title, max_description, max_content, max_query   max. characters of each text; longer ones are cut
    """

    scrub: bool = True
    strip: bool = True
    provenance: bool | str = False
    foreign: list[str] | None = None
    foreign_share: float = 0.6
    source: str = "task"
    window: int = 30
    max_per_source: int | None = None
    review: bool = False
    classifier: Classifier | None = None
    opinion: str | None = None
    role: Role | None = field(default=None, repr=False)
    seed: int = 0
    max_title: int = 120
    max_description: int = 400
    max_content: int = 1200
    max_query: int = 8000

    def __post_init__(self) -> None:
        if isinstance(self.foreign, str) or not all(isinstance(word, str) and word for word in self.foreign or ()):
            raise UserError(f"memory.hygiene.foreign={self.foreign}: give a list of words, e.g. [https, mail].")
        check_choice(self, "memory.hygiene", "provenance", (False, True, "strict"))
        check_choice(self, "memory.hygiene", "opinion", (None, "llm"))
        check_numbers(self, "memory.hygiene", "foreign_share", least=0, most=1)
        if self.opinion and self.role is None:
            raise UserError("memory.hygiene.opinion=llm asks the extractor's model, and none is configured.")
        check_numbers(self, "memory.hygiene", "window", "max_per_source", least=1, whole=True)
        check_numbers(
            self, "memory.hygiene", "max_title", "max_description", "max_content", "max_query", least=20, whole=True
        )

    @property
    def reads_attempts(self) -> bool:
        """Whether `screen` is given the attempts' steps."""
        return bool(self.provenance) or self.foreign is not None

    def screen(
        self, record: MemoryRecord, bank: Bank, shown: Sequence[str] | None = None, did: Steps | None = None
    ) -> MemoryRecord:
        """The record to store; its provenance["hygiene"] lists what was done to it.

        shown   ids of the records that the task's prompt showed; None: those that it would retrieve now
        did     steps of the attempts that the record was made from; None: not known
        """
        if did is None and self.provenance == "strict" and not record.parents:
            did = ()
        items, notes = record.items, set(record.provenance.get("hygiene", ()))
        if self.strip and not record.parents:  # a merged record consists of its parents' text
            items, stripped = _without_copies(items, self._shown_passages(record, bank, shown))
            notes |= {"stripped"} if stripped else set()
        # Before the texts are cut, so that what stands at the end of a long text is found.
        broken = self.broken_rules(record.original_query, items, did)
        broken = broken or self._broken_limits(replace(record, items=items), bank)
        record, found = self._scrubbed(replace(record, items=items))
        notes |= found
        parents = [parent for id in record.parents if (parent := bank.get(id)) is not None]
        parent_items = [item for parent in parents for item in parent.items]
        trust = min([record.trust, *(parent.trust for parent in parents)])
        # Without items everything was copied: the record is stored, so that it is counted, but archived.
        status, provenance = record.status if record.items else "archived", {**record.provenance}
        if record.items and not (record.parents or broken or trust == 0.0):
            broken = self._asked(record, bank, provenance)
        if self.review and record.items and any(item not in parent_items for item in record.items):
            broken = (*broken, "review")
        if notes:
            provenance["hygiene"] = sorted({*notes, *provenance.get("hygiene", ())})
        if broken or trust == 0.0:
            trust, status = 0.0, "quarantined"
            before = provenance.get("quarantine", ())
            provenance["quarantine"] = sorted({*before, *(broken or (() if before else ("lineage",)))})
        return replace(record, trust=trust, status=status, provenance=provenance)

    def usage(self, bank: Bank) -> Usage | None:
        """Cost of the second opinions asked for by this run; None if `opinion` is off."""
        if not self.opinion:
            return None
        run = bank.provenance.get("run")
        own = [r.provenance["opinion"] for r in bank.records(bank.namespace) if "opinion" in r.provenance]
        return sum((Usage(**o["usage"]) for o in own if o["usage"] and o.get("run") == run), Usage())

    def _asked(self, record: MemoryRecord, bank: Bank, provenance: dict[str, Any]) -> tuple[str, ...]:
        """The first of classifier and opinion that calls the record harmful; () if none does.

        What each said is stored in `provenance`. What is stored in this bank already is used again.
        """
        asks = {
            "classifier": self.classifier and self.classifier.judge,
            "opinion": self.opinion and self.role and partial(second_opinion, role=self.role, seed=self.seed),
        }
        known = bank.get(record.id)
        for name, ask in asks.items():
            if not ask:
                continue
            said = provenance.get(name) or (known and known.provenance.get(name))
            provenance[name] = said = said or ask(record) | {"run": bank.provenance.get("run")}
            if "error" in said:  # the rest decides alone
                provenance["hygiene"] = sorted({*provenance.get("hygiene", ()), f"no {name}"})
            if said["harmful"]:
                return (name,)
        return ()

    def _broken_limits(self, record: MemoryRecord, bank: Bank) -> tuple[str, ...]:
        """The limit of its source, if a record breaks it; a merged record has several sources and breaks none."""
        if record.parents or self.max_per_source is None or bank.get(record.id) is not None:
            return ()
        many = len(same_source(record, bank, self.source, self.window)) >= self.max_per_source
        return ("max_per_source",) if many else ()

    def broken_rules(self, query: str, items: tuple[Lesson, ...], did: Steps | None) -> tuple[str, ...]:
        """Which of `foreign` and `provenance` the lessons break."""
        if any(item.content in query for item in items):
            query = ""  # an insight of a client: no task was asked, its query is made of its own text
        broken = []
        if foreign := foreign_texts(did or (), self.foreign or ()):
            own = (query, *(step.action for step in did or ()))
            if any(share_of(item.text, foreign, own) >= self.foreign_share for item in items):
                broken.append("foreign")
        if self.provenance and did is not None:
            done = successful(did)
            if any(never_executed(item.text, (query, *done)) for item in items):
                broken.append("provenance")
        return tuple(broken)

    def _shown_passages(self, record: MemoryRecord, bank: Bank, shown: Sequence[str] | None) -> list[str]:
        """Texts of the lessons that the prompt showed, longest first."""
        if shown is None:
            records = [hit.record for hit in bank.retrieve(record.original_query, exclude_task=record.task_id)]
        else:
            records = [found for id in shown if (found := bank.get(id)) is not None]
        texts = {t.strip() for found in records for item in found.items for t in (item.content, item.description)}
        return sorted((text for text in texts if len(text) >= _SHORTEST_COPY), key=lambda text: (-len(text), text))

    def _scrubbed(self, record: MemoryRecord) -> tuple[MemoryRecord, set[str]]:
        """(the record with its texts scrubbed, without hidden characters, and cut; the kinds of data found)."""
        record, found = scrub_record(record, personal=False) if self.scrub else (record, set())

        def clean(text: str, most: int) -> str:
            if self.strip and (seen := without_hidden(text)) != text:
                found.add("hidden")
                text = seen
            if len(text) > most:
                found.add("cut")
            return text if len(text) <= most else text[: most - 1].rstrip() + "…"

        longest = {"title": self.max_title, "description": self.max_description, "content": self.max_content}
        items = tuple(
            Lesson(**{name: clean(text, longest[name]) for name, text in vars(item).items()}) for item in record.items
        )
        query, tags = clean(record.original_query, self.max_query), tuple(clean(tag, 200) for tag in record.tags)
        provenance = record.provenance
        for name, most in (("url", 2000), ("notes", 4000)):  # given by a client, by a model
            if isinstance(text := provenance.get(name), str):
                provenance = provenance | {name: clean(text, most)}
        return replace(record, items=items, original_query=query, tags=tags, provenance=provenance), found


def _without_copies(items: tuple[Lesson, ...], shown: list[str]) -> tuple[tuple[Lesson, ...], bool]:
    """(lessons without shown passages and markup, dropping those left without content; whether any changed)."""
    kept = []
    for item in items:
        texts = [item.title, item.description, item.content]
        for passage in shown:
            texts[1:] = [_cut_out(text, passage) for text in texts[1:]]
        texts = [_MARK.sub("", _BLOCK.sub("", text)).strip() for text in texts]
        if len(texts[2]) >= min(_SHORTEST_COPY, len(item.content.strip())):
            kept.append(Lesson(title=texts[0], description=texts[1], content=texts[2]))
    before = [(item.title.strip(), item.description.strip(), item.content.strip()) for item in items]
    return tuple(kept), [(item.title, item.description, item.content) for item in kept] != before


def _cut_out(text: str, passage: str) -> str:
    """The text without a passage, and without what it would leave of a sentence that it was only a part of."""
    while (at := text.find(passage)) >= 0:
        before, after = text[:at].rstrip(" "), text[at + len(passage) :].lstrip(" ")
        if before and before[-1] not in _ENDS:
            before = before[: max(map(before.rfind, _ENDS)) + 1]
        if after and passage[-1] not in _ENDS and after[0] not in _ENDS:
            ends = [place for end in _ENDS if (place := after.find(end)) >= 0]
            after = after[min(ends, default=len(after)) :]
        after = after.lstrip(_LEFT_OVER)
        text = f"{before} {after}" if before and after and before[-1] != "\n" else before + after
    return text
