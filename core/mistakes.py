"""Report command-line mistakes that Hydra finds in one sentence, with the names that may have been meant."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from core.errors import meant, nearest
from core.terminal import started

CONFIG = Path(__file__).resolve().parents[1] / "config"
_FULL = "HYDRA_FULL_ERROR"  # Hydra's switch: raise errors instead of printing them with advice and ending the program
_QUOTES = "quotes of its own, and the shell's around all of it: 'KEY=\"VALUE\"'"
_FLAGS = (
    "--help --hydra-help --version --cfg --resolve --package --run --multirun --shell-completion --config-path "
    "--config-name --config-dir --experimental-rerun --info"
).split()
_SAID = (  # what Hydra says, and what is said instead
    (
        r"In '([^']+)': Could not override '[^'@]+@[^']+'",
        "{0}.yaml overrides another group of the configuration, so it must begin with the line `# @package _global_`.",
    ),
    (
        r"Additional config directory '([^']*)' not found",
        "--config-dir {0}: there is no such folder; is a variable in its name not set?",
    ),
    (
        r"Ambiguous value for argument '([^']+)'",
        f"{{0}}: several values are a sweep, which needs -m; one with a comma needs {_QUOTES}.",
    ),
    (r"override '([^']+)'\s+missing EQUAL", "{0}: give a key and its value as KEY=VALUE."),
    (r"^(\S+) appears more than once", "{0} is chosen twice: give {0}=OPTION once, and without +."),
)


def run_with_plain_hydra_errors(main: Callable[[], Any], folders: Iterable[Path] = ()) -> None:
    """Run Hydra's main; end the program with one sentence for an error of Hydra. HYDRA_FULL_ERROR=1: Hydra's own text.

    folders   the folders of --config-dir

    Ends it in the same way for a flag that Hydra does not know, and for a run directory that cannot be written.
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
        sentence = sentence_for(error, sys.argv[1:])
    except (OSError, ValueError) as error:  # of the run directory or its log; errors within a run are reported there
        if str(error).startswith("Unable to configure"):  # Python's logging, of what job_logging or hydra_logging hold
            why = f"{error}: {error.__cause__}".rstrip(".")
            sys.exit(
                f"error: hydra/job_logging or hydra/hydra_logging: {why}. Choose default, stdout, disabled or none."
            )
        if not isinstance(cause := error if isinstance(error, OSError) else error.__cause__, OSError):
            raise
        sentence = f"error: {cause.filename or 'run_dir'} cannot be written: {cause.strerror}. Give another run_dir."
    else:
        return
    finally:
        del os.environ[_FULL]  # this process may start another run
    started()
    sys.exit(sentence)


def refuse_flags(words: list[str]) -> None:
    """End the program (status 2) for a flag that Hydra does not know, and for a flag between KEY=VALUE words."""
    flags = [word.partition("=")[0] for word in words if word.startswith("--")]
    wrong = next((flag for flag in flags if not any(known.startswith(flag) for known in _FLAGS)), "")
    key = wrong[2:].replace("-", "_")
    given = "".join("-" if word.startswith("-") else "=" if "=" in word else "." for word in words)
    if wrong and key in _keys_of([], "config"):
        said = f"{key} is a key and no flag: give {key}=VALUE."
    elif wrong:
        said = f"there is no flag {wrong}{meant(wrong, _FLAGS)} python main.py --help shows all."
    elif late := re.search(r"=[^-]*-[^=]*(=)", given):
        said = f"{words[late.start(1)]} follows a flag such as -m that stands among KEY=VALUE words: give flags first."
    else:
        return
    started()
    print(f"error: {said}", file=sys.stderr)
    sys.exit(2)


def refuse_unreadable(folders: Iterable[Path]) -> None:
    """End the program for an option in these folders that is no YAML: of such a file Hydra prints a traceback."""
    groups = sorted(_groups())
    for file in (file for folder in folders for group in groups for file in sorted((folder / group).rglob("*.yaml"))):
        if (fault := _fault_of(file)) is not None:
            started()
            sys.exit(f"error: {file}{fault}.")


def _fault_of(file: Path) -> str | None:
    """Why a file cannot be a part of the configuration; None: it can."""
    from omegaconf import DictConfig, OmegaConf
    from yaml import MarkedYAMLError, YAMLError

    try:
        found = OmegaConf.load(file)
    except UnicodeDecodeError as error:
        return f" is no UTF-8 text: {error.reason}"
    except YAMLError as error:
        mark, why = None, str(error)
        if isinstance(error, MarkedYAMLError):
            mark, why = error.problem_mark, str(error.problem).replace("character '\\t' that", "a tab, which")
        where = "" if mark is None else f", line {mark.line + 1}"
        return f"{where} is no YAML: {' '.join(why.split())}"
    return None if isinstance(found, DictConfig) else " holds a list, and an option is lines KEY: VALUE"


def sentence_for(error: Exception, words: list[str], config: str = "config") -> str:
    """One sentence for a known error of Hydra or OmegaConf; the error's own text for all others.

    words    the command line
    config   the configuration that it changes: a file of config/, without .yaml
    """
    from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

    text = str(error)
    if found := re.match(r"Could not override '([^']+)'", text):
        return _no_such_key(found[1], words, config)
    if isinstance(error, MissingMandatoryValue):
        return f"error: {error.full_key} has no value: give {error.full_key}=VALUE."
    if found := re.search(r"Environment variable '([^']+)' not found", text):
        needs = f", which {key} needs" if (key := getattr(error, "full_key", None)) else ""
        return f"error: the environment variable {found[1]} is not set{needs}: export {found[1]}=VALUE."
    if found := re.search(r"Could not find '([^']+)/([^'/]+)'", text):
        options = re.findall(r"^\t(.+)$", text.partition("Config search path")[0], re.MULTILINE)
        group, name = found[1], found[2]
        return f"error: {group}={name}: there is no such option{meant(name, options)} Choose {', '.join(options)}."
    for form, said in _SAID:
        if found := re.search(form, text):
            return f"error: {said.format(*found.groups())}"
    if type(error).__name__ == "OverrideParseException":
        word = getattr(error, "override", None) or text.splitlines()[0]
        return (
            f"error: {word} cannot be read: a value with more in it than letters a to z, digits and -_./: "
            f"needs {_QUOTES}."
        )
    if isinstance(error, OmegaConfBaseException):
        text = text.splitlines()[0]
    return text if text.startswith(("error: ", "Traceback")) else f"error: {text}"


def _no_such_key(key: str, words: list[str], config: str) -> str:
    """The sentence for an unknown key, with known keys that have the same last part or a similar spelling."""
    known = [*_keys_of(words, config)]
    group, _, last = key.rpartition(".")
    near = [other for other in known if other.rpartition(".")[2] == last][:3]
    if not near and group in known:  # `key` names a field of a known part
        own = [other.rpartition(".")[2] for other in known if other.rpartition(".")[0] == group]
        near = [f"{group}.{name}" for name in nearest(last, own)]
    near = near or ([] if group in known else nearest(key, known))
    all_keys = "python main.py --help shows all." if config == "config" else f"config/{config}.yaml has all."
    said = f"did you mean {' or '.join(near)}?" if near else all_keys
    return f"error: there is no key {key}: {said}"


def _keys_of(words: list[str], config: str) -> Iterator[str]:
    """Every dotted key of the configuration composed with the chosen options, or with the defaults if that fails."""
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    groups = _groups()
    chosen = [word for word in words if word.partition("=")[0].partition("@")[0] in groups and "," not in word]
    GlobalHydra.instance().clear()
    for kept in (chosen, []):
        try:
            with initialize_config_dir(str(CONFIG), version_base="1.3"):
                cfg = compose(config, overrides=kept)
        except (HydraException, OmegaConfBaseException):  # a chosen option is wrong too: try the defaults
            continue
        yield from _dotted(OmegaConf.to_container(cfg, resolve=False))
        return


def _groups() -> set[str]:
    return {path.name for path in CONFIG.iterdir() if path.is_dir()}


def _dotted(node: Any, where: str = "") -> Iterator[str]:
    for key, value in node.items() if isinstance(node, dict) else ():
        if not str(key).startswith("_"):
            yield f"{where}{key}"
            yield from _dotted(value, f"{where}{key}.")
