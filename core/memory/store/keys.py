"""What records are found by: embedded texts, each a row of the table `keys`.

A key is of a kind: the record's query; with memory.key=item the text of an item; with memory.key=both a window, a chunk
of an item's content headed by title, tags and description. It leads to the record that it comes from or, once that was
merged or superseded, to the record that holds its lessons now (`pass_keys`).
"""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Collection

from core.memory.store.schema import SqlSession
from core.types import MemoryRecord

QUERY, ITEM, WINDOW = "query", "item", "window"
KINDS = {"query": (QUERY,), "item": (ITEM,), "both": (QUERY, WINDOW)}  # memory.key: the kinds that a search compares
Keys = Collection[tuple[str, int, bytes]]  # (kind, place, vector as float32 bytes); the record's query comes first
WHOLE = -1  # the place of a query's key
CHARS = 800  # of a window: with the title about 250 word pieces; MiniLM reads 256
WRAP = textwrap.TextWrapper(width=CHARS, expand_tabs=False, replace_whitespace=False, drop_whitespace=False)
PLACES = 1000  # encodes (item index, window's index) as one int, `place`: item index + PLACES * window's index

# (a record, the record that its lessons passed to, whether each is active), by a link of the namespace $1, or of all.
_PASSED = " UNION ALL ".join(
    "SELECT a.{row}, b.{row}, a.status = 'active', b.status = 'active' FROM links l "
    f"JOIN records a ON (a.namespace, a.id) = (l.namespace, l.{gone}) "
    f"JOIN records b ON (b.namespace, b.id) = (l.namespace, l.{heir}) "
    f"WHERE l.relation = '{relation}' AND coalesce($1, l.namespace) = l.namespace"
    for gone, relation, heir in (("source", "duplicate_of", "target"), ("target", "supersedes", "source"))
)
_LED = (
    "SELECT DISTINCT k.origin, k.record FROM keys k JOIN records o ON o.{row} = k.origin "
    "WHERE k.record <> k.origin AND coalesce($1, o.namespace) = o.namespace"
)


def texts_of(record: MemoryRecord, kind: str) -> list[tuple[int, str]]:
    """(place, text) of a record's keys of a kind."""
    if kind == QUERY:
        return [(WHOLE, record.original_query)]
    return windows(record) if kind == WINDOW else [(place, item.text) for place, item in enumerate(record.items)]


def windows(record: MemoryRecord) -> list[tuple[int, str]]:
    """(place, text) of each chunk of all items, headed by title, tags and description."""
    found = []
    for place, item in enumerate(record.items):
        head = f"{item.title} ({', '.join(record.tags)})" if record.tags else item.title
        parts = WRAP.wrap(item.content) or [""]
        texts = [f"{head}\n{item.description}\n{part}" for part in parts[:PLACES]]
        found += [(place + PLACES * number, text) for number, text in enumerate(texts)]
    return found


def lacks_keys(db_row: str, kinds: Collection[str]) -> str:
    """SQL condition: a record `r` has no key of one of these kinds, though it has texts for it."""
    lacking = (
        f"(NOT EXISTS (SELECT 1 FROM keys k WHERE k.origin = r.{db_row} AND k.kind = '{kind}')"
        + ("" if kind == QUERY else " AND r.items <> '[]'")
        + ")"
        for kind in kinds
    )
    return f"({' OR '.join(lacking)})"


def pass_keys(db: SqlSession, namespace: str | None) -> None:
    """Let the keys of merged and superseded records lead to the active record that holds their lessons now.

    That follows from the links, in chains: a duplicate's keeper may have been merged. The keys of an active record, and
    of one whose lessons no active record holds, lead to itself. namespace None: of all.
    """
    row = db.dialect.key_row
    heirs: dict[int, list[int]] = defaultdict(list)
    active: set[int] = set()
    for gone, heir, gone_is_active, heir_is_active in sorted(
        db.execute(_PASSED.format(row=row), (namespace,)).fetchall()
    ):
        heirs[gone].append(heir)
        active |= {record for record, is_active in ((gone, gone_is_active), (heir, heir_is_active)) if is_active}
    led = dict(db.execute(_LED.format(row=row), (namespace,)).fetchall())
    wanted = {origin: _active_heir(origin, heirs, active) for origin in {*heirs, *led}}
    moves = [(record, origin) for origin, record in sorted(wanted.items()) if led.get(origin, origin) != record]
    db.executemany("UPDATE keys SET record = $1 WHERE origin = $2", moves)


def _active_heir(origin: int, heirs: dict[int, list[int]], active: set[int]) -> int:
    reached = [origin]
    for record in reached:  # grows meanwhile
        if record in active:
            return record
        reached += [heir for heir in heirs.get(record, ()) if heir not in reached]
    return origin
