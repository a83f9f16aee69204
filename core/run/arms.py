"""Label an arm: its name, and the settings of the arm that this run overrides."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

OWN = Path(__file__).parents[2] / "config"  # the project's arms; --config-dir adds folders with others


def overridden(arm: str | None, hydra: dict[str, Any], config: dict[str, Any]) -> list[str]:
    """The settings of the arm's file that this run overrides, as command-line words, e.g. "workflow=reasoningbank".

    The name of an arm promises its workflow, its memory and so on. A run that changes one of them is not a run of that
    arm, and tables, reports and the terminal must say so.

    arm      the option of the group `arm`; None if none was chosen
    hydra    Hydra's own configuration of the run, as in .hydra/hydra.yaml
    config   the run's configuration, resolved
    """
    if not arm:
        return []
    runtime = hydra.get("runtime", {})
    given = [Path(source["path"]) for source in runtime.get("config_sources", ()) if source.get("schema") == "file"]
    promised = _promised(arm, [*given, OWN])
    words = [
        f"{key}={value}"
        for key, want in promised.items()
        if (value := runtime.get("choices", {}).get(key) if want[0] == "choice" else _value(config, key)) != want[1]
    ]
    typed = hydra.get("overrides", {}).get("task", ())
    return words + [word for word in typed if word.lstrip("+~").startswith("workflow.")]


def named(arm: str, words: Iterable[str]) -> str:
    """The arm's name and its overridden settings (`overridden`), as one label."""
    return " ".join([arm, *words])


def _promised(arm: str, folders: Iterable[Path]) -> dict[str, tuple[str, Any]]:
    """{group: ("choice", option)} and {dotted key: ("value", value)} of an arm's file; {} if there is no such file."""
    import yaml

    file = next((path for folder in folders if (path := folder / "arm" / f"{arm}.yaml").is_file()), None)
    body = yaml.safe_load(file.read_text(encoding="utf-8")) if file else {}
    found: dict[str, tuple[str, Any]] = {}
    for entry in (body or {}).pop("defaults", ()):
        for key, option in entry.items() if isinstance(entry, dict) else ():
            found[key.removeprefix("override ").strip("/ ")] = ("choice", option)
    return found | {key: ("value", value) for key, value in _leaves(body or {})}


def _leaves(node: dict[str, Any], where: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in node.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{where}{key}.")
        elif "${" not in str(value):
            yield f"{where}{key}", value


def _value(config: Any, key: str) -> Any:
    for name in key.split("."):
        config = config.get(name) if isinstance(config, dict) else None
    return config
