"""The settings file of the user: what stands between the presets and what is typed."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from core.errors import UserError

ENV = "REASONINGBANK_SETTINGS"  # another file, or `none` to read none
NAME = "reasoningbank.yaml"
_PLAIN = re.compile(r"(?!(?:null|true|false|inf|nan)$)[A-Za-z_][\w-]*", re.IGNORECASE)


def settings_file() -> Path | None:
    """The file that is read; None where there is none, or where the variable ENV says `none`."""
    if (named := os.environ.get(ENV)) is not None:
        return None if named in ("", "none") else Path(named).expanduser()
    home = Path.home()
    folders = [Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")]
    if sys.platform == "darwin":
        folders.append(home / "Library" / "Application Support")
    elif sys.platform == "win32":
        folders.append(Path(os.environ.get("APPDATA") or home / "AppData" / "Roaming"))
    return next((folder / NAME for folder in folders if (folder / NAME).is_file()), None)


def read_settings(path: Path) -> list[str]:
    """The file's keys as overrides, those that choose an option of a group first. UserError where it cannot be read."""
    import yaml

    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"the settings {path} cannot be read: {error}.") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" in line {mark.line + 1}"
        raise UserError(f"the settings {path} are no YAML{where}.") from None  # the error would quote the file
    if not isinstance(found or {}, dict):
        raise UserError(f"the settings {path} hold no keys: give lines like `retrieval.top_k: 3`.")
    words = list(_words(found or {}))
    return sorted(words, key=lambda word: "." in word.partition("=")[0])


def _words(node: dict[Any, Any], above: str = "") -> Iterator[str]:
    """A word key=value for each leaf of nested mappings."""
    for name, value in node.items():
        key = f"{above}{name}"
        if isinstance(value, dict) and value:
            yield from _words(value, f"{key}.")
        else:
            yield f"{key}={_value(value)}"


def _value(value: Any) -> str:
    """A value in the grammar of Hydra's overrides; a text that could be read otherwise is quoted."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list):
        return f"[{','.join(map(_value, value))}]"
    if isinstance(value, str) and not _PLAIN.fullmatch(value):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return str(value)
