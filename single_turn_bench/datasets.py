"""Datasets by name or path, checked when they are loaded, and seeded subsets of them.

A dataset is looked for in this order: the path given; a file dropped into single_turn_bench/ under a known name
(specs.py); what reasoningbank fetch left in single_turn_bench/data/.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from core.errors import UserError
from single_turn_bench.columns import Columns
from single_turn_bench.files import read_objects, sha256
from single_turn_bench.rows import Row, parse_rows
from single_turn_bench.specs import SPECS, DatasetSpec, FileSpec

HERE = Path(__file__).resolve().parent
if (HERE.parent / "pyproject.toml").is_file():
    FETCHED = HERE / "data"
else:  # an installed package is not written into
    from platformdirs import user_cache_path

    FETCHED = user_cache_path("reasoningbank") / "data"
MAX_NAMED = 5  # colliding ids named in an error


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """sha256 is of the file, or of the hashes of several; source_path is the file, or the folder that holds several."""

    name: str
    rows: tuple[Row, ...]
    sha256: str
    source_path: str


def load_rows(
    name_or_path: str | Path,
    path: str | Path | None = None,
    *,
    count: int | None = None,
    sha256: str | None = None,
    columns: Columns | None = None,
) -> Dataset:
    """All rows of a dataset in its own order. Raises UserError with one sentence when absent or not what it should be.

    name_or_path   a name of specs.SPECS, a file, or with `path` any name: the ids of the rows begin with it
    path           a file of that dataset; of a known one also a folder that holds its files under their known names
    count, sha256  what its rows and Dataset.sha256 must be; None: whatever they are
    columns        which column holds what; None: by their usual names
    """
    name = str(name_or_path)
    if name in SPECS:
        dataset = load_named(SPECS[name], Path(path) if path else None, columns)
    elif Path(path or name).is_file():
        file = Path(path or name)
        own = name if path else file.name.partition(".")[0]
        dataset = assemble(own, [(file, FileSpec(names=(file.name,)))], columns)
    else:
        if path and Path(path).is_dir():
            raise UserError(f"{path} is a folder: give the file that holds the questions.")
        if path:
            raise UserError(f"There is no file {path} to read {name} from.")
        raise UserError(
            f"There is no dataset or file {name!r}; the datasets are {', '.join(SPECS)}; others need a path."
        )
    if count not in (None, len(dataset.rows)):
        raise UserError(f"{dataset.source_path} has {len(dataset.rows)} rows, not the {count} that were expected.")
    if sha256 not in (None, dataset.sha256):
        raise UserError(f"{dataset.source_path} has sha256 {dataset.sha256}, not the expected {sha256}.")
    return dataset


def load_named(spec: DatasetSpec, path: Path | None, columns: Columns | None = None) -> Dataset:
    """As `load_rows`, of a dataset in specs.SPECS."""
    if found := locate(spec, path):
        return assemble(spec.name, found, columns)
    wanted = [file.names[0] for file in spec.files]
    if path is not None:
        raise UserError(f"The folder {path} holds no file of {spec.name}, such as {', '.join(wanted)}.")
    fetch = f"run `reasoningbank fetch {spec.name}`, or " if spec.hub else ""
    raise UserError(f"The dataset {spec.name} is not here: {fetch}put {' and '.join(wanted)} into single_turn_bench/.")


def locate(spec: DatasetSpec, path: Path | None) -> list[tuple[Path, FileSpec]]:
    """The files of a dataset that are here, and what must be true of each. path: see `load_rows`."""
    if path is None:
        return in_folders(spec, [HERE]) or fetched(spec)
    if path.is_dir():
        return in_folders(spec, [path, *sorted(entry for entry in path.iterdir() if entry.is_dir())])
    if not path.exists():
        raise UserError(f"There is no file or folder {path} to read {spec.name} from.")
    known = (file for file in spec.files if path.name in file.names)
    return [(path, next(known, FileSpec(names=(path.name,))))]  # nothing is demanded of a file with a name of its own


def in_folders(spec: DatasetSpec, folders: Sequence[Path]) -> list[tuple[Path, FileSpec]]:
    """The first file that is there for each part of the dataset."""
    places = ([(folder / name, file) for folder in folders for name in file.names] for file in spec.files)
    found = (next((place for place in each if place[0].is_file()), None) for each in places)
    return [place for place in found if place]


def fetched(spec: DatasetSpec) -> list[tuple[Path, FileSpec]]:
    """The fetched file, with the hash that the fetching script recorded beside it."""
    for path in (FETCHED / f"{spec.name}{suffix}" for suffix in (".jsonl", ".jsonl.gz", ".zip")):
        if path.is_file():
            record = FETCHED / f"{spec.name}.source.json"
            if not record.is_file():
                raise UserError(f"{path.name} has no {record.name} beside it: fetch the dataset again.")
            digest = json.loads(record.read_text(encoding="utf-8"))["sha256"]
            return [(path, FileSpec(names=(path.name,), count=spec.count, sha256={path.name: digest}))]
    return []


def assemble(name: str, found: Sequence[tuple[Path, FileSpec]], columns: Columns | None = None) -> Dataset:
    """Read and check the files of a dataset and join them."""
    rows: list[Row] = []
    digests = []
    for path, spec in found:
        digests.append(sha256(path) if path.is_file() else "")
        rows += read_file(path, spec, name, digests[-1], columns)
    check_unique(rows, " and ".join(path.name for path, _ in found))
    single = len(found) == 1
    return Dataset(
        name=name,
        rows=tuple(rows),
        sha256=digests[0] if single else hashlib.sha256("\n".join(digests).encode()).hexdigest(),
        source_path=str(found[0][0] if single else found[0][0].parent),
    )


def read_file(path: Path, spec: FileSpec, dataset: str, digest: str, columns: Columns | None = None) -> list[Row]:
    raws = list(read_objects(path))
    rows = parse_rows(raws, dataset, columns)
    if not rows:
        raise UserError(f"{path.name} is empty: a dataset has at least one row.")
    check_unique(rows, path.name, [where.rpartition(" ")[2] for where, _ in raws])
    if spec.count is not None and len(rows) != spec.count:
        raise UserError(f"{path.name} has {len(rows)} rows, the official file {spec.count}: get it again.")
    official = spec.sha256.get(path.name, digest)
    if official != digest:
        raise UserError(f"{path.name} has sha256 {digest[:12]}..., the official file {official[:12]}...: get it again.")
    return rows


def check_unique(rows: Sequence[Row], where: str, lines: Sequence[str] = ()) -> None:
    """Colliding ids would silently make one problem of several. lines: where the rows stand."""
    places: dict[str, list[str]] = {}
    for number, row in enumerate(rows):
        places.setdefault(row.id, []).append(lines[number] if lines else "")
    twice = {task_id: found for task_id, found in places.items() if len(found) > 1}
    if twice:
        told = [f"{each} (lines {', '.join(found[:MAX_NAMED])})" if lines else each for each, found in twice.items()]
        more = f" and {len(told) - MAX_NAMED} more" if len(told) > MAX_NAMED else ""
        named = f"{', '.join(told[:MAX_NAMED])}{more}"
        raise UserError(
            f"{where}: {len(places)} unique ids of {len(rows)}; colliding: {named}; leave out the copies, or say with "
            "env.columns.id=NAME which column tells the rows apart."
        )


def select(
    rows: Sequence[Row],
    ids: Sequence[str] | None = None,
    subject: str | Sequence[str] | None = None,
    level: int | Sequence[int] | None = None,
    shuffle: bool = False,
    seed: int = 0,
) -> tuple[Row, ...]:
    """A subset in the rows' order, or, with shuffle, in the order of a hash of seed and id.

    Raises UserError when an id or a subject does not occur, or when nothing is left.
    """
    chosen = by_ids(rows, ids) if ids is not None else list(rows)
    if subject is not None:
        chosen = by_subject(chosen, [subject] if isinstance(subject, str) else list(subject))
    if level is not None:
        levels = {level} if isinstance(level, int) else set(level)
        chosen = [row for row in chosen if row.level in levels]
    if shuffle:
        chosen = sorted(chosen, key=lambda row: hashlib.sha256(f"select:{seed}:{row.id}".encode()).digest())
    if not chosen:
        raise UserError("No problem is left: check ids, subject and level.")
    return tuple(chosen)


def by_ids(rows: Sequence[Row], ids: Sequence[str]) -> list[Row]:
    unknown = sorted(set(ids) - {row.id for row in rows})
    if unknown:
        raise UserError(f"There is no problem with the id {', '.join(unknown[:10])}.")
    return [row for row in rows if row.id in set(ids)]


def by_subject(rows: Sequence[Row], subjects: list[str]) -> list[Row]:
    def plain(text: str) -> str:
        return text.casefold().replace("_", " ").replace("&", "and").strip()

    known = {plain(row.subject) for row in rows}
    unknown = sorted(subject for subject in subjects if plain(subject) not in known)
    if unknown:
        raise UserError(f"There is no subject {', '.join(unknown)}; there are {', '.join(sorted(known))}.")
    wanted = {plain(subject) for subject in subjects}
    return [row for row in rows if plain(row.subject) in wanted]
