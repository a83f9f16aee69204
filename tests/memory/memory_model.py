"""One tenant's bank and the life of its lessons once more, as plain Python: a dict, a set of links, brute force.

Slow and simple on purpose. The property-based test holds the real bank against it.
"""

from __future__ import annotations

import copy
import math
import re
from dataclasses import dataclass, field, replace

from core.types import MemoryRecord, content_id

PRIOR = {"success": 0.7, "failure": 0.6}
DUPLICATE, ALIKE, EVERY = 0.99, 0.85, 4  # cos 8.1 and cos 31.8: angles here are multiples of 10


def angle(text: str) -> int:
    return int(re.search(r"@(\d+)", text).group(1))


def cosine(one: str, other: str) -> float:
    return math.cos(math.radians(angle(one) - angle(other)))


@dataclass
class State:
    """What a journal entry leads to."""

    records: dict[str, MemoryRecord] = field(default_factory=dict)
    links: set[tuple[str, str, str]] = field(default_factory=set)
    folded: int = 0
    fresh: tuple[str, ...] = ()
    round: tuple[str, ...] = ()
    step: int = 0
    arrived: tuple[str, ...] = ()


class Model:
    """The same operations as the bank's, one entry of `history` for each transaction that changed anything.

    on_add     duplicates are looked for as soon as a record is learned
    """

    def __init__(self, on_add):
        self.on_add = on_add
        self.now = State()
        self.history = [copy.deepcopy(self.now)]
        self.forgotten = set()

    def commit(self):
        self.history.append(copy.deepcopy(self.now))

    def go_back(self, length):
        """Forget what a crash kept from being committed."""
        del self.history[length:]
        self.forgotten = set()
        self.now = copy.deepcopy(self.history[-1])

    def update(self, id, **fields):
        self.now.records[id] = replace(self.now.records[id], **fields)

    def active(self):
        return [r for r in self.now.records.values() if r.status == "active"]

    def tick(self):
        return max((r.tick for r in self.now.records.values()), default=0)

    # Operations: generators that stop after each transaction, so that a crash can come between two

    def add(self, record):
        if record.id not in self.now.records:
            self.now.records[record.id] = record
            self.commit()
            yield

    def learn(self, seen):
        known = [id for id in dict.fromkeys(seen.used) if id in self.now.records]
        if seen.index >= self.now.folded:
            for id in known:
                record = self.now.records[id]
                idle = self.tick() - max(record.tick, record.last_used or 0)
                step = {"success": 0.05, "failure": -0.025}[seen.label]
                believed = self.stored(record) * 0.5 ** (idle / 90) + step
                self.update(
                    id,
                    n_used=record.n_used + 1,
                    n_used_success=record.n_used_success + (seen.label == "success"),
                    confidence=round(min(max(believed, 0.0), 1.0), 9),
                    last_used=self.tick(),
                )
            added = self.now.records.get(seen.new[0][0])
            if added is not None:
                if added.confidence is None:
                    self.update(added.id, confidence=PRIOR[added.outcome])
                self.now.fresh += (added.id,)
                self.now.arrived += (added.id,) * self.on_add
            self.now.folded = seen.index + 1
            self.begin()
            self.commit()
            yield
        yield from self.due()

    def due(self):
        if self.now.arrived:
            self.deduplicate(self.now.arrived)
            self.now.arrived = ()
            self.commit()
            yield
        yield from self.rounds()

    def show(self, ids):
        before = copy.deepcopy(self.now)
        for id in [id for id in dict.fromkeys(ids) if id in self.now.records]:
            record = self.now.records[id]
            believed = self.stored(record) * 0.5 ** ((self.tick() - max(record.tick, record.last_used or 0)) / 90)
            fields = {"n_used": record.n_used + 1, "confidence": round(believed, 9), "last_used": self.tick()}
            self.update(id, **fields)
        if self.now != before:
            self.commit()
            yield

    def begin(self):
        if not self.now.round and len(self.now.fresh) >= EVERY:
            self.now.round, self.now.fresh, self.now.step = self.now.fresh, (), 0

    def consolidate(self):
        ids = tuple(r.id for r in self.active())
        before = copy.deepcopy(self.now)
        if ids:
            self.now.round, self.now.fresh, self.now.step = ids, (), 0
        if self.now != before:
            self.commit()
            yield
        yield from self.rounds()

    def rounds(self):
        while self.now.round:
            for number, step in list(enumerate((self.deduplicate, self.merge)))[self.now.step :]:
                if step(self.now.round):
                    self.now.step = number + 1
                    self.commit()
                    yield
            self.now.round, self.now.step = (), 0
            self.begin()
            self.commit()
            yield

    def mark(self, id, helpful):
        record = self.now.records[id]
        step = 0.05 if helpful else -0.1
        counts = {"n_helpful": record.n_helpful + 1} if helpful else {"n_harmful": record.n_harmful + 1}
        self.update(id, confidence=round(min(max(self.stored(record) + step, 0.0), 1.0), 9), **counts)
        self.commit()
        yield

    def set_status(self, id, status):
        before = copy.deepcopy(self.now)
        self.update(id, status=status)
        if status == "active":
            self.now.links = {x for x in self.now.links if x[:2] != (id, "duplicate_of")}
        if self.now != before:
            self.commit()
            yield

    def unmerge(self, id):
        for parent in self.now.records[id].parents:
            if parent in self.now.records and self.now.records[parent].status == "archived":
                self.update(parent, status="active")
        self.update(id, status="archived")
        self.commit()
        yield

    def rollback(self, to, entered):
        """entered(): whether the bank made an entry of it; where all that came later is forgotten, it does nothing."""
        if to < len(self.history) - 1:
            self.now = copy.deepcopy(self.history[to])
            if entered():
                self.commit()
                yield

    def forget(self, id):
        records, gone = self.now.records, {id}
        past = [r for state in [*self.history, self.now] for r in state.records.values()]
        while heirs := {r.id for r in past if r.id not in gone and gone & set(r.parents)}:
            gone |= heirs
        kept = {parent for r in records.values() if r.id not in gone for parent in r.parents}
        merged = {parent for one in gone & set(records) for parent in records[one].parents} - kept
        copies = {x[0] for x in self.now.links if x[1] == "duplicate_of" and x[2] in gone}
        for orphan in (merged | copies) & set(records) - gone:
            set_aside = ("archived", "superseded") if orphan in merged else ("superseded",)
            if records[orphan].status in set_aside:
                self.update(orphan, status="active")
        self.commit()
        self.forgotten = gone
        yield

    def strike(self):
        """What is forgotten is forgotten in all of history."""
        for state in [self.now, *self.history]:
            state.records = {id: r for id, r in state.records.items() if id not in self.forgotten}
            state.links = {x for x in state.links if not {x[0], x[2]} & self.forgotten}
        self.forgotten = set()

    # Policies

    def stored(self, record):
        return PRIOR[record.outcome] if record.confidence is None else record.confidence

    def rank_key(self, record):
        helped = record.n_helpful - record.n_harmful
        letters = tuple(-ord(c) for c in record.id)
        return (round(self.stored(record), 6), helped, record.n_used_success, record.trust, -record.tick, letters)

    def fresh_records(self, ids):
        found = [self.now.records[id] for id in ids if id in self.now.records]
        return [r for r in found if r.status == "active"]

    def others(self, record):
        return sorted((r for r in self.active() if r.id != record.id), key=lambda r: (r.tick, r.id))

    def deduplicate(self, ids):
        gone = {}
        for one in self.fresh_records(ids):
            for other in self.others(one):
                if one.id in gone:
                    break
                same = one.outcome == other.outcome and (
                    one.items[0].content == other.items[0].content
                    or cosine(one.items[0].title, other.items[0].title) >= DUPLICATE
                )
                if other.id not in gone and same:
                    loser, keeper = sorted((one, other), key=self.rank_key)
                    gone[loser.id] = keeper.id
        for loser in gone:
            keeper = gone[loser]
            while keeper in gone:
                keeper = gone[keeper]
            self.update(loser, status="superseded")
            self.now.links.add((loser, "duplicate_of", keeper))
        return bool(gone)

    def merge(self, ids):
        def alike(one, other):
            return one.outcome == other.outcome and cosine(one.items[0].title, other.items[0].title) >= ALIKE

        taken, found = set(), []
        for seed in self.fresh_records(ids):
            if seed.id in taken:
                continue
            group = [seed]
            near = sorted(
                self.others(seed), key=lambda r: -round(cosine(seed.items[0].title, r.items[0].title), 5)
            )  # stable: ties stay oldest first
            for other in near:
                if len(group) < 4 and other.id not in taken and all(alike(member, other) for member in group):
                    group.append(other)
            if len(group) >= 3:
                taken |= {member.id for member in group}
                found.append(sorted(group, key=lambda r: (r.tick, r.id)))
        before = copy.deepcopy(self.now)
        made = [(group, self.merged(group)) for group in found]
        for group, merged in made:
            if merged.id in before.records:  # it was undone
                continue
            self.now.records[merged.id] = merged
            self.now.round += (merged.id,)
            for member in group:
                self.update(member.id, status="archived")
                self.now.links.add((merged.id, "supersedes", member.id))
        return bool(found)

    def merged(self, group):
        tick = self.tick()
        idle = {r.id: tick - max(r.tick, r.last_used or 0) for r in group}
        most = max(r.n_used for r in group)

        def votes(r):
            share = r.n_used / most if most else 0
            believed = self.stored(r) * 0.5 ** (idle[r.id] / 90)
            rate = r.n_used_success / r.n_used if r.n_used else believed
            return round(0.4 * share + 0.4 * rate + 0.2 * 0.5 ** (idle[r.id] / 30), 9)

        items = max(group, key=lambda r: (votes(r), self.rank_key(r))).items
        share = 2000 // len({r.original_query for r in group})
        queries = dict.fromkeys(r.original_query for r in group)
        return replace(
            group[0],
            id=content_id("merge", [r.id for r in group], items),
            original_query="\n".join(query[:share] for query in queries)[:2000],
            items=items,
            tick=tick,
            status="active",
            confidence=round(sum(self.stored(r) * 0.5 ** (idle[r.id] / 90) for r in group) / len(group), 9),
            n_used=sum(r.n_used for r in group),
            n_used_success=sum(r.n_used_success for r in group),
            n_helpful=sum(r.n_helpful for r in group),
            n_harmful=sum(r.n_harmful for r in group),
            last_used=max((r.last_used for r in group if r.last_used is not None), default=None),
            trust=min(r.trust for r in group),
            parents=tuple(r.id for r in group),
            provenance={"tasks": sorted({task for r in group for task in self.tasks(r)})},
        )

    def tasks(self, record):
        return record.provenance.get("tasks", [record.task_id])

    def nearest(self, query, exclude_task):
        """Every active record that may be retrieved, best first by its best key, ties to the oldest.

        Its keys are its query and those of the records that were merged into it or superseded by it.
        """

        def score(record):
            keys = [r for r in self.behind(record) if r is record or exclude_task not in self.tasks(r)]
            return max(round(cosine(query, key.original_query), 5) for key in keys)

        found = [r for r in self.active() if exclude_task not in self.tasks(r)]
        return sorted(found, key=lambda r: -score(r))

    def behind(self, record):
        """A record, and all whose lessons have passed to it: those of an active one are found by itself alone."""
        ids, waiting = {record.id}, [record.id]
        while waiting:
            one = waiting.pop()
            passed = {x[0] for x in self.now.links if x[1:] == ("duplicate_of", one)}
            passed |= {x[2] for x in self.now.links if x[:2] == (one, "supersedes")}
            passed = {id for id in passed if id in self.now.records and self.now.records[id].status != "active"}
            waiting += passed - ids
            ids |= passed
        return [r for r in self.now.records.values() if r.id in ids]
