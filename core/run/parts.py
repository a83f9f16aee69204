"""What a run was made of beside its configuration: the project's source, and that of parts from outside of it.

A part is from outside if its `_target_` lies in no package of this project: a module that --config-dir names, or an
installed plug-in. Its hash covers all Python files of its package, and the modules that they import from outside,
installed libraries excepted, whose versions the manifest has.
"""

from __future__ import annotations

import hashlib
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from modulefinder import ModuleFinder
from pathlib import Path
from typing import Any

from core.make import part

ROOT = Path(__file__).parents[2]
PACKAGES = ("core", "envs", "prompts", "single_turn_bench", "workflows")  # which a run is made of, with main.py
INSTALLED = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib", "stdlib"))


@cache  # the modules of a process are those of its start
def own_source() -> str:
    """A hash of the project's Python files: with changes that are not committed, and without git."""
    files = [path for name in PACKAGES for path in (ROOT / name).rglob("*.py")]
    return _hash(ROOT, [ROOT / "main.py", *files])


def is_source(file: str) -> bool:
    """Whether a file of the repository is a part of `own_source`."""
    return file.endswith(".py") and (file == "main.py" or file.partition("/")[0] in PACKAGES)


def foreign_parts(config: dict[str, Any]) -> dict[str, str]:
    """{`_target_`: hash of its source} of the parts from outside in a configuration; {} if there are none."""
    return {name: found for name in sorted({*_targets(config)}) if (found := _foreign(name))}


def _targets(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(name := node.get("_target_"), str):
            yield node["path"] if name.startswith("hydra.utils.get_") else name  # a function that is handed on
        yield from (name for value in node.values() for name in _targets(value))
    elif isinstance(node, list):
        yield from (name for value in node for name in _targets(value))


def _foreign(target: str) -> str | None:
    """The hash of a part's source; None for a part of the project."""
    if target.partition(".")[0] in PACKAGES or target.startswith("hydra."):  # instantiates what others name
        return None
    modules = (target, getattr(part({"_target_": target}), "__module__", None) or "")
    return _hash(None, {file for name in {module.partition(".")[0] for module in modules} for file in _files(name)})


def _files(name: str) -> set[Path]:
    """The Python files of a package or a module, and of what they import from outside. name: without a dot."""
    try:
        spec = find_spec(name) if name and name not in PACKAGES else None
    except (ImportError, ValueError):  # ValueError: a module that was made at run time
        spec = None
    if spec is None:
        return set()
    modules = {".".join((name, *inside)): path for inside, path in _inside(spec.submodule_search_locations or ())}
    if not modules and spec.origin and Path(spec.origin).is_file():
        modules = {name: Path(spec.origin).resolve()}
    finder = _Finder([place for place in sys.path if not _is_installed(Path(place).resolve())], excludes=PACKAGES)
    for module in modules:
        with suppress(ImportError, SyntaxError):  # whoever imports it is told
            finder.import_hook(module)
    imported = filter(None, (getattr(module, "__file__", None) for module in finder.modules.values()))
    return {*modules.values(), *(Path(file).resolve() for file in imported)}


class _Finder(ModuleFinder):
    def find_module(self, name: str, path: Any, parent: Any = None) -> Any:
        try:
            return super().find_module(name, path, parent)
        except AttributeError:  # ModuleFinder knows no folder without __init__.py
            raise ImportError(name) from None


def _inside(folders: Iterable[str]) -> Iterator[tuple[tuple[str, ...], Path]]:
    """(names of a module below its package, its file) for each Python file of a package."""
    for folder in map(Path, folders):
        for path in folder.rglob("*.py"):
            inside = path.relative_to(folder).with_suffix("").parts
            yield inside[:-1] if inside[-1] == "__init__" else inside, path.resolve()


def _is_installed(path: Path) -> bool:
    return "site-packages" in path.parts or any(path.is_relative_to(folder) for folder in INSTALLED)


def _hash(folder: Path | None, files: Iterable[Path]) -> str:
    """16 hex digits of the files' names and contents, whatever the folder that they lie in."""
    found = hashlib.sha256()
    for path in sorted(files):
        name = path.relative_to(folder).as_posix() if folder else path.name
        found.update(f"{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()[:16]
