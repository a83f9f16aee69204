"""key=value words in the grammar of Hydra's overrides."""

from __future__ import annotations

import re
from typing import Any

_PLAIN = re.compile(r"(?!(?:null|true|false|inf|nan)$)[A-Za-z_][\w-]*", re.IGNORECASE)


def override(key: str, value: Any) -> str:
    """key=value in the grammar of Hydra's overrides."""
    return f"{key}={_value(value)}"


def _value(value: Any) -> str:
    """A value in the grammar of Hydra's overrides; a text that could be read otherwise is quoted."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list):
        return f"[{','.join(map(_value, value))}]"
    if isinstance(value, str) and not _PLAIN.fullmatch(value):
        return quoted(value)
    return str(value)


def quoted(text: str) -> str:
    """A text as Hydra's overrides quote it, so that nothing in it is syntax."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
