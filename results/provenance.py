"""What a run may see beside the lessons that it makes itself, as notes below a table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

# Keys that change which lessons a task may see, or what of them, with the value that needs no note.
SEEN = {
    "memory.path": None,
    "memory.namespace": "default",
    "memory.allow_self": False,
    "memory.unit": "record",
    "memory.key": "query",
    "memory.domain": None,
    "memory.tags": None,
    "memory.uses": None,
    "memory.inject": "system",
    "memory.max_tokens": None,
    "setting.allow_oracle_bank": False,
    "stream.batch": 1,
    "stream.mode": "in_order",
    "stream.window": None,
}
NAMED = 3  # banks of one arm, which may be one a seed


def knobs(config: dict[str, Any]) -> dict[str, str]:
    """{key: value} of SEEN in a run's configuration, where it is not the usual one; the namespace of any given bank."""
    found = {key: (config.get(key.split(".")[0]) or {}).get(key.split(".")[1], usual) for key, usual in SEEN.items()}
    given = found["memory.path"] is not None
    return {
        key: str(value)
        for key, value in found.items()
        if value != SEEN[key] or (given and key == "memory.namespace" and value is not None)
    }


def notes(used: pd.DataFrame) -> list[str]:
    """A line for each arm and key of SEEN that is set, with its values over the arm's runs."""
    runs, found = used.drop_duplicates("run_dir"), []
    for arm, group in runs.groupby("arm", sort=False):
        for key in SEEN:
            told = zip(map(json.loads, group["knobs"]), group["label_source"])
            rows = [(each, labels) for each, labels in told if key in each]
            values = list(dict.fromkeys(each[key] for each, _ in rows))
            if not values:
                continue
            some = "" if len(rows) == len(group) else f" in {len(rows)} of its {len(group)} runs"
            more = f" and {len(values) - NAMED} more" if len(values) > NAMED else ""
            labels = ""
            if key in ("memory.path", "setting.allow_oracle_bank"):
                labels = f" (labels: {', '.join(dict.fromkeys(labels for _, labels in rows))})"
            found.append(f"{arm}: {key}={', '.join(values[:NAMED])}{more}{some}{labels}.")
    return found
