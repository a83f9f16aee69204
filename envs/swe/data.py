"""The instances of env=swe: an issue, the repository that it is about, and the tests that a fix must pass.

bundled, or a FOLDER    FAMILY/NAME/ with repo/, issue.md, gold.patch, test.patch, instance.json; FAMILY/lesson.md
a FILE                  SWE-bench's own rows: .jsonl, .json, .csv or .parquet; an image holds the repository

A patch is bytes (`as_text`): the files that it changes need not be UTF-8.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.textfile import read_bytes, read_text
from core.types import Lesson, digest
from envs.swe.sandbox import as_text
from single_turn_bench.columns import literal
from single_turn_bench.files import read_objects, sha256

BUNDLED = Path(__file__).with_name("bundled")
LISTS = ("FAIL_TO_PASS", "PASS_TO_PASS")


@dataclass(frozen=True, kw_only=True)
class Instance:
    """One issue.

    type       for breakdowns: the family of a bundled one, else its repository
    tests      (tests that fail before the fix, tests that pass before and after it), by their pytest names
    gold       the fix, and `test_patch` the patch that adds the tests: unified diffs
    folder     of the repository; None: it lies in `image`, or in that of the instance's id where this is None too
    """

    id: str
    repo: str
    type: str
    issue: str
    tests: tuple[tuple[str, ...], tuple[str, ...]]
    gold: str
    test_patch: str
    folder: Path | None = None
    image: str | None = None


def load(data: str) -> list[Instance]:
    """All instances of env.data: a file's in its order, a folder's by turns: the first of each family, then on."""
    path = place(data)
    if path.is_dir():
        families = [[_of_folder(file) for file in sorted(each.glob("*/instance.json"))] for each in _families(path)]
        return [each for each in chain(*zip_longest(*families)) if each is not None]
    if not path.is_file():
        raise UserError(f"env.data={data}: there is no such file or folder.")
    return [_of_row(where, row) for where, row in read_objects(path)]


def place(data: str) -> Path:
    return BUNDLED if data == "bundled" else Path(data).expanduser()


def data_digest(data: str) -> str:
    """A hash over all files of the instances."""
    path = place(data)
    if path.is_file():
        return sha256(path)
    files = (file for file in path.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    return digest(sorted([str(file.relative_to(path)), sha256(file)] for file in files))


def family_lessons(data: str) -> dict[str, Lesson]:
    """{family: its ideal lesson}, read from its lesson.md, whose first line is the title."""
    path = place(data)
    found = {}
    for folder in _families(path) if path.is_dir() else ():
        if (file := folder / "lesson.md").is_file():
            found[folder.name] = lesson_in(
                file, f"A convention that holds in every repository of the kind {folder.name}."
            )
    return found


def lesson_in(file: Path, about: str) -> Lesson:
    """An ideal lesson, whose first line is its title. about: its description."""
    title, _, text = read_text(file).strip().partition("\n")
    return Lesson(title=title.lstrip("# ").strip(), description=about, content=" ".join(text.split()))


def _families(path: Path) -> list[Path]:
    return sorted({file.parents[1] for file in path.glob("*/*/instance.json")})


def _of_folder(file: Path) -> Instance:
    folder = file.parent
    row = _decoded(str(file), read_text(file))
    if not isinstance(row, dict):
        raise UserError(f"{file}: it is no JSON object with instance_id and repo.")
    gold, tests = (as_text(read_bytes(folder / name)) for name in ("gold.patch", "test.patch"))
    about = {"problem_statement": read_text(folder / "issue.md"), "patch": gold, "test_patch": tests}
    return _of_row(str(file), row | about, folder=folder / "repo", type=str(row.get("family") or folder.parent.name))


def _of_row(where: str, row: dict[str, Any], **more: Any) -> Instance:
    """Make an instance from a row of SWE-bench. more: the fields of Instance that such a row lacks."""
    missing = [name for name in ("instance_id", "repo", "problem_statement") if not isinstance(row.get(name), str)]
    if missing:
        raise UserError(f"{where}: {missing[0]} is missing or no text; env.data takes the fields of SWE-bench.")
    for name in ("patch", "test_patch"):
        if not isinstance(row.get(name), str | None):
            raise UserError(f"{where}: {name} is no text.")
    if str(row.get("image_name") or "").startswith("-"):
        raise UserError(f"{where}: image_name={row['image_name']} is an option of docker, and no image.")
    values = {"type": row["repo"], "image": row.get("image_name") or None} | more
    return Instance(
        id=row["instance_id"],
        repo=row["repo"],
        issue=row["problem_statement"].strip(),
        tests=tuple(_names(where, name, row.get(name)) for name in LISTS),
        gold=row.get("patch") or "",
        test_patch=row.get("test_patch") or "",
        **values,
    )


def _names(where: str, name: str, value: Any) -> tuple[str, ...]:
    """A list of tests; SWE-bench writes it as a text of JSON."""
    found = literal(value)  # a table writes the list as Python does
    if isinstance(found, str):
        found = _decoded(f"{where}: {name}", found)
    if found is None:
        return ()
    if not isinstance(found, list | tuple) or not all(isinstance(each, str) for each in found):
        raise UserError(f"{where}: {name} is no list of tests.")
    return tuple(found)


def _decoded(where: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise UserError(f"{where}: not JSON ({error}).") from error
