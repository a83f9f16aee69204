"""Report command-line mistakes that Hydra finds in one sentence, with the names that may have been meant."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from core.errors import meant, nearest
from core.make import CONFIG, compose_words, without_hydra
from core.terminal import started

_FLAGS = (
    "--help --hydra-help --version --cfg --resolve --package --run --multirun --shell-completion --config-path "
    "--config-name --config-dir --experimental-rerun --info"
).split()
_FULL = "HYDRA_FULL_ERROR"  # Hydra's switch: raise errors instead of printing them with advice and ending the program


def run_with_plain_hydra_errors(main: Callable[[], Any], folders: Iterable[Path] = ()) -> None:
    """Run Hydra's main; end the program with one sentence for an error of Hydra. HYDRA_FULL_ERROR=1: Hydra's own text.

    folders   the folders of --config-dir

    Ends it in the same way for a run directory that cannot be written, and for logging that cannot be set up.
    """
    from hydra.errors import CompactHydraException, HydraException
    from omegaconf.errors import OmegaConfBaseException

    refuse_flags(sys.argv[1:])
    refuse_unreadable(folders)
    if os.environ.get(_FULL) == "1":
        main()
        return
    os.environ[_FULL] = "1"
    try:
        main()
    except (HydraException, CompactHydraException, OmegaConfBaseException) as error:
        sentence = sentence_for(error, sys.argv[1:], folders=folders)
    except (OSError, ValueError) as error:  # before the run, which reports its own
        cause = error if isinstance(error, OSError) else error.__cause__
        if str(error).startswith("Unable to configure"):  # Python's logging
            sentence = f"error: hydra/job_logging or hydra/hydra_logging: {error}: {cause}"
        elif isinstance(cause, OSError):
            sentence = f"error: {cause.filename or 'run_dir'} cannot be written: {cause.strerror}."
        else:
            raise
    else:
        return
    finally:
        del os.environ[_FULL]  # this process may start another run
    started()
    sys.exit(sentence)


def refuse_flags(words: list[str]) -> None:
    """End the program (status 2) for a word that Hydra's parser would answer with all of its usage."""
    flags = {word: word.partition("=")[0] for word in words if word.startswith("--")}
    wrong = [word for word, flag in flags.items() if not any(known.startswith(flag) for known in _FLAGS)]
    kinds = "".join("-" if word.startswith("-") else "=" if "=" in word else "." for word in words)
    if late := re.search(r"=[^-]*-[^=]*(=)", kinds):  # a key behind a flag that is behind a key
        wrong.append(words[late.start(1)])
    if wrong:
        started()
        said = "a key is given as KEY=VALUE, and a flag of Hydra (--hydra-help) before all keys"
        print(f"error: {wrong[0]} is not understood: {said}.", file=sys.stderr)
        sys.exit(2)


def refuse_unreadable(folders: Iterable[Path]) -> None:
    """End the program for an option in these folders that is no YAML: of such a file Hydra prints a traceback."""
    from omegaconf import DictConfig, OmegaConf
    from yaml import YAMLError

    groups = sorted(_groups())
    for file in (file for folder in folders for group in groups for file in sorted((folder / group).rglob("*.yaml"))):
        try:
            if isinstance(OmegaConf.load(file), DictConfig):
                continue
            fault = "it holds a list, and an option is lines KEY: VALUE"
        except (UnicodeDecodeError, YAMLError) as error:
            fault = " ".join(str(error).split())
        started()
        sys.exit(f"error: {file} is no option: {fault}.")


def sentence_for(error: Exception, words: list[str], config: str = "config", folders: Iterable[Path] = ()) -> str:
    """One sentence for an unknown key or option, a missing value and a word that is no KEY=VALUE; else the error's own.

    words    the command line
    config   the configuration that it changes: a file of config/, without .yaml
    folders  those of --config-dir
    """
    from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

    text = str(error)
    if found := re.match(r"Could not override '([^'@]+)'", text):
        return _no_such_key(found[1], _values_of(words, config, folders), config)
    if found := re.search(r"Could not find '([^']+)/([^'/]+)'", text):
        options = re.findall(r"^\t(.+)$", text.partition("Config search path")[0], re.MULTILINE)
        group, name = found[1], found[2]
        return f"error: {group}={name}: there is no such option{meant(name, options)} Choose {', '.join(options)}."
    if isinstance(error, MissingMandatoryValue):
        return f"error: {error.full_key} has no value: give {error.full_key}=VALUE."
    if type(error).__name__ == "OverrideParseException":
        word = getattr(error, "override", None) or text.splitlines()[0]
        return (
            f"error: {word} cannot be read as KEY=VALUE: a value with more in it than letters a to z, digits and -_./: "
            "needs quotes of its own, and the shell's around all of it: 'KEY=\"VALUE\"'."
        )
    if isinstance(error, OmegaConfBaseException):
        text = text.splitlines()[0] + (f" (in {error.full_key})" if error.full_key else "")
    return text if text.startswith(("error: ", "Traceback")) else f"error: {text}"


def _no_such_key(key: str, values: dict[str, Any], config: str) -> str:
    """The sentence for an unknown key, with known keys that have the same last part or a similar spelling.

    values   of the known keys; config: the file that they are of
    """
    known = [other for other in values if not other.rpartition(".")[2].startswith("_")]
    group, dot, last = key.rpartition(".")
    near = [other for other in known if other.rpartition(".")[2] == last][:3]
    beside = [other.removeprefix(group + dot) for other in known if other.startswith(group + dot)]
    near = near or [group + dot + name for name in nearest(last, beside)]
    if last in _fields_of(values.get(f"{group}._target_")):
        return f"error: the YAML of {group} has no key {last}, but its class has: +{key}=VALUE sets it."
    all_keys = "python main.py --help keys shows all." if config == "config" else f"config/{config}.yaml has all."
    return f"error: there is no key {key}: " + (f"did you mean {' or '.join(near)}?" if near else all_keys)


def _fields_of(target: str | None) -> Iterable[str]:
    """The fields of the class that a chosen option names; none if there is none."""
    from hydra.utils import get_class

    try:
        return getattr(get_class(target), "__dataclass_fields__", ()) if target else ()
    except (ImportError, ValueError):  # its module cannot be imported, or it is a function
        return ()


def _values_of(words: list[str], config: str, folders: Iterable[Path]) -> dict[str, Any]:
    """{dotted key: value} of the configuration composed with the chosen options, or with the defaults if that fails."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    groups = _groups()
    chosen = [word for word in words if word.partition("=")[0].partition("@")[0] in groups and "," not in word]
    for kept in ((chosen, tuple(folders)), ([], ())):
        try:
            return dict(_dotted(without_hydra(compose_words(config, *kept))))
        except (HydraException, OmegaConfBaseException):  # a chosen option is wrong too: try the defaults
            continue
    return {}


def _groups() -> set[str]:
    return {path.name for path in CONFIG.iterdir() if path.is_dir()}


def _dotted(node: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in node.items() if isinstance(node, dict) else ():
        yield f"{where}{key}", value
        yield from _dotted(value, f"{where}{key}.")
