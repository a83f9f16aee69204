"""Model files that are installed as Python packages."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path


def wheel_file(package: str, pattern: str) -> Path | None:
    """The first file of a pattern in an installed package; the package itself is not imported. None without one."""
    spec = find_spec(package)
    folders = spec.submodule_search_locations if spec else None
    return next((file for folder in folders or () for file in sorted(Path(folder).glob(pattern))), None)
