"""The configuration, and the options of a bank on the command line.

The configuration is config/mcp.yaml with a preset, the user's settings file and the typed overrides; the later wins.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from core.errors import UserError, meant
from core.make import part
from core.memory.open import file_of
from core.memory.open import has_bank as is_there
from core.memory.place import BANK_ENV, unnamed_bank, user_folders
from core.mistakes import sentence_for
from core.textfile import read_text
from mcp_server.composed import composed_once
from mcp_server.foreign_config import CLAUDE_FLOW, foreign_words, parse_yaml
from mcp_server.override_words import override

FOLDER = Path(__file__).resolve().parents[1] / "config"
SETTINGS_ENV = "REASONINGBANK_SETTINGS"  # names another settings file, or `none` to read none
SETTINGS_NAME = "reasoningbank.yaml"
TOKEN_ENV = "REASONINGBANK_MCP_TOKEN"  # the variable that holds the bearer token, unless another is named
VARIABLE = "REASONINGBANK_"  # a variable that sets a key begins so (`environment`)
OWN_VARIABLES = (SETTINGS_ENV, TOKEN_ENV, BANK_ENV, *(VARIABLE + name for name in ("MEMORY", "MEMORY_FILE", "TASK")))
# Keys of a group that mean the same for each of its options: another option does not drop them.
OF_EVERY_OPTION = tuple(
    f"retrieval.{key}" for key in "min_score other_languages_by_words ignore_preamble corrections_first".split()
)
SINGLE_KEYS = ("preset", "enabled", "llm", "embedder", "retrieval", "judge", "select", "seed")


class ServerSettings(SimpleNamespace):
    """The section `server` of config/mcp.yaml, which documents each key, as plain values.

    Plain values are faster: reading one from an OmegaConf configuration takes 20 microseconds each time.
    """

    @classmethod
    def of(cls, cfg: Any) -> ServerSettings:
        """From a composed configuration."""
        from omegaconf import OmegaConf

        return cls(**OmegaConf.to_container(cfg.server, resolve=True))


def load_config(overrides: list[str], unless_set: Sequence[str] = ()) -> Any:
    """The composed configuration: `unless_set`, a preset, the user's settings file, variables REASONINGBANK_*, the
    typed overrides.

    If another option of a group is typed (retrieval=cosine), the file's keys of that group are left out. Raises
    UserError if a key of the file or a variable is invalid, naming it.
    """
    path, variables = settings_file(), environment()
    kept = set(unless_typed(list(variables), overrides))
    variables = {word: name for word, name in variables.items() if word in kept}
    words = [] if path is None else unless_typed(read_settings(path), [*variables, *overrides])
    words += variables
    try:
        given = [*words, *overrides]
        cfg = composed_once([given, list(unless_set)], FOLDER, lambda: _with_preset(given, unless_set))
    except UserError:
        for number, word in enumerate(words, 1):
            try:
                _with_preset(words[:number])
            except UserError as error:
                # Its value may be what must not stand in a log, such as a key of a provider.
                reason = str(error).partition(" (given: ")[0].replace(word, _key(word))
                where = f"the variable {variables[word]}" if word in variables else f"the settings {path}"
                raise UserError(f"{where}: {_key(word)} does not fit: {reason}") from error
        raise
    if cfg.retrieval.get("when") not in (None, "task") or cfg.memory.get("validate") is not None:
        raise UserError("retrieval.when and memory.validate are for runs, whose tasks are played here: leave them out.")
    if path is not None:
        cfg.settings = str(path.resolve())
    return cfg


def environment() -> dict[str, str]:
    """{override: name of the variable} of the variables that set keys: REASONINGBANK_RETRIEVAL__TOP_K=3 is top_k.

    `__` stands for a dot. A name without one counts if it is a key of config/mcp.yaml; others are somebody else's.
    """
    found = {}
    for name, text in sorted(os.environ.items()):
        key = name.removeprefix(VARIABLE).lower().replace("__", ".")
        if name.startswith(VARIABLE) and name not in OWN_VARIABLES and ("." in key or key in SINGLE_KEYS):
            import yaml

            try:
                value = yaml.safe_load(text)
            except yaml.YAMLError:
                value = text
            found[override(key, text if isinstance(value, dict) else value)] = name
    return dict(sorted(found.items(), key=lambda each: "." in _key(each[0])))


def settings_file() -> Path | None:
    """The user's settings file; None if there is none, or if the variable SETTINGS_ENV is `none`."""
    if (path := os.environ.get(SETTINGS_ENV)) is not None:
        return None if path in ("", "none") else Path(path).expanduser()
    folders = [Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"), user_folders().user_config_path]
    return next((folder / SETTINGS_NAME for folder in folders if (folder / SETTINGS_NAME).is_file()), None)


def read_settings(path: Path) -> list[str]:
    """The file's keys as overrides, choices of a group's option first. Raises UserError if it cannot be read."""
    settings = parse_yaml(read_text(path, f"the settings {path}"), f"the settings {path} are") or {}
    if not isinstance(settings, dict):
        raise UserError(f"the settings {path} hold no keys: give lines like `retrieval.top_k: 3`.")
    try:
        if (words := foreign_words(settings, CLAUDE_FLOW)) is not None:
            return words
    except UserError as error:
        raise UserError(f"the settings {path}: {error}") from None
    return sorted(_overrides(settings), key=lambda word: "." in word.partition("=")[0])


def _overrides(node: dict[Any, Any], above: str = "") -> Iterator[str]:
    """An override key=value for each leaf of nested mappings."""
    for name, value in node.items():
        key = f"{above}{name}"
        if isinstance(value, dict) and value:
            yield from _overrides(value, f"{key}.")
        else:
            yield override(key, value)


def _with_preset(overrides: list[str], unless_set: Sequence[str] = ()) -> Any:
    """The composed configuration. A preset is a list of overrides, and these come after it.

    If another option of a group is given (retrieval=cosine), the preset's keys of that group are left out. For another
    memory, those keys of the preset that this memory has still apply: the guard and the consolidation.
    """
    preset = _preset_words(overrides)
    typed, kept = set(map(_key, overrides)), unless_typed(preset, overrides)
    if "memory" in typed:
        of_memory = [word for word in preset if word.startswith(("+memory/", "memory.")) and _key(word) not in typed]
        for added in (True, False):  # first the guard, then the keys, some of which are the guard's
            chosen = _compose([*kept, *overrides], overrides)
            kept += [w for w in of_memory if w.startswith("+") == added and _has(chosen, _key(w), empty=added)]
    cfg = _compose([*unless_set, *kept, *overrides], overrides)
    if "retrieval.min_score" not in typed and not part(cfg.retrieval).by_meaning:
        cfg.retrieval.min_score = None  # the preset's is of similarities: BM25 has a scale of its own in each bank
    return cfg


def unless_typed(words: list[str], typed: list[str]) -> list[str]:
    """Drop those overrides in `words` whose key is also in `typed`, or whose group is, but for OF_EVERY_OPTION."""
    keys = set(map(_key, typed))
    others = [_key(word) for word in typed if word not in words]
    inner = tuple(f"{key.replace('/', '.')}." for key in others if "/" in key)  # of memory/consolidate/merge=voting
    words = [word for word in words if _key(word) in OF_EVERY_OPTION or re.split("[./]", _key(word))[0] not in keys]
    return [word for word in words if _key(word) not in keys and not word.startswith(inner)]


def _preset_words(overrides: list[str]) -> list[str]:
    """The overrides of the preset that is typed, or of the default one."""
    from omegaconf import OmegaConf

    known = OmegaConf.to_container(OmegaConf.load(FOLDER / "mcp.yaml"))
    chosen = [word.removeprefix("preset=") for word in overrides if word.startswith("preset=")]
    name = chosen[-1] if chosen else known["preset"]
    if name not in known["presets"]:
        raise UserError(
            f"preset={name}: there is none{meant(name, known['presets'])} Give {', '.join(known['presets'])}."
        )
    words = [each for word in known["presets"][name] for each in (word if isinstance(word, list) else [word])]
    if any(word.startswith("llm=") for word in overrides):
        later = known["presets_with_model"].get(name, [])
        words = [word for word in words if _key(word) not in map(_key, later)] + later
    return words


def _key(word: str) -> str:
    return word.partition("=")[0].lstrip("+~")


def _has(cfg: Any, key: str, *, empty: bool) -> bool:
    """Whether a configuration has a key; with empty=True: and its value is None."""
    from omegaconf import OmegaConf

    above, _, name = key.replace("/", ".").rpartition(".")
    place = OmegaConf.select(cfg, above)
    return OmegaConf.is_dict(place) and name in place and not (empty and place[name] is not None)


def _compose(words: list[str], given: list[str]) -> Any:
    from hydra import compose, initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    try:
        with initialize_config_dir(str(FOLDER.resolve()), version_base="1.3", job_name="mcp_server"):
            return compose("mcp", overrides=words)
    except (HydraException, OmegaConfBaseException, ValueError) as error:  # ValueError: of llm=null
        said = sentence_for(error, words, config="mcp").removeprefix("error: ")
        raise UserError(f"{' '.join(said.split())} (given: {' '.join(given)})") from error


def bank_options(sub: argparse.ArgumentParser) -> None:
    """The options of every command that opens a bank."""
    sub.add_argument(
        "--bank",
        metavar="PATH",
        help=f"the bank's SQLite file, or the URL of a PostgreSQL database; without it ${BANK_ENV}, else the bank of "
        "the repository that you are in",
    )
    sub.add_argument(
        "--config", type=Path, metavar="FILE", help="settings in the layout of the ReasoningBank MCP server"
    )
    sub.add_argument("--embedder", metavar="NAME", help="of a new bank: all-MiniLM-L6-v2, hashing-256, ...")
    sub.add_argument("--require-agent-id", action="store_true", help="refuse calls that do not say whose memory")
    keys = "preset=NAME, llm=NAME, retrieval.top_k=3, ..."
    sub.add_argument("overrides", nargs="*", type=_key_and_value, metavar="key=value", help=keys)


def _key_and_value(word: str) -> str:
    if "=" not in word and not word.startswith("~"):  # as Hydra takes a key away
        raise argparse.ArgumentTypeError(f"{word!r} is no key=value: give a bank as --bank PATH, a command after --")
    return word


def bank_or_server_options(sub: argparse.ArgumentParser) -> None:
    """The options of a command that calls a tool: on a bank's file, or on a running server, which is faster."""
    bank_options(sub)
    sub.add_argument("--url", metavar="URL", help="a running server instead of --bank, e.g. http://127.0.0.1:8000/mcp")
    sub.add_argument("--token-env", default=TOKEN_ENV, metavar="NAME", help=f"holds its bearer token ({TOKEN_ENV})")
    sub.add_argument("--token-file", type=Path, metavar="FILE", help="holds it instead")


def bank_file(given: argparse.Namespace) -> Path:
    """The bank's file, for what is kept beside it. UserError where --bank is a database."""
    if (file := file_of(bank_path(given))) is None:
        raise UserError(f"--bank {bank_path(given)}: this needs a bank's file, or --url of a running server.")
    return file


def bank_path(given: argparse.Namespace) -> str:
    """Where the bank lies: its file, or the URL of its database."""
    path = _unnamed(given)[0] if given.bank is None else given.bank
    return path if file_of(path) is None else str(Path(path).expanduser())


def bank_said(given: argparse.Namespace) -> str:
    """The bank that the options name, in words: with the reason where they name none."""
    return bank_path(given) + ("" if given.bank is not None else f", {_unnamed(given)[1]} (--bank PATH: another)")


def _unnamed(given: argparse.Namespace) -> tuple[str, str]:
    return unnamed_bank(getattr(given, "folder", "."))  # the folder that a client's hook names


def has_bank(given: argparse.Namespace) -> bool:
    """Whether the bank is there, or the journal that it is rebuilt from; a database counts as there."""
    return is_there(bank_path(given))
