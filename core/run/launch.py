"""What only Hydra knows of a run (the options chosen, the command line, its sweep)."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from core.build import CONFIG, part
from core.errors import meant, nearest
from core.run.arms import overridden
from core.starting import started

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

    from core.run.records import RunRecords

_RECORDED = ("episodes.jsonl", "rollouts.jsonl")


def choice(group: str) -> str:
    """The option chosen for a config group."""
    return HydraConfig.get().runtime.choices[group]


def arm_label(config: dict[str, Any]) -> tuple[str, list[str]]:
    """(the run's arm, or without one its workflow; what of the arm is overridden). config: the resolved one."""
    return choice("arm") or choice("workflow"), overridden(choice("arm"), hydra_config(), config)


def hydra_config() -> dict[str, Any]:
    """Hydra's own configuration of this run, as .hydra/hydra.yaml has it."""
    return OmegaConf.to_container(HydraConfig.get(), enum_to_str=True)


def in_sweep() -> bool:
    """Whether this run is a cell of a sweep."""
    return HydraConfig.get().mode == RunMode.MULTIRUN


def left_sizes(cfg: DictConfig) -> dict[str, int]:
    """k and r, where a sweep over arms or workflows gives them to one that has no such number of attempts."""
    given = {key: cfg[key] for key in ("k", "r") if cfg[key] is not None}
    if not given or not _over_arms():
        return {}
    has = getattr(part(cfg.workflow), "scaled_by", ())
    return {key: value for key, value in given.items() if key not in has}


def _over_arms() -> bool:
    """Whether this run is one of a sweep over arms or workflows: as it was typed, or by its experiment."""
    over = {override.get_key_element().lstrip("+") for override in _given() if override.is_sweep_override()}
    return in_sweep() and bool(over & {"arm", "workflow"})


def leave_sizes(cfg: DictConfig) -> str:
    """In a sweep over arms, k and r are for those that have them: take them from a workflow that has none.

    Its run is then the same as without them, in cells, in tables and when it is resumed. Returns a line that says so,
    "" where nothing was left out. Elsewhere nothing is changed, and a workflow refuses what it would ignore.
    """
    left = left_sizes(cfg)
    for key in left:
        cfg[key] = None
    words = " ".join(f"{key}={value}" for key, value in left.items())
    return words and f"{words} left out: {choice('arm') or choice('workflow')} has no such number of attempts."


def swept() -> set[str]:
    """The keys that a sweep goes over: typed with several values, or named by its experiment. Empty outside a sweep."""
    params = HydraConfig.get().sweeper.get("params") or {}
    typed = {override.get_key_element().lstrip("+") for override in _given() if override.is_sweep_override()}
    return typed | {str(key) for key in params} if in_sweep() else set()


def values_of(key: str) -> list[str]:
    """The values that the command, or the experiment of a sweep, gives to a key; [] where it says nothing of it."""
    for override in reversed(_given()):
        if override.get_key_element().lstrip("+") == key:
            if override.is_discrete_sweep():
                return [text.replace("'", "") for text in override.sweep_string_iterator()]
            return [str(override.value())]
    return []


def _given() -> list[Override]:
    """The words of the command, after those of the experiment, which they win over; nothing of Hydra's own."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    params = HydraConfig.get().sweeper.get("params") or {} if in_sweep() else {}
    typed = [w for w in command_line()[1:] if re.match(r"[+~]*[\w.@/]+=", w) and not w.startswith("hydra")]
    return OverridesParser.create().parse_overrides([*(f"{key}={value}" for key, value in params.items()), *typed])


def command_line() -> list[str]:
    """The command of the run, or of the sweep that it is part of.

    Where a launcher (submitit) starts another program for each job, the command is read from the sweep's multirun.yaml.
    """
    written = Path(HydraConfig.get().sweep.dir) / "multirun.yaml"
    if Path(sys.argv[0]).name == "main.py" or not written.is_file():
        return sys.argv
    overrides = OmegaConf.load(written).hydra.overrides
    return ["main.py", *(word for word in overrides.hydra if not word.startswith("hydra.mode=")), *overrides.task]


def program() -> list[str]:
    """The interpreter and main.py as they were typed."""
    typed = sys.argv[0] if Path(sys.argv[0]).name == "main.py" else "main.py"
    return [sys.orig_argv[0] if sys.orig_argv[1:2] == [typed] else "python", typed]


def again(run_dir: Path, words: Iterable[str] | None = None) -> str:
    """A command that can be pasted: this run's words, or those given, with another run directory."""
    kept = command_line()[1:] if words is None else words
    kept = [word for word in kept if word.lstrip("+").partition("=")[0] != "run_dir"]
    return shlex.join([*program(), *kept, override("run_dir", short(run_dir))])


def override(key: str, value: object) -> str:
    """KEY=VALUE as Hydra reads it: in quotes where the value holds what its grammar gives a meaning."""
    text = str(value)
    if re.fullmatch(r"[\w./:@%+-]+", text, re.ASCII):
        return f"{key}={text}"
    inner = re.sub(r'(\\*)("|$)', lambda m: m[1] * 2 + (m[2] and "\\" + m[2]), text).replace("${", "\\${")
    return f'{key}="{inner}"'


def short(path: Path) -> Path:
    """The path from where the user stands, when it lies below."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def resume_hint(run_dir: Path, used_up: str = "") -> str:
    """The command that continues the run; "" where nothing has been recorded: the same command then begins it.

    "" also for a cell of a sweep, which says it once for all of them.

    used_up   the limit that ended the run, as "KEY=VALUE": the command allows twice as much, or it would end at once
    """
    if in_sweep() or not any(path.exists() and path.stat().st_size for path in map(run_dir.joinpath, _RECORDED)):
        return ""
    if not used_up:
        return f"\nto go on where it stopped: {again(run_dir)}"
    key, _, limit = used_up.partition("=")
    words = [word for word in command_line()[1:] if word.partition("=")[0] != key]
    return f"\nto go on with twice the {key}: {again(run_dir, [*words, f'{key}={2 * float(limit):g}'])}"


def sweep_command(config: DictConfig) -> str:
    """The command that continues a sweep. config: that of the sweep as a whole."""
    return again(Path(str(OmegaConf.select(config, "hydra.sweep.dir"))), sys.argv[1:])


def quoted(words: list[str]) -> list[str]:
    """The words of a command, with values that hold a "=", such as a cell's folder, in the quotes that Hydra wants."""
    plain = [re.fullmatch(r"""([+~]*[\w.@/]+)=([^'"\[\]{}()]*=[^'"\[\]{}()]*)""", word) for word in words]
    return [f'{found[1]}="{found[2]}"' if found else word for word, found in zip(words, plain, strict=True)]


def save_hydra(cfg: DictConfig, records: RunRecords) -> None:
    """Write what Hydra writes to .hydra: only now, because the run directory must first prove to be this run's."""
    folder = records.path / ".hydra"
    folder.mkdir(exist_ok=True)
    parts = {"config": cfg, "hydra": HydraConfig.get(), "overrides": HydraConfig.get().overrides.task}
    for name, node in parts.items():
        safe = records.safe(OmegaConf.to_container(node, enum_to_str=True))
        OmegaConf.save(OmegaConf.create(safe), folder / f"{name}.yaml")


# What Hydra refuses on the command line, as one sentence with the names that may have been meant.

_FULL = "HYDRA_FULL_ERROR"  # Hydra's switch: raise errors instead of printing them with advice and ending the program

_QUOTES = "quotes of its own, and the shell's around all of it: 'KEY=\"VALUE\"'"


def plainly(main: Callable[[], Any]) -> None:
    """Run Hydra's main; what it refuses ends the program with one sentence. HYDRA_FULL_ERROR=1 shows Hydra's own."""
    from hydra.errors import CompactHydraException, HydraException
    from omegaconf.errors import OmegaConfBaseException

    refuse_flags(sys.argv[1:])
    if os.environ.get(_FULL) == "1":
        main()
        return
    os.environ[_FULL] = "1"
    try:
        main()
    except (HydraException, CompactHydraException, OmegaConfBaseException) as error:
        sentence = plain(error, sys.argv[1:])
    except (OSError, ValueError) as error:  # of the run's directory, or of the log in it: a run reports its own
        if not isinstance(cause := error if isinstance(error, OSError) else error.__cause__, OSError):
            raise
        sentence = f"error: {cause.filename or 'run_dir'} cannot be written: {cause.strerror}. Give another run_dir."
    else:
        return
    started()
    sys.exit(sentence)


def refuse_flags(words: list[str]) -> None:
    """Ends the program for a flag that Hydra does not have, and for a flag in the midst of other words."""
    from hydra._internal.utils import get_args_parser

    parser = get_args_parser()
    known = [flag for flag in parser._option_string_actions if flag.startswith("--")]
    wrong = next((word for word in words if word[:2] == "--" and not parser._get_option_tuples(word)), None)
    name = (wrong or "").partition("=")[0]
    if wrong and name not in known:
        said = f"there is no flag {name}{meant(name, known)} python main.py --help shows all."
    elif late := parser.parse_known_args(words)[1]:
        said = f"{late[0]} follows a flag such as -m that stands among KEY=VALUE words: give flags first."
    else:
        return
    started()
    print(f"error: {said}", file=sys.stderr)
    sys.exit(2)


def plain(error: Exception, words: list[str]) -> str:
    """One sentence for an error that Hydra raised while it read the command line; its own text for all others."""
    from omegaconf.errors import OmegaConfBaseException

    text = str(error)
    if found := re.match(r"Could not override '([^']+)'", text):
        return _no_such_key(found[1], words)
    if found := re.search(r"Could not find '([^']+)/([^'/]+)'", text):
        options = re.findall(r"^\t(.+)$", text.partition("Config search path")[0], re.MULTILINE)
        group, name = found[1], found[2]
        return f"error: {group}={name}: there is no such option{meant(name, options)} Choose {', '.join(options)}."
    if found := re.match(r"Ambiguous value for argument '([^']+)'", text):
        return f"error: {found[1]}: several values are a sweep, which needs -m; one with a comma needs {_QUOTES}."
    if "missing EQUAL" in text and (found := re.search(r"override '([^']+)'", text)):
        return f"error: {found[1]}: give a key and its value as KEY=VALUE."
    if type(error).__name__ == "OverrideParseException":
        word = getattr(error, "override", None) or text.splitlines()[0]
        return (
            f"error: {word} cannot be read: a value with more in it than letters a to z, digits and -_./: "
            f"needs {_QUOTES}."
        )
    if found := re.match(r"(\S+) appears more than once", text):
        return f"error: {found[1]} is chosen twice: give {found[1]}=OPTION once, and without +."
    if isinstance(error, OmegaConfBaseException):
        text = text.splitlines()[0]
    return text if text.startswith(("error: ", "Traceback")) else f"error: {text}"


def _no_such_key(key: str, words: list[str]) -> str:
    """For a key that is in no configuration: by its spelling, or by its last part, which may stand in a group."""
    known = [*_keys_of(words)]
    group, _, last = key.rpartition(".")
    near = [other for other in known if other.rpartition(".")[2] == last][:3]
    if not near and group in known:  # of a part that is there
        own = [other.rpartition(".")[2] for other in known if other.rpartition(".")[0] == group]
        near = [f"{group}.{name}" for name in nearest(last, own)]
    near = near or ([] if group in known else nearest(key, known))
    said = f"did you mean {' or '.join(near)}?" if near else "python main.py --help shows all."
    return f"error: there is no key {key}: {said}"


def _keys_of(words: list[str]) -> Iterator[str]:
    """Every dotted key of the configuration with the options that were chosen, as far as these are sound."""
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    groups = {path.name for path in CONFIG.iterdir() if path.is_dir()}
    chosen = [word for word in words if word.partition("=")[0].partition("@")[0] in groups and "," not in word]
    GlobalHydra.instance().clear()
    for kept in (chosen, []):
        try:
            with initialize_config_dir(str(CONFIG), version_base="1.3"):
                cfg = compose("config", overrides=kept)
        except (HydraException, OmegaConfBaseException):  # another mistake, in an option: the keys of the defaults then
            continue
        yield from _dotted(OmegaConf.to_container(cfg, resolve=False))
        return


def _dotted(node: Any, where: str = "") -> Iterator[str]:
    for key, value in node.items() if isinstance(node, dict) else ():
        if not str(key).startswith("_"):
            yield f"{where}{key}"
            yield from _dotted(value, f"{where}{key}.")
