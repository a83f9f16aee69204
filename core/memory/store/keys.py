"""What records are found by: embedded texts, each a row of the table `keys`.

A key is of a kind: the record's query; with memory.key=item the text of an item; with memory.key=joined the record's
query with an item's title, tags, description and content as one text, a long content in several chunks under the same
head. It leads to the record that it comes from or, once that was merged or superseded, to its heirs: the records that
hold its lessons now (`pass_keys`).
"""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from core.memory.store.schema import SqlSession, in_parts, placeholders, storable
from core.types import MemoryRecord

QUERY, ITEM, JOINED = "query", "item", "joined"  # memory.key: the kind that a search compares
KINDS = (QUERY, ITEM, JOINED)
Keys = Collection[tuple[str, int, bytes]]  # (kind, place, vector as float32 bytes); the record's query comes first
WHOLE = -1  # the place of a query's key
# Characters of the query and of the content in a joined text: with the title about 250 word pieces; MiniLM reads 256.
MOST_OF_QUERY, CHARS = 300, 600
WRAP = textwrap.TextWrapper(width=CHARS, expand_tabs=False, replace_whitespace=False, drop_whitespace=False)
PLACES = 1000  # encodes (item index, chunk's index) as one int, `place`: item index + PLACES * chunk's index

PASSING = {"duplicate_of": ("source", "target"), "supersedes": ("target", "source")}  # relation: (passes, heir)


def texts_of(record: MemoryRecord, kind: str) -> list[tuple[int, str]]:
    """(place, text) of a record's keys of a kind."""
    if kind == QUERY:
        return [(WHOLE, record.original_query)]
    return joined(record) if kind == JOINED else [(place, item.text) for place, item in enumerate(record.items)]


def joined(record: MemoryRecord) -> list[tuple[int, str]]:
    """(place, text) of each chunk of all items, headed by the record's query, title, tags and description.

    Also the query alone, if it is longer than what heads the chunks, or there are no items.
    """
    found, query = [], textwrap.shorten(record.original_query, MOST_OF_QUERY, placeholder="")
    for place, item in enumerate(record.items):
        head = f"{item.title} ({', '.join(record.tags)})" if record.tags else item.title
        parts = WRAP.wrap(item.content) or [""]
        texts = [f"{query}\n{head}\n{item.description}\n{part}" for part in parts[:PLACES]]
        found += [(place + PLACES * number, text) for number, text in enumerate(texts)]
    is_cut = not found or len(record.original_query) > MOST_OF_QUERY
    return [*found, (WHOLE, record.original_query)] if is_cut else found


def lacks_keys(db_row: str, kinds: Collection[str]) -> str:
    """SQL condition: a record `r` has no key of one of these kinds, though it has texts for it."""
    lacking = (
        f"(NOT EXISTS (SELECT 1 FROM keys k WHERE k.origin = r.{db_row} AND k.kind = '{kind}')"
        + (" AND r.items <> '[]'" if kind == ITEM else "")
        + ")"
        for kind in kinds
    )
    return f"({' OR '.join(lacking)})"


def pass_keys(db: SqlSession, namespace: str, ids: Collection[str]) -> None:
    """Let the keys of these records, and of those whose lessons passed to them, lead to the heirs that they have now.

    The heirs are the active records nearest along the links: a duplicate's keeper may have been merged. The keys of an
    active record, and of one whose lessons no active record holds, lead to itself.
    """
    passing = {storable(id) for id in ids}
    passing |= {one for one, _ in _passed(db, namespace, passing, back=True)}
    passed_to: dict[str, list[str]] = defaultdict(list)
    for one, heir in _passed(db, namespace, passing):
        passed_to[heir].append(one)
    row = f"SELECT id, {db.dialect.key_row}, status = 'active' FROM records WHERE namespace = $1 AND id IN ({{these}})"
    known = {id: (row, active) for id, row, active in _of(db, row, namespace, passing.union(passed_to))}
    origins = {known[one][0] for one in passing & known.keys()}
    led = "SELECT origin, record FROM heirs WHERE namespace = $1 AND origin IN ({these})"
    before = set(_of(db, led, namespace, origins))
    now = {pair for pair in _heirs(passed_to, known) if pair[0] in origins}
    db.executemany("DELETE FROM heirs WHERE (origin, record) = ($1, $2)", sorted(before - now))
    db.executemany("INSERT INTO heirs VALUES ($1, $2, $3)", [(*pair, namespace) for pair in sorted(now - before)])


def pass_all_keys(db: SqlSession, namespace: str | None) -> None:
    """`pass_keys` of all records that have links or heirs. namespace None: of all."""
    within = "coalesce($1, l.namespace) = l.namespace"
    queries = [
        f"SELECT l.namespace, l.{passes} FROM links l WHERE l.relation = '{relation}' AND {within}"
        for relation, (passes, _) in PASSING.items()
    ]
    queries.append(
        f"SELECT l.namespace, o.id FROM heirs l JOIN records o ON o.{db.dialect.key_row} = l.origin WHERE {within}"
    )
    found: dict[str, set[str]] = defaultdict(set)
    for space, id in db.execute(" UNION ".join(queries), (namespace,)).fetchall():
        found[space].add(id)
    for space, ids in found.items():
        pass_keys(db, space, ids)


def _passed(db: SqlSession, namespace: str, ids: Collection[str], *, back: bool = False) -> Iterator[tuple[str, str]]:
    """(id, heir's id) of the links by which lessons pass, from these records on; back: of those that lead to them."""
    query = " UNION ".join(
        f"SELECT {passes}, {heir} FROM links WHERE namespace = $1 AND relation = '{relation}' "
        f"AND {heir if back else passes} IN ({{these}})"
        for relation, (passes, heir) in PASSING.items()
    )
    seen, new = set(ids), set(ids)
    while new:
        found = list(_of(db, query, namespace, new))
        yield from found
        new = {row[0 if back else 1] for row in found} - seen
        seen |= new


def _of(db: SqlSession, query: str, namespace: str, ids: Collection[Any]) -> Iterator[tuple]:
    """The rows of a query about these ids or row ids."""
    for some in in_parts(sorted(ids)):
        yield from db.execute(query.format(these=placeholders(len(some), after=1)), (namespace, *some)).fetchall()


def _heirs(
    passed_to: Mapping[str, Collection[str]], known: Mapping[str, tuple[int, bool]]
) -> Iterator[tuple[int, int]]:
    """(row id, that of an heir) of each record that is not active: from each active one, back along the links."""
    for keeper, (heir, active) in known.items():
        reached = {keeper: heir} if active else {}
        new = [*reached]
        for id in new:  # grows meanwhile
            for one in passed_to.get(id, ()):
                row, is_active = known.get(one, (0, True))
                if not is_active and one not in reached:
                    reached[one] = row
                    new.append(one)
        yield from ((row, heir) for one, row in reached.items() if one != keeper)
