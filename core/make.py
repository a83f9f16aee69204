"""Make the parts that the configuration names, from its nodes: a class in `_target_` beside its fields.

The only module that instantiates parts; which ones a run has is in build.py.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Mapping
from inspect import isfunction, signature
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from core.errors import UserError, meant

if TYPE_CHECKING:
    from omegaconf import DictConfig

OURS = ("core", "envs", "prompts", "single_turn_bench", "workflows")  # packages whose parts need no check
CONFIG = Path(__file__).parents[1] / "config"
_MAPPING = re.compile(r"(?:Mapping|dict)\[[^|]*\]")
PLAIN = {"int", "float", "bool", "str", "NoneType"}


def make(node: Any, **deps: Any) -> Any:
    """Build a config node's `_target_`, and those in it, from its keys and the given runtime dependencies.

    Raises UserError for missing values and unknown keys, and passes on what the constructor raises.
    """
    from omegaconf.errors import MissingMandatoryValue

    try:
        check_types(node, given=deps)
        check_methods(part(node))
        check_fields(part(node), node)
        plain = _plain(node)
    except MissingMandatoryValue as error:
        raise UserError(f"{error.full_key} is not given: it has no default, give {error.full_key}=VALUE.") from error
    try:
        return _built({key: value for key, value in plain.items() if key not in deps}, deps)
    except TypeError as error:
        if any(words in str(error) for words in ("unexpected keyword", "missing", "abstract class")):
            raise UserError(_misfit(plain, str(error))) from error
        raise


def make_with(node: Any, offered: dict[str, Any]) -> Any:
    """`make`, with those of the offered dependencies for which the part has a field."""
    return make(node, **{name: value for name, value in offered.items() if takes(node, name)})


def takes(node: Any, name: str) -> bool:
    """Whether a part has a field, or an argument, of this name."""
    return name in signature(part(node)).parameters


def part(node: Any) -> Any:
    """The class, or the function, that a config node names in `_target_`. UserError if it cannot be imported."""
    if (name := node.get("_target_")) is None:
        from omegaconf import OmegaConf

        group = node._key() if OmegaConf.is_config(node) else None
        if group in node:  # as of a file for the top of the configuration
            raise UserError(
                f"a part stands one level too deep, under a second {group}: its YAML file, which says `{group}:`, must "
                "begin with the line `# @package _global_`."
            )
        raise UserError(f"a part has no _target_, the name of its class, beside {', '.join(node)}.")
    return imported(name, f"_target_={name}")


def imported(name: str, given: str) -> Any:
    """What a dotted name names. Raises UserError if it cannot be imported.

    given   how the user named it, for the error's text
    """
    try:
        words = name.split(".")
        found = importlib.import_module(words[0])
        for number, word in enumerate(words[1:], 2):
            try:
                found = getattr(found, word)
            except AttributeError:
                if not hasattr(found, "__path__"):  # no package, so this is no module that is not imported yet
                    lacks = f"{'.'.join(words[: number - 1])} has no {word}{meant(word, dir(found))}"
                    raise UserError(f"{given} cannot be imported: {lacks}") from None
                found = importlib.import_module(".".join(words[:number]))
    except UserError:
        raise
    except Exception as error:  # whatever a user's own module raises while it is imported
        raise UserError(
            f"{given} cannot be imported: {type(error).__name__}: {error}. "
            "For a part from outside, PYTHONPATH names the folder that its package lies in."
        ) from error
    return found


def _plain(value: Any) -> Any:
    """A node as plain dictionaries and lists, with its interpolations resolved."""
    from omegaconf import OmegaConf

    if OmegaConf.is_config(value):
        return OmegaConf.to_container(value, resolve=True, throw_on_missing=True)
    return {key: _plain(each) for key, each in value.items()} if isinstance(value, dict) else value


def _built(value: Any, deps: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """A plain value in which each node with a `_target_` is built, the innermost first. deps: for the outermost."""
    if isinstance(value, list):
        return [_built(each) for each in value]
    if not isinstance(value, dict):
        return value
    inner = {key: _built(each) for key, each in value.items() if key != "_target_"}
    return part(value)(**inner, **deps) if "_target_" in value else inner


def check_methods(target: Any, like: type | None = None) -> None:
    """Raise UserError for a method of a part from outside that cannot be called as the harness calls it.

    like   the class whose methods it must have, where it does not inherit from it
    """
    if not isinstance(target, type) or target.__module__.partition(".")[0] in OURS:
        return
    bases = [each for each in target.__mro__ if each.__module__.partition(".")[0] in OURS] + ([like] if like else [])
    for cls in target.__mro__[: next((n for n, each in enumerate(target.__mro__) if each in bases), None)]:
        for name, own in vars(cls).items():
            base = next((vars(each)[name] for each in bases if name in vars(each)), None)
            if name[:2] != "__" and isfunction(own) and isfunction(base) and (why := _unlike(own, base)):
                raise UserError(
                    f"{target.__name__}.{name}{signature(own)} cannot be called as the harness does, "
                    f"{name}{signature(base)}: {why}."
                )
    if lacking := [name for name in getattr(like, "__abstractmethods__", ()) if not hasattr(target, name)]:
        raise UserError(f"{target.__name__} has no method {' and no method '.join(sorted(lacking))}.")
    if like and (lacking := [name for name in vars(like) if name[0] != "_" and not hasattr(target, name)]):
        like_it = f"class {target.__name__}({like.__name__}), from {like.__module__}"
        raise UserError(f"{target.__name__} has no {', '.join(lacking)}: inherit them, as {like_it}.")


def check_fields(target: Any, keys: Iterable[str]) -> None:
    """Raise UserError for a key that a class from outside annotates, and no dataclass has made a field of."""
    own = [cls for cls in getattr(target, "__mro__", ()) if cls.__module__.partition(".")[0] not in OURS]
    annotated = {name for cls in own for name in vars(cls).get("__annotations__", ())}
    for key in annotated.intersection(keys).difference(getattr(target, "__dataclass_fields__", ())):
        if key not in signature(target).parameters:
            name = target.__name__
            raise UserError(f"{name}.{key} is no field: write @dataclass(kw_only=True) above class {name}.")


def _unlike(own: Any, base: Any) -> str:
    """Why a function cannot take the arguments of another; "" if it can."""
    parameters = [p for p in signature(base).parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    by_place = [p for p in parameters if p.default is p.empty and p.kind is not p.KEYWORD_ONLY]
    try:
        signature(own).bind(*by_place, **{p.name: None for p in parameters if p not in by_place})
    except TypeError as error:
        return str(error)
    return ""


def check_types(node: Any, given: Any = ()) -> None:
    """Raise UserError for a plain value whose type does not match its field; also in nested nodes.

    given   names that are passed at runtime, and not checked
    """
    target = part(node)
    fields = getattr(target, "__dataclass_fields__", {})
    for key, value in node.items():
        if hasattr(value, "items") and "_target_" in value:
            check_types(value)
        elif is_list(value) and all(hasattr(each, "items") and "_target_" in each for each in value):
            for each in value:
                check_types(each)
        elif key in fields and key not in given:
            kind = fields[key].type
            kind = kind.__name__ if isinstance(kind, type) else str(kind)  # a class, or its name
            if not fits(value, kind):
                kind = _MAPPING.sub("{KEY: VALUE, ...}", kind).replace("|", "or")
                raise UserError(f"{target.__name__}.{key}={value!r}: give {kind}.")


def fits(value: Any, annotation: str) -> bool:
    """Whether a value matches an annotation of plain types, e.g. "int | None", and is no text where one has keys.

    True for every other annotation.
    """
    if isinstance(value, str) and _MAPPING.match(annotation):
        return False
    kinds = set(annotation.replace("None", "NoneType").split(" | "))
    own = type(value).__name__
    return not kinds <= PLAIN or own in kinds or (own == "int" and "float" in kinds)


def is_list(value: Any) -> bool:
    """Whether a value of the configuration is a list, OmegaConf's or a plain one."""
    from omegaconf import OmegaConf

    return isinstance(value, (list, tuple)) or OmegaConf.is_list(value)


def plain_data(node: Any, *, resolve: bool = False, enum_to_str: bool = False) -> dict[str, Any]:
    """A node of the configuration that has keys, as plain dictionaries and lists."""
    from omegaconf import OmegaConf

    made: Any = OmegaConf.to_container(node, resolve=resolve, enum_to_str=enum_to_str)
    return made


def _misfit(node: Any, why: str) -> str:
    """Why a part cannot be built from its keys, with the file that they stand in and the fields that it has."""
    target, file = node["_target_"], _file_with(node["_target_"])
    if found := re.search(r"unexpected keyword argument '(\w+)'", why):
        fields = [*signature(part(node)).parameters]
        near = meant(found[1], fields)
        why = f"{target} has no field {found[1]}{near}" + ("" if near != "." else f" It has {', '.join(fields)}.")
        return f"{file}: {why}" if file else f"config: {why}"
    return f"{file or 'config'} for {target}: {why}"


def _file_with(target: str) -> Path | None:
    """The file of a chosen option that names a part; None if there is none, or outside of a run."""
    from hydra.core.hydra_config import HydraConfig

    if not HydraConfig.initialized():
        return None
    chosen = HydraConfig.get().runtime.choices.items()
    files = (f / group.partition("@")[0] / f"{name}.yaml" for f in _config_folders() for group, name in chosen if name)
    return next((file for file in files if file.is_file() and target in file.read_text(encoding="utf-8")), None)


def option(group: str, name: str) -> Any:
    """The configuration of an option, merged with its defaults from the same group. UserError if it does not exist."""
    from omegaconf import OmegaConf

    file = next((path for folder in _config_folders() if (path := folder / group / f"{name}.yaml").is_file()), None)
    if file is None:
        raise UserError(f"there is no option {name} of {group}: choose {', '.join(options(group))}.")
    body: Any = OmegaConf.load(file)
    below = [each.partition("@")[0] for each in body.pop("defaults", ()) if isinstance(each, str) and each != "_self_"]
    return OmegaConf.merge(*(option(group, each) for each in below), body)


def options(group: str) -> list[str]:
    """The names of a group's options, including those of --config-dir, sorted."""
    return sorted({path.stem for folder in _config_folders() for path in (folder / group).glob("*.yaml")})


def compose_words(config: str, words: Iterable[str], folders: Iterable[Path] = ()) -> DictConfig:
    """The configuration that words of a command line make, with Hydra's own. Raises what Hydra raises.

    config    the file of config/ that they change, without .yaml
    folders   those of --config-dir
    """
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    more = ",".join(f"file://{folder.resolve()}" for folder in folders)
    current = GlobalHydra.instance()
    ours, current.hydra = current.hydra, None  # one at a time: that of the run goes on afterwards
    try:
        with initialize_config_dir(str(CONFIG), version_base="1.3", job_name="main"):
            overrides = [*words, *([f"hydra.searchpath=[{more}]"] if more else [])]
            return compose(config, overrides=overrides, return_hydra_config=True)
    finally:
        GlobalHydra.instance().hydra = ours  # another instance by now


def without_hydra(config: DictConfig) -> dict[str, Any]:
    """A composed configuration as plain data, without Hydra's own."""
    return {key: value for key, value in plain_data(config).items() if key != "hydra"}


def _config_folders() -> list[Path]:
    from hydra.core.hydra_config import HydraConfig

    sources = HydraConfig.get().runtime.config_sources if HydraConfig.initialized() else ()
    return [*(Path(source.path) for source in sources if source.schema == "file"), CONFIG]
