"""Name a run by its whole configuration: an arm, and the words by which the run departs from it.

The name of an arm promises everything that belongs to an arm (`arm` in core/run/keys.py) and everything that the arm's
file sets. `name_of` composes the arm with the run's other choices (benchmark, models, agent) and compares each value.
Nothing is composed for a run in which nothing of the kind was typed, or set by its experiment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.run.keys import ARM_KEYS, RUN_KEYS, WRITTEN_INTO_OTHERS

if TYPE_CHECKING:
    from omegaconf import DictConfig

OWN = Path(__file__).parents[2] / "config"  # the project's arms; --config-dir adds folders with others
NAMED_BY = ("arm", "experiment")
SIZES = tuple(key for key in ARM_KEYS if key in WRITTEN_INTO_OTHERS)  # k, r, refine
# A run that departs from its arm in numbers alone keeps the arm's name: "matts_parallel k=5" is a point on its line.
NUMBERS = ("k", "r", "retrieval.top_k", "stream.batch", "stream.passes")


@dataclass(frozen=True, kw_only=True)
class Name:
    """The name of a run.

    arm      the arm that the run is; its workflow if it is none
    words    how it departs from the arm, as command-line words, e.g. "retrieval.top_k=4"
    chosen   the arm that was chosen and the words for this one, if the run is another arm; else ()
    """

    arm: str
    words: tuple[str, ...] = ()
    chosen: tuple[str, ...] = ()

    def __str__(self) -> str:
        return named(self.arm, self.words)

    def recorded(self) -> dict[str, Any]:
        """The manifest's entries."""
        return {"arm": self.arm, "overridden": list(self.words)} | (
            {"chosen": list(self.chosen)} if self.chosen else {}
        )


def named(arm: str, words: Iterable[str]) -> str:
    """An arm's name and the words by which a run departs from it, as one label."""
    return " ".join([arm, *words])


def name_of(hydra: dict[str, Any], composed: DictConfig) -> Name:
    """The name of a run.

    hydra      Hydra's own configuration of the run, as in .hydra/hydra.yaml
    composed   the run's configuration, with its interpolations as written
    """
    run = _Naming(hydra, composed)
    if not run.touched:
        return Name(arm=run.chosen)
    words = run.words(run.chosen)
    if not _numbers(words):
        others = {arm: run.words(arm, groups=False) for arm in run.candidates()}
        others = {arm: more for arm, more in others.items() if _numbers(more)}
        if others:
            arm = min(others, key=lambda name: len(others[name]))
            return Name(arm=arm, words=others[arm], chosen=(run.chosen, *words))
    return Name(arm=run.chosen, words=words)


def _numbers(words: Iterable[str]) -> bool:
    return all(_key(word) in NUMBERS for word in words)


class _Naming:
    """What is needed to name one run: its configuration, and the one that an arm would have in its place."""

    def __init__(self, hydra: dict[str, Any], composed: DictConfig) -> None:
        runtime, self.composed = hydra["runtime"], composed
        self.folders = _folders(runtime)
        self.choices = {key: option for key, option in runtime["choices"].items() if not key.startswith("hydra/")}
        self.arm = self.choices.get("arm")
        self.chosen = self.arm or self.choices["workflow"]
        self.typed = [word.lstrip("+") for word in hydra["overrides"]["task"]]
        experiment = _promised("experiment", self.choices.get("experiment"), self.folders)
        promised = _promised("arm", self.arm, self.folders)
        tops = {_top(key) for key in (*ARM_KEYS, *promised)}
        said = [_key(word) for word in self.typed] + [*experiment]
        without_arm = () if self.arm else ("workflow",)  # it names a run without an arm
        self.touched = any(_top(key) in tops and key not in without_arm for key in said if key not in NAMED_BY)

    def words(self, arm: str, groups: bool = True) -> tuple[str, ...]:
        """How the run departs from an arm, or from the workflow of that name: as few words as explain each value.

        groups   whether another option of a group is a word; else its values are
        """
        from hydra.errors import HydraException

        promised = _promised("arm", arm, self.folders)
        shared = [
            f"{group}={_text(option)}"
            for group, option in self.choices.items()
            if option is not None
            and group not in (*NAMED_BY, *promised)
            and "/" not in group
            and _top(group) not in ARM_KEYS
        ]
        base = (*shared, f"arm={arm}") if promised or arm == self.arm else (*shared, f"workflow={arm}")
        keys = tuple(dict.fromkeys([*ARM_KEYS, *(_top(key) for key in promised if _top(key) not in ARM_KEYS)]))
        plain, _ = self._compose(base)
        sizes = [key for key in SIZES if self.composed.get(key) != plain.get(key)]
        more = self._groups(base) if groups else []

        def apart(more: list[str], sizes: list[str]) -> dict[str, str]:
            return self._apart(keys, promised, self._compose((*base, *more))[0], sizes)

        left = apart(more, sizes)
        for key in list(sizes):
            if apart(more, rest := [other for other in sizes if other != key]) == left:
                sizes = rest
        for word in list(more):
            try:
                if apart(rest := [other for other in more if other != word], sizes) == left:
                    more = rest
            except HydraException:  # another word is valid only with this one
                continue
        return (*more, *(f"{key}={_text(self.composed[key])}" for key in sizes), *left.values())

    def candidates(self) -> list[str]:
        """The other arms whose files agree with the run, those that set the least first."""
        names = {path.stem for folder in self.folders for path in (folder / "arm").glob("*.yaml")} - {self.arm}
        promised = {name: _promised("arm", name, self.folders) for name in sorted(names)}
        fitting = [name for name, values in promised.items() if all(self._holds(k, v) for k, v in values.items())]
        return sorted(fitting, key=lambda name: len(promised[name]))

    def _holds(self, key: str, promise: tuple[str, Any]) -> bool:
        from omegaconf import OmegaConf

        kind, value = promise
        if kind == "value":
            return key in NUMBERS or OmegaConf.select(self.composed, key) == value
        if self.choices.get(key) == value:
            return True
        inside = _promised(key, value, self.folders, inside=True)
        return bool(inside) and all(self._holds(name, each) for name, each in inside.items() if each[0] == "value")

    def _groups(self, base: tuple[str, ...]) -> list[str]:
        """The options of the arm's groups that the run has and the arm has not, those typed first, as words."""
        theirs = self._compose(base)[1]
        typed = [word for word in self.typed if "." not in (key := _key(word)) and _is_group(key, self.choices)]
        typed = [word for word in typed if _key(word) not in NAMED_BY and f"{_key(word)}={_value(word)}" not in base]
        typed = [word for word in typed if _top(_key(word)) in ARM_KEYS or _key(word) in theirs]
        typed = [word for word in typed if theirs.get(_key(word)) != _value(word)]
        names = {_key(word) for word in typed}
        others = [group for group in theirs if "/" not in group and group not in (*NAMED_BY, *names)]
        set_otherwise = [group for group in others if theirs[group] != self.choices.get(group)]
        return typed[::-1] + [f"{group}={_text(self.choices.get(group))}" for group in set_otherwise][::-1]

    def _compose(self, words: tuple[str, ...]) -> tuple[DictConfig, dict[str, Any]]:
        return _compose(tuple(map(str, self.folders)), words)

    def _apart(self, keys: tuple[str, ...], promised: dict, reference: DictConfig, sizes: list[str]) -> dict[str, str]:
        """{key: word} of the values in which the run differs from a composed arm that has the run's `sizes`."""
        from omegaconf import OmegaConf, open_dict

        tops = dict.fromkeys(map(_top, keys))
        other = self.composed.copy()
        with open_dict(other):
            for top in tops:
                if top not in sizes:
                    other[top] = reference.get(top)
        compared = {*ARM_KEYS, *promised}
        written = OmegaConf.to_container(self.composed, resolve=False)
        mine, theirs = (OmegaConf.to_container(cfg, resolve=True) for cfg in (self.composed, other))
        return {
            key: f"{key}={_text(_seedless(value, _at(written, key)))}"
            for top in tops
            if top not in SIZES
            for key, value in _differing(top, mine.get(top), theirs.get(top))
            if _belongs(key, compared)
        }


def overridden(arm: str | None, hydra: dict[str, Any], config: dict[str, Any]) -> list[str]:
    """The settings of the arm's file that a run departs from: for runs of before `name_of` was recorded.

    arm      the option of the group `arm`; None if none was chosen
    config   the run's configuration, resolved
    """
    if not arm:
        return []
    runtime = hydra.get("runtime", {})
    words = [
        f"{key}={value}"
        for key, want in _promised("arm", arm, _folders(runtime)).items()
        if (value := runtime.get("choices", {}).get(key) if want[0] == "choice" else _at(config, key)) != want[1]
    ]
    typed = hydra.get("overrides", {}).get("task", ())
    return words + [word for word in typed if word.lstrip("+~").startswith("workflow.")]


def _folders(runtime: dict[str, Any]) -> list[Path]:
    """The folders of options: the project's, then those of --config-dir."""
    given = [Path(source["path"]) for source in runtime.get("config_sources", ()) if source.get("schema") == "file"]
    return list(dict.fromkeys([*given, OWN]))


@cache
def _compose(folders: tuple[str, ...], words: tuple[str, ...]) -> tuple[DictConfig, dict[str, Any]]:
    """(the configuration for some words, {group: option}); words are overrides of Hydra's."""
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    first, *more = folders
    path = [f"hydra.searchpath=[{','.join(f'file://{folder}' for folder in more)}]"] if more else []
    begun = GlobalHydra.instance().is_initialized()  # by main.py, with these folders
    with nullcontext() if begun else initialize_config_dir(first, version_base="1.3", job_name="main"):
        cfg = compose("config", overrides=[*words, *(() if begun else path)], return_hydra_config=True)
    return cfg, {group: option for group, option in cfg.hydra.runtime.choices.items() if not group.startswith("hydra/")}


def _promised(
    group: str, name: str | None, folders: Iterable[Path], inside: bool = False
) -> dict[str, tuple[str, Any]]:
    """{group: ("choice", option)} and {dotted key: ("value", value)} of an option's file; {} if there is no such file.

    inside   the file's keys lie in the group, unless it says that its package is _global_
    """
    import yaml

    file = next((path for folder in folders if (path := folder / group / f"{name}.yaml").is_file()), None)
    text = file.read_text(encoding="utf-8") if file else ""
    body = yaml.safe_load(text) or {}
    found: dict[str, tuple[str, Any]] = {}
    for entry in body.pop("defaults", ()):
        for key, option in entry.items() if isinstance(entry, dict) else ():
            found[key.removeprefix("override ").strip("/ ")] = ("choice", option)
    body.pop("hydra", None)
    where = f"{group}." if inside and "@package _global_" not in text else ""
    return found | {f"{where}{key}": ("value", value) for key, value in _leaves(body)}


def _leaves(node: dict[str, Any], where: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in node.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{where}{key}.")
        elif "${" not in str(value):
            yield f"{where}{key}", value


def _differing(key: str, mine: Any, theirs: Any) -> Iterator[tuple[str, Any]]:
    """(dotted key, own value) of each leaf in which two nodes differ; of a node that one lacks, the node's own key."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        for name in dict.fromkeys([*mine, *theirs]):
            if name not in theirs or name not in mine:
                yield f"{key}.{name}", mine.get(name)
            else:
                yield from _differing(f"{key}.{name}", mine[name], theirs[name])
    elif mine != theirs:
        yield key, mine


def _belongs(key: str, compared: set[str]) -> bool:
    """Whether a key's value can change an outcome, and lies in one of the compared keys or holds one."""
    parts = key.split(".")
    above = [".".join(parts[:n]) for n in range(len(parts), 0, -1)]
    facts = next((RUN_KEYS[name] for name in above if name in RUN_KEYS), None)
    inside = any(name in compared for name in above) or any(other.startswith(f"{key}.") for other in compared)
    return inside and (facts is None or facts.outcome)


def _seedless(value: Any, written: Any) -> Any:
    return written if isinstance(written, str) and "${seed}" in written else value


def _at(config: Any, key: str) -> Any:
    for name in key.split("."):
        config = config.get(name) if isinstance(config, dict) else None
    return config


def _key(word: str) -> str:
    return word.partition("=")[0].lstrip("+~")


def _value(word: str) -> str | None:
    value = word.partition("=")[2]
    return None if value == "null" else value


def _top(key: str) -> str:
    return key.partition("@")[2].partition(".")[0] or key.partition(".")[0].partition("/")[0]


def _is_group(key: str, choices: dict[str, Any]) -> bool:
    return key in choices or "/" in key


def _text(value: Any) -> str:
    """A value as the text of a word, without blanks; of a part, the name of its class."""
    if isinstance(value, dict):
        return str(value.get("_target_", "{...}")).rpartition(".")[2]
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return "_".join(text.split())
