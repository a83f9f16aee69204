"""What only Hydra knows of a run (chosen options, command line, sweep), and commands for the user built from it."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from core.checksum import whole_yaml
from core.errors import UserError
from core.jsonl import in_strings
from core.make import plain_data
from core.redact import redactor
from core.run.arms import Name, key_of, name_of
from core.run.files import read_hydra

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

    from core.run.records import RunRecords

_FOREIGN = re.compile(
    r"(?<=[=,:{\[(\s])[^\s=,:{}\[\]()]*[^\x00-\x7f][^=,:{}\[\]()]*"
)  # a value with letters beyond ASCII
_RECORDED = ("episodes.jsonl", "rollouts.jsonl")


def choice(group: str) -> str:
    """The option chosen for a config group."""
    return HydraConfig.get().runtime.choices[group]


def run_name(composed: DictConfig) -> Name:
    """The name of this run. composed: its configuration, with its interpolations as written."""
    return name_of(hydra_config(), composed)


def hydra_config() -> dict[str, Any]:
    """Hydra's own configuration of this run, as .hydra/hydra.yaml has it."""
    return plain_data(HydraConfig.get(), enum_to_str=True)


def in_sweep() -> bool:
    """Whether this run is a cell of a sweep."""
    return HydraConfig.get().mode == RunMode.MULTIRUN


def swept() -> set[str]:
    """The keys that a sweep varies, on the command line or by its experiment. Empty outside of a sweep."""
    params = HydraConfig.get().sweeper.get("params") or {}
    typed = {override.get_key_element().lstrip("+") for override in given_words() if override.is_sweep_override()}
    return typed | {str(key) for key in params} if in_sweep() else set()


def values_of(key: str) -> list[str]:
    """The values of a key on the command line, or in the experiment of a sweep; [] if neither sets it."""
    for override in reversed(given_words()):
        if override.get_key_element().lstrip("+") == key:
            if override.is_discrete_sweep():
                return [text.replace("'", "") for text in override.sweep_string_iterator()]
            return [str(override.value())]
    return []


def given_words() -> list[Override]:
    """The overrides of the experiment, then those of the command line, which take precedence; none of `hydra`."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    params = HydraConfig.get().sweeper.get("params") or {} if in_sweep() else {}
    typed = [w for w in command_line()[1:] if re.match(r"[+~]*[\w.@/]+=", w) and not w.startswith("hydra")]
    return OverridesParser.create().parse_overrides([*(f"{key}={value}" for key, value in params.items()), *typed])


def command_line() -> list[str]:
    """The command of the run, or of the sweep that it is part of.

    If a launcher (submitit) runs each job in another program, the command is read from the sweep's multirun.yaml.
    """
    written = Path(HydraConfig.get().sweep.dir) / "multirun.yaml"
    if Path(sys.argv[0]).name == "main.py" or not written.is_file():
        return sys.argv
    overrides = OmegaConf.load(written).hydra.overrides
    return ["main.py", *(word for word in overrides.hydra if not word.startswith("hydra.mode=")), *overrides.task]


def program() -> list[str]:
    """The program as it was typed: the interpreter and main.py, `python -m main`, or `reasoningbank eval`."""
    first, *rest = sys.orig_argv
    for module in (["-m", "main"], ["-m", "reasoningbank_harness", "eval"]):
        if rest[: len(module)] == module:
            return [first, *module]
    if rest and Path(rest[0]).stem == "reasoningbank":
        return ["reasoningbank", "eval"]
    typed = sys.argv[0] if Path(sys.argv[0]).name == "main.py" else "main.py"
    return [first if rest[:1] == [typed] else "python", typed]


def tool() -> str:
    """The program `reasoningbank`, which lies beside the interpreter that was typed, for commands to paste."""
    return str(Path(program()[0]).with_name("reasoningbank"))


def again(run_dir: Path, words: Iterable[str] | None = None) -> str:
    """A command to paste: this run's words, or the given ones, with `run_dir`."""
    kept = command_line()[1:] if words is None else words
    kept = [word for word in kept if key_of(word) != "run_dir"]
    return shlex.join([*program(), *kept, override("run_dir", short(run_dir))])


def override(key: str, value: object) -> str:
    """KEY=VALUE for Hydra, quoted if the value contains characters that are special in its grammar."""
    text = str(value)
    if re.fullmatch(r"[\w./:@%+-]+", text, re.ASCII):
        return f"{key}={text}"
    inner = re.sub(r'(\\*)("|$)', lambda m: m[1] * 2 + (m[2] and "\\" + m[2]), text).replace("${", "\\${")
    return f'{key}="{inner}"'


def short(path: Path) -> Path:
    """The path relative to the working directory, if it is inside."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def resume_hint(run_dir: Path, used_up: str = "") -> str:
    """A line with the command that resumes the run; "" if nothing is recorded, and in a sweep, which prints its own.

    used_up   the budget that ended the run, as "KEY=VALUE"; the command doubles it, or the run would end at once
    """
    if in_sweep() or not any(path.exists() and path.stat().st_size for path in map(run_dir.joinpath, _RECORDED)):
        return ""
    if not used_up:
        return f"\nto go on where it stopped: {again(run_dir)}"
    key, _, limit = used_up.partition("=")
    words = [word for word in command_line()[1:] if word.partition("=")[0] != key]
    return f"\nto go on with twice the {key}: {again(run_dir, [*words, f'{key}={2 * float(limit):g}'])}"


def quoted(words: list[str]) -> list[str]:
    """The words of a command, quoted as Hydra requires: values with letters beyond ASCII, such as a column's name, and
    those that its grammar refuses, such as a command with {task_file} or a cell's folder with a "=".

    The ~/ of a path, which few shells replace behind a "=", is the user's folder.
    """
    words = [re.sub(r"(?<=[\w.]=)~(?=/)", str(Path.home()), word) for word in words]
    words = [
        word if word.isascii() or re.search(r"""['"\\]""", word) else _FOREIGN.sub(r'"\g<0>"', word) for word in words
    ]
    return list(map(_readable, words))


def _readable(word: str) -> str:
    """KEY=VALUE with the value as a quoted text if Hydra's grammar refuses it.

    Not what was to be a list, quoted or another user's folder.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import OverrideParseException

    key, _, value = word.partition("=")
    if word.startswith("-") or value[:1] in ("", *"~[{('\""):
        return word
    try:
        OverridesParser.create().parse_overrides([word])
    except OverrideParseException:
        return override(key, value)
    return word


def other_arm(run_dir: Path) -> str | None:
    """The arm of the run that a folder holds, if that is another one than this run's; None if either was given none."""
    made = (read_hydra(run_dir, "hydra.yaml").get("runtime") or {}).get("choices", {}).get("arm")
    return made if choice("arm") and made != choice("arm") else None


def save_hydra(cfg: DictConfig, records: RunRecords) -> None:
    """Write .hydra, as Hydra would. Done only after it is known that the run directory belongs to this run.

    Raises UserError for a run of another arm with the same configuration: it keeps the name that it was made under.
    """
    if made := other_arm(records.path):
        raise UserError(
            f"{records.path} holds a run of arm={made}, of which arm={choice('arm')} has the configuration here: give "
            f"arm={made}, or another run_dir."
        )
    folder = records.path / ".hydra"
    folder.mkdir(exist_ok=True)
    parts = {"config": cfg, "hydra": HydraConfig.get(), "overrides": HydraConfig.get().overrides.task}
    for name, node in parts.items():
        data = OmegaConf.to_container(node, enum_to_str=True)
        safe = records.safe(data)
        shown = node if safe == data else OmegaConf.create(safe)  # mostly the node: a copy takes long
        records.write_text(f".hydra/{name}.yaml", whole_yaml(OmegaConf.to_yaml(shown)))


def save_config(node: Any, path: str | Path) -> None:
    """Write a part of the configuration, its interpolations as written, without secrets."""
    data: Any = OmegaConf.to_container(node, enum_to_str=True)
    OmegaConf.save(OmegaConf.create(in_strings(data, redactor())), path)


class WithoutSecrets(OmegaConf):
    """What Hydra's sweeper saves multirun.yaml with."""

    @staticmethod
    def save(config: Any, f: Any, resolve: bool = False) -> None:
        save_config(config, f)
