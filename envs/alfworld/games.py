"""The games of an ALFWorld split: found in a folder or a tar archive, listed in a fixed order, read once.

A game is a file `<task>/<trial>/game.tw-pddl`, for instance
    valid_seen/pick_heat_then_place_in_recep-Apple-None-DiningTable-26/trial_T20190907_060234_011675/game.tw-pddl
and the two folders' names are its id.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import re
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from core.errors import UserError
from core.process import WorkerProcess
from core.textfile import unpacked, write_whole
from core.types import content_id

FETCH = "alfworld-download"  # the command of the package that brings the games
HOW = f"fetch them with {FETCH}, or play env.split=generated, which needs no download"
GAME_FILE = "game.tw-pddl"
MOST_OF_A_GAME, MOST_OF_AN_ARCHIVE = 8 << 20, 4 << 30  # bytes; the largest of the 3,553 official games has .1 MB
SPLITS = ("train", "valid_train", "valid_seen", "valid_unseen")
TASK_TYPES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
QUERY = re.compile(r'"Your task is to: ((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, kw_only=True)
class Game:
    """folder: `<task>/<trial>`; query: what is asked, from the game's own grammar; sha256: of the game file."""

    folder: str
    path: str
    query: str
    type: str
    sha256: str

    def prepare(self, worker: WorkerProcess) -> None:
        """See that the worker's engine can load the file: as a rule it is there."""


def default_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "reasoningbank" / "alfworld"


def find_data(data: str | None) -> Path:
    """The folder or archive that holds the games. Raises UserError when there is none."""
    if (path := next(_places(data), None)) is not None:
        return path.resolve()
    where = f"env.data={data} does not exist" if data else "neither env.data nor $ALFWORLD_DATA leads to ALFWorld games"
    raise UserError(f"{where}: {HOW}")


def has_games(data: str | None) -> bool:
    """Whether there are games to play, or `data` names where they should be."""
    if data:
        return True
    path = next(_places(None), None)
    return path is not None and (path.is_file() or next(_walk(path), None) is not None)


def _places(data: str | None) -> Iterator[Path]:
    """Where the games may be: the places that exist."""
    tried = [data] if data else [os.environ.get("ALFWORLD_DATA"), "~/.cache/alfworld"]
    return (path for text in tried if text and (path := Path(text).expanduser()).exists())


def list_games(data: Path, split: str, cache: Path) -> list[Game]:
    """All solvable games of a split, sorted by folder. The list is kept in the cache until the files change."""
    root = data if data.is_dir() else extract(data, cache)
    files = _files(root, split)
    index = cache / "index" / f"{content_id(str(root), split)}.json"
    signature = content_id([(path, *_stamp(path)) for path in files])
    kept = json.loads(index.read_text(encoding="utf-8")) if index.exists() else {}
    if kept.get("signature") != signature:
        games = [asdict(game) for game in map(read_game, files) if game]
        kept = {"signature": signature, "games": games}
        write_whole(index, json.dumps(kept))
    games = [Game(**row) for row in kept["games"]]
    twice = [folder for folder, n in Counter(game.folder for game in games).items() if n > 1]
    if twice:
        raise UserError(f"{data} holds {len(twice)} games of {split} twice, {twice[0]} among them: keep one copy")
    return games


def read_game(path: str) -> Game | None:
    """What the list needs of a game file; None for a game that ALFWorld itself leaves out as unsolvable."""
    task, trial = Path(path).parts[-3:-1]
    raw = Path(path).read_bytes()
    data = json.loads(raw)
    if not data.get("solvable", True):
        return None
    match = QUERY.search(data["grammar"])
    if match is None:
        raise UserError(f"not an ALFWorld game, its grammar states no task: {path}")
    return Game(
        folder=f"{task}/{trial}",
        path=path,
        query=json.loads(f'"{match[1]}"').strip(),
        type=task.split("-")[0],
        sha256=hashlib.sha256(raw).hexdigest(),
    )


def _files(root: Path, split: str) -> list[str]:
    """The split's game files. Where no folder is named after any split, every game belongs to the split asked for."""
    of_split = [path for path in (root / split, *sorted(root.glob(f"json_*/{split}"))) if path.is_dir()]
    files = [path for top in of_split or [root] for path in _walk(top)]
    folders = {path: (root.name, *Path(path).relative_to(root).parts) for path in files}
    splits = Counter(name for path in files for name in folders[path] if name in SPLITS)
    if splits:
        files = [path for path in files if split in folders[path]]
    if not files:
        held = ", ".join(f"{name} ({n})" for name, n in sorted(splits.items())) or "no games at all"
        raise UserError(f"no games of env.split={split} in {root}, which holds {held}: {HOW}")
    return sorted(files, key=lambda path: Path(path).parts[-3:])


def _walk(top: Path) -> Iterator[str]:
    for folder, _, names in os.walk(top):
        # ALFWorld plays neither sliced objects nor movable receptacles, though the releases list such tasks
        if GAME_FILE in names and Path(folder).parent.name.split("-")[0] in TASK_TYPES and "Sliced" not in folder:
            yield os.path.join(folder, GAME_FILE)  # noqa: PTH118 - Path would triple the time over 3500 games


def extract(archive: Path, cache: Path) -> Path:
    """Unpack an archive's game files into the cache, once, and return the folder."""
    target = cache / "archives" / content_id(str(archive), *_stamp(archive))
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        try:
            with tarfile.open(archive) as tar:
                _unpack(tar, Path(scratch) / "games")
        except (tarfile.TarError, EOFError, lzma.LZMAError) as error:
            raise UserError(f"{archive} is neither a folder nor a whole tar archive: {error}") from None
        try:
            (Path(scratch) / "games").rename(target)
        except OSError:
            if not target.exists():  # else another process was faster
                raise
    return target


def _unpack(tar: tarfile.TarFile, into: Path) -> None:
    into.mkdir()
    for member in tar:
        if member.offset_data + member.size > MOST_OF_AN_ARCHIVE:
            raise UserError(f"{tar.name} unpacks to more than {MOST_OF_AN_ARCHIVE >> 20} MB: unpack it yourself.")
        parts = PurePosixPath(member.name).parts
        if not member.isfile() or parts[-1] != GAME_FILE or ".." in parts or parts[0] == "/":
            continue
        path = into.joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(unpacked(tar.extractfile(member), f"{tar.name}: {member.name}", MOST_OF_A_GAME))


def _stamp(path: str | Path) -> tuple[int, int]:
    stat = Path(path).stat()
    return stat.st_size, stat.st_mtime_ns
