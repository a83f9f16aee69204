"""What a run was made of beside its configuration: the project's source, and that of parts from outside of it.

A part is from outside if its `_target_` lies in no package of this project: a module that --config-dir names, or an
installed plug-in. Its hash covers its module and what that imports from outside, also from its own package, installed
libraries excepted, whose versions the manifest has. So a table or a test beside it may change between two starts. If
one of these files imports by names that are made at run time, all files of its package are covered.
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
BY_NAME = frozenset(("importlib", "pkgutil", "runpy", "__import__", "exec"))
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
    files: set[Path] = set()
    for name in (target, getattr(made, "__module__", None) or ""):
        _collect(name, files, must=True)
    spec = getattr(sys.modules.get(getattr(made, "__module__", "")), "__spec__", None)
    if not files and spec is not None and spec.origin and Path(spec.origin).is_file():  # of a module without a finder
        files.add(Path(spec.origin).resolve())
    return _hash(None, files)


def _collect(name: str, files: set[Path], must: bool = False) -> None:
    """Add the files of a module, and of all that they import from outside. name: dotted; its end may be no module.

    must   whether an installed one counts as well: it does as a whole
    """
    spec = _spec(name.partition(".")[0])
    for module, path in _files(spec, name.split(".")):
        if "site-packages" in path.parts or any(path.is_relative_to(folder) for folder in INSTALLED):
            if must:
                files |= {*_package(spec).values()} or {path}
            return
        if path in files or (path.is_relative_to(ROOT) and "tests" not in path.parts):
            continue
        files.add(path)
        imported = _imported(module, path)
        if imported & BY_NAME:
            imported |= _package(spec).keys()
        for each in sorted(imported - BY_NAME):
            _collect(each, files)


def _package(spec: ModuleSpec | None) -> dict[str, Path]:
    """{module: file} of all modules of a package; {} for a module."""
    found = {}
    if spec is None:
        return found
    for folder in map(Path, spec.submodule_search_locations or ()):
        for path in folder.rglob("*.py"):
            inside = path.relative_to(folder).with_suffix("").parts
            found[".".join((spec.name, *inside)).removesuffix(".__init__")] = path.resolve()
    return found


def _files(spec: ModuleSpec | None, name: list[str]) -> Iterator[tuple[str, Path]]:
    """(module, file) of a dotted name and of the packages that it lies in, without importing any; outermost first."""
    if spec is None:
        return
    if spec.submodule_search_locations is None:
        if spec.origin and Path(spec.origin).is_file():
            yield name[0], Path(spec.origin).resolve()
        return
    for folder in map(Path, spec.submodule_search_locations):
        for n in range(1, len(name) + 1):
            inside = folder.joinpath(*name[1:n])
            for path in (inside / "__init__.py", inside.with_name(f"{inside.name}.py") if n > 1 else inside):
                if path.is_file():
                    yield ".".join(name[:n]), path.resolve()


def _imported(module: str, path: Path) -> set[str]:
    """The dotted names of all that a file imports and of what it takes from there; none of the project's.

    One of BY_NAME is among them if the file can import what it does not name.
    """
    if path.suffix != ".py":
        return set()
    try:
        tree = ast.parse(path.read_bytes(), filename=path)
    except SyntaxError:  # whoever imports it is told
        return set()
    found = set()
    inside = module.split(".")[: None if path.name == "__init__.py" else -1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = inside[: len(inside) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            found |= {f"{base}.{name.name}" for name in node.names}
        elif isinstance(node, ast.Name):
            found |= {node.id} & BY_NAME
    by_name = {name.partition(".")[0] for name in found} & BY_NAME
    return by_name | {name for name in found if name.partition(".")[0] not in {*sys.stdlib_module_names, *PACKAGES}}


def _spec(name: str) -> ModuleSpec | None:
    try:
        return find_spec(name) if name else None
    except (ImportError, ValueError):  # ValueError: a module that was made at run time
        return None


def _hash(folder: Path | None, files: Iterable[Path]) -> str:
    """16 hex digits of the files' names and contents, whatever the folder that they lie in."""
    found = hashlib.sha256()
    for path in sorted(files):
        name = path.relative_to(folder).as_posix() if folder else path.name
        found.update(f"{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()[:16]
