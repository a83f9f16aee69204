"""Where the bank lies that nobody has named: in the user's data folder, a file of its own for each repository."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from contextlib import suppress
from pathlib import Path

from platformdirs.api import PlatformDirsABC
from platformdirs.macos import MacOS
from platformdirs.unix import Unix
from platformdirs.windows import Windows

BANK_ENV = "REASONINGBANK_BANK"  # names the bank of whoever gives none: a file, or the URL of a database
HERE = "."  # as a bank's path: the one of the folder that the command is started in


def unnamed_bank(folder: str | Path = ".") -> tuple[str, str]:
    """(path of the bank for work in a folder, why that one): see `default_bank`, unless BANK_ENV names another."""
    if named := os.environ.get(BANK_ENV):
        return named, f"as ${BANK_ENV} says"
    root = repository(folder)
    return str(default_bank(root)), "for work outside of repositories" if root is None else f"of the repository {root}"


def default_bank(root: Path | None) -> Path:
    """The file of a repository's bank, named after its root; None: of all that is done outside of repositories."""
    name = "bank"
    if root is not None:
        readable = re.sub(r"[^\w.-]+", "-", root.name.removesuffix(".git"))[:40].strip("-.") or "repository"
        name = f"{readable}-{hashlib.sha256(os.fsencode(root)).hexdigest()[:8]}"
    return user_folders("reasoningbank").user_data_path / f"{name}.sqlite"


def repository(folder: str | Path) -> Path | None:
    """The root of the git repository that holds a folder, the same in all its worktrees; None outside of one."""
    with suppress(OSError, ValueError):
        here = Path(folder).resolve()
        for root in (here, *here.parents):
            git = root / ".git"
            if git.is_dir():
                return root
            if git.is_file():  # of a worktree, or of a submodule, which is a repository of its own
                own = (root / git.read_text(encoding="utf-8").partition("gitdir:")[2].strip()).resolve()
                if not (own / "commondir").is_file():
                    return root
                common = (own / (own / "commondir").read_text(encoding="utf-8").strip()).resolve()
                return common.parent if common.name.startswith(".") else common  # .git, or of a bare repository
    return None


def user_folders(program: str | None = None) -> PlatformDirsABC:
    """This platform's folders for a user's settings and data, of all programs or of one."""
    kind = {"darwin": MacOS, "win32": Windows}.get(sys.platform, Unix)
    return kind(program, appauthor=False, roaming=True)
