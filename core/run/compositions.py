"""Hydra composes one start's configuration several times; here each is composed once, and copied.

A single run is composed to learn `hydra.mode`, and then to run. A sweep's cell is composed to see whether it can be,
for the estimate, and to run. Each composition parses some twenty YAML files anew; here a file is parsed once.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import ConfigRepository
from hydra.core.object_type import ObjectType
from hydra.errors import ConfigCompositionException, HydraException
from hydra.types import RunMode
from omegaconf import DictConfig

_MOST = 2000  # that are kept, of 30 KB each


def keep_compositions() -> None:
    """From now on a loader, which one start has, composes the same words once. Without effect on what is composed."""
    warnings.filterwarnings(
        "ignore", r"\s*Running Hydra app with --multirun"
    )  # -m is no mistake, whatever the config says
    original = ConfigLoaderImpl.load_configuration
    if hasattr(original, "__wrapped__"):
        return

    @wraps(original)
    def load_configuration(self: Any, config_name: Any, overrides: Any, run_mode: RunMode, *more: Any, **named: Any):
        kept = vars(self).setdefault("_kept_compositions", {})
        key = config_name, tuple(overrides)
        if key not in kept:
            try:
                # Of a sweep less is demanded than of a run. So what composes as a run composes as a sweep alike.
                made = original(self, config_name, overrides, RunMode.RUN)
            except HydraException:
                return original(self, config_name, overrides, run_mode, *more, **named)
            if len(kept) >= _MOST:
                del kept[next(iter(kept))]
            kept[key] = pickle.dumps(made)
        return pickle.loads(kept[key])

    ConfigLoaderImpl.load_configuration = load_configuration
    ConfigRepository.load_config = _parsed_once(ConfigRepository.load_config)


def _parsed_once(original: Any) -> Any:
    """ConfigRepository.load_config that parses a file again only after it has changed."""
    kept: dict[Any, bytes] = {}

    @wraps(original)
    def load_config(self: Any, config_path: str) -> Any:
        source = self._find_object_source(config_path=config_path, object_type=ObjectType.CONFIG)
        if source is None or source.scheme() not in ("file", "pkg"):
            return original(self, config_path)
        key = source.provider, source.path, config_path
        if source.scheme() == "file":  # those of installed packages do not change
            about = Path(source.path, source._normalize_file_name(config_path)).stat()
            key += about.st_mtime_ns, about.st_size
        if key not in kept:
            file = Path(source.path, source._normalize_file_name(config_path))
            kept[key] = pickle.dumps(_read_by(lambda: original(self, config_path), file))
        return pickle.loads(kept[key])

    return load_config


def _read_by(read: Callable[[], Any], file: Path) -> Any:
    """A file of the configuration, as `read` reads it. Raises a HydraException that names the place of a mistake."""
    from yaml import MarkedYAMLError, YAMLError

    try:
        found = read()
    except UnicodeDecodeError as error:
        raise ConfigCompositionException(f"{file} is no UTF-8 text: {error.reason}.") from error
    except YAMLError as error:
        mark, why = None, str(error)
        if isinstance(error, MarkedYAMLError):
            mark, why = error.problem_mark, str(error.problem).replace("character '\\t' that", "a tab, which")
        where = "" if mark is None else f", line {mark.line + 1}"
        raise ConfigCompositionException(f"{file}{where} is no YAML: {' '.join(why.split())}.") from error
    if found is not None and not isinstance(found.config, DictConfig):
        raise ConfigCompositionException(f"{file} holds a list, and a part of the configuration is lines KEY: VALUE.")
    return found
