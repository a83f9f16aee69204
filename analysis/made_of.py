"""What runs were made of beside their configuration: prompts, code, and parts from outside the project.

Cells that are compared should agree in it; where they do not, a table, a report and the audit name what differs.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from core.run.manifest import codes_of

if TYPE_CHECKING:
    import pandas as pd

MOST_NAMES = 6  # templates, parts or runs that a line names


def made_of(manifest: dict[str, Any]) -> dict[str, str]:
    """What a run was made of: {code: that of its starts, prompts: JSON {template: hash}, parts: JSON {part: hash}}."""
    return {
        "code": " -> ".join(codes_of(manifest)),
        "prompts": json.dumps(manifest["fingerprint"]["prompts"], sort_keys=True),
        "parts": json.dumps(_parts(manifest), sort_keys=True),
    }


def cells_differ(used: pd.DataFrame, labels: dict[str, str], block: Iterable[str]) -> list[str]:
    """The lines of `differ` on the cells of each block; labels: {cell: label}."""
    lines = []
    for (env, *_), group in used.drop_duplicates("run_dir").groupby([*block], sort=False):
        runs = [(labels[run["cell"]], run) for run in group.to_dict("records")]
        lines += [f"{env}: {line}" for line in differ(runs)]
    return list(dict.fromkeys(lines))


def differ(runs: Iterable[tuple[str, dict[str, str]]]) -> Iterator[str]:
    """A line for prompts, for code and for parts, if runs that are compared differ in them.

    runs   (name of the run or of its cell, `made_of` the run)
    """
    runs = list(runs)
    for what, column in (("prompts", "prompts"), ("parts from outside", "parts")):
        made = [(name, json.loads(run[column])) for name, run in runs]
        found: dict[str, dict[str, list[str]]] = {}
        for key in sorted({key for _, digests in made for key in digests}):
            by_digest = defaultdict(list)
            for name, digests in made:
                if key in digests:
                    by_digest[digests[key]].append(name)
            if len(by_digest) > 1:
                found[key] = by_digest
        if found:
            sides = {tuple(map(_some, by_digest.values())): None for by_digest in found.values()}
            told = "; ".join(" | ".join(side) for side in sides)
            yield f"not the same {what} in the runs compared: {_some(found)} ({told})."
    for name, run in runs:
        if changed := [part for part, digests in json.loads(run["parts"]).items() if " -> " in digests]:
            yield f"{name}: a run went on with another source of {_some(changed)}."
    by_code = defaultdict(list)
    for name, run in runs:
        by_code[run["code"]].append(name)
    for code, names in by_code.items():
        if " -> " in code:
            yield f"{_some(names)}: a run went on at another version of the code: {code}."
    if len(by_code) > 1:
        told = "; ".join(f"{_some(names)}: {code}" for code, names in sorted(by_code.items()))
        codes = ", ".join(sorted(by_code))
        yield f"the runs were made by {len(by_code)} versions of the code: {codes} ({told})."


def other_parts(starts: Iterable[dict[str, Any]]) -> Iterator[str]:
    """A line for each part from outside whose source was not the same at all starts of a run."""
    digests: dict[str, list[str]] = defaultdict(list)
    for start in starts:
        for name, digest in start.get("parts", {}).items():
            digests[name].append(digest)
    for name, found in digests.items():
        if len(found := list(dict.fromkeys(found))) > 1:
            yield f"its starts had other sources of {name}: {' -> '.join(found)}"


def _parts(manifest: dict[str, Any]) -> dict[str, str]:
    """{part: hash of its source, of all starts}."""
    found: dict[str, list[str]] = defaultdict(list)
    for start in (manifest["fingerprint"], *manifest["starts"]):
        for name, digest in start.get("parts", {}).items():
            found[name].append(digest)
    return {name: " -> ".join(dict.fromkeys(digests)) for name, digests in found.items()}


def _some(names: Iterable[str]) -> str:
    names = list(dict.fromkeys(names))
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{', '.join(names[:MOST_NAMES])}{more}"
