"""Mind2Web's records (osunlp/Mind2Web, CC-BY-4.0) in their public format, and what is kept of them to be played.

A public file is a list of records: annotation_id, website, domain, subdomain, confirmed_task, action_reprs and actions,
each with action_uid, raw_html, cleaned_html, operation {op, original_op, value}, pos_candidates and neg_candidates.
The candidates' ranks stand in another file, a pickle of {scores, ranks}[annotation_action][backend_node_id].

A record weighs megabytes and most of that is never shown, so `reasoningbank fetch` makes one archive a split:
index.json, and for each record a file with its pages and ranks. The three records of split=sample are this project's.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.textfile import read_member
from core.types import digest
from single_turn_bench.datasets import FETCHED

SAMPLE = Path(__file__).with_name("sample")
COUNTS = {"train": 1009, "test_task": 252, "test_website": 177, "test_domain": 912}
SPLITS = (*COUNTS, "sample")
Ranks = dict[str, dict[str, int]]  # {annotation_action: {backend_node_id: rank, 0 the best}}
Candidates = tuple[tuple[str, int], ...]  # (backend_node_id, rank)


@dataclass(frozen=True, kw_only=True)
class RecordedStep:
    """A recorded step. gold: the right elements, in the record's order; () if the page has none of them."""

    uid: str
    html: str
    op: str
    value: str
    shown: str  # the step in words, "[button]  Search -> CLICK"
    gold: Candidates
    others: Candidates


@dataclass(frozen=True, kw_only=True)
class Record:
    """A recorded task."""

    id: str
    website: str
    domain: str
    subdomain: str
    query: str
    steps: tuple[RecordedStep, ...]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A record in the index of its split."""

    id: str
    domain: str
    query: str
    n_steps: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Split:
    entries: tuple[Entry, ...]
    read: Callable[[str], Record]  # by the id of an entry


def load_split(name: str, data: Path | None = None) -> Split:
    """A split of the folder, None: the one that was fetched. UserError where it is absent or not what it should be."""
    if name not in SPLITS:
        raise UserError(f"env.split={name!r} is not one of {', '.join(SPLITS)}")
    if name == "sample":
        ranks = json.loads((SAMPLE / "ranks.json").read_text(encoding="utf-8"))["ranks"]
        records = {record.id: record for record in public_records(SAMPLE / "records.json", ranks)}
        return Split(entries=tuple(map(entry_of, records.values())), read=records.__getitem__)
    path = (data or FETCHED / "mind2web") / f"{name}.zip"
    if not path.is_file():
        raise UserError(
            f"There is no {path}: `reasoningbank fetch mind2web` says how to get it; env.split=sample has "
            "three records to try."
        )
    try:
        with zipfile.ZipFile(path) as archive:
            entries = tuple(Entry(**each) for each in json.loads(read_member(archive, "index.json")))
    except (OSError, zipfile.BadZipFile, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged ({error}): convert the split again.") from error
    check_count(name, [each.id for each in entries])
    return Split(entries=entries, read=partial(_read, path))


def check_count(split: str, ids: list[str]) -> None:
    """Raises UserError where a split does not have as many records as it was published with, each once."""
    if len(ids) != COUNTS[split] or len(set(ids)) != len(ids):
        raise UserError(
            f"Mind2Web's {split} has {COUNTS[split]} tasks, here are {len(ids)}, {len(set(ids))} of them different. "
            "(Multimodal-Mind2Web has fewer and is another benchmark.)"
        )


def write_split(path: Path, records: Iterator[Record], split: str) -> int:
    """The archive of a split, from its records; how many there were. Two runs write the same bytes."""
    entries = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:

        def put(name: str, value: Any) -> None:
            member = zipfile.ZipInfo(name)  # its date is fixed
            member.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(member, json.dumps(value, ensure_ascii=False))

        for record in records:
            put(f"{record.id}.json", asdict(record))
            entries.append(entry_of(record))
        check_count(split, [each.id for each in entries])
        put("index.json", [asdict(each) for each in entries])
    return len(entries)


def entry_of(record: Record) -> Entry:
    sha256 = digest(asdict(record))
    return Entry(id=record.id, domain=record.domain, query=record.query, n_steps=len(record.steps), sha256=sha256)


def public_records(path: Path, ranks: Ranks) -> Iterator[Record]:
    """The records of a file in the public format. Raises UserError, with the place, for one that is not in it."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}.") from error
    for number, each in enumerate(raw, start=1):
        try:
            yield _record(each, ranks)
        except (KeyError, TypeError, ValueError) as error:
            said = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise UserError(f"{path.name}, record {number}, is not in Mind2Web's format: {said}.") from error


def _record(raw: dict[str, Any], ranks: Ranks) -> Record:
    name = raw["annotation_id"]
    steps = [
        _step(each, shown, ranks.get(f"{name}_{each['action_uid']}", {}))
        for each, shown in zip(raw["actions"], raw["action_reprs"], strict=True)
    ]
    where = {key: raw[key] for key in ("website", "domain", "subdomain")}
    return Record(id=name, query=raw["confirmed_task"], steps=tuple(steps), **where)


def _step(raw: dict[str, Any], shown: str, ranks: dict[str, int]) -> RecordedStep:
    def ranked(key: str) -> Candidates:
        return tuple((each["backend_node_id"], ranks[each["backend_node_id"]]) for each in raw[key])

    done = raw["operation"]
    return RecordedStep(
        uid=raw["action_uid"],
        html=raw["cleaned_html"],
        op=done["op"],
        value=done["value"],
        shown=shown,
        gold=ranked("pos_candidates"),
        others=ranked("neg_candidates"),
    )


def _read(path: Path, name: str) -> Record:
    with zipfile.ZipFile(path) as archive:
        raw = json.loads(read_member(archive, f"{name}.json"))
    pairs = ("gold", "others")
    steps = [RecordedStep(**each | {key: tuple(map(tuple, each[key])) for key in pairs}) for each in raw["steps"]]
    return Record(**raw | {"steps": tuple(steps)})
