"""What a run was made of beside its configuration: the project's source, and that of parts from outside of it.

A part is from outside if its `_target_` lies in no package of this project: a module that --config-dir names, or an
installed plug-in. Its hash covers the files of its package, and what these import from outside, installed libraries
excepted, whose versions the manifest has.
"""

from __future__ import annotations

import ast
import hashlib
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from core.build import part

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
    made = part({"_target_": target})
    module = sys.modules.get(getattr(made, "__module__", None) or target.rpartition(".")[0])
    spec = getattr(module, "__spec__", None)
    roots = {name.partition(".")[0] for name in (target, getattr(module, "__name__", ""))} - {""}
    files: set[Path] = set()
    for name in sorted(roots):
        _collect(_spec(name), files, must=True)
    if not files and isinstance(spec, ModuleSpec):
        _collect(spec, files, must=True)
    return _hash(None, files)


def _collect(spec: ModuleSpec | None, files: set[Path], must: bool = False) -> None:
    """Add the files of a module, or of the whole package, and of all that they import from outside.

    must   whether an installed one counts as well
    """
    for path in _files(spec):
        inside = "site-packages" in path.parts or any(path.is_relative_to(folder) for folder in INSTALLED)
        own = path.is_relative_to(ROOT) and "tests" not in path.parts
        if path in files or own or (inside and not must):
            continue
        files.add(path)
        for name in () if inside else _imported(path):
            _collect(_spec(name), files)


def _files(spec: ModuleSpec | None) -> list[Path]:
    if spec is None:
        return []
    if spec.submodule_search_locations is not None:
        return [path.resolve() for folder in spec.submodule_search_locations for path in Path(folder).rglob("*.py")]
    return [Path(spec.origin).resolve()] if spec.origin and Path(spec.origin).is_file() else []


def _imported(path: Path) -> set[str]:
    """The top-level names of the modules that a file imports."""
    if path.suffix != ".py":
        return set()
    found = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found - sys.stdlib_module_names - {*PACKAGES}


def _spec(name: str) -> ModuleSpec | None:
    try:
        return find_spec(name)
    except (ImportError, ValueError):  # ValueError: a module that was made at run time
        return None


def _hash(folder: Path | None, files: Iterable[Path]) -> str:
    """16 hex digits of the files' names and contents, whatever the folder that they lie in."""
    found = hashlib.sha256()
    for path in sorted(files):
        name = path.relative_to(folder).as_posix() if folder else path.name
        found.update(f"{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()[:16]
