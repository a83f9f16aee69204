"""Configurations that were composed before, kept in the user's cache folder: Hydra alone would take half a second.

A server, a hook or a tool starts with the same words each time. What these make of the files in config/ is kept as
JSON, under a hash of the words and of the state of these files, which another version brings anew. Everything works
without the folder, only slower.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from platformdirs import user_cache_path

from core.build import build_redactor

MOST = 50  # kept; of more the oldest go


def composed_once(words: Any, config: Path, compose: Callable[[], Any]) -> Any:
    """The configuration that `compose` returns for these words, or the same from an earlier start.

    config   the folder of the files that it is composed of
    """
    state = sorted((str(file), *_stamp(file)) for file in config.rglob("*.yaml"))
    key = sha256(json.dumps([words, state]).encode()).hexdigest()[:32]
    kept = user_cache_path("reasoningbank", appauthor=False) / "composed" / f"{key}.json"
    with suppress(OSError, ValueError):
        cfg = OmegaConf.create(json.loads(kept.read_bytes()))
        OmegaConf.set_struct(cfg, True)
        return cfg
    cfg = compose()
    with suppress(OSError, TypeError):  # TypeError: a value that JSON lacks
        _keep(kept, cfg)
    return cfg


def _stamp(file: Path) -> tuple[int, int]:
    about = file.stat()
    return about.st_mtime_ns, about.st_size


def _keep(file: Path, cfg: Any) -> None:
    """Write a configuration, whole or not at all; never one that holds a secret, or that JSON would change."""
    plain = OmegaConf.to_container(cfg)
    text = json.dumps(plain)
    if build_redactor(cfg)(text) != text or json.loads(text) != plain:
        return
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = file.with_suffix(f".{os.getpid()}")
    temporary.write_text(text, encoding="utf-8", newline="\n")
    temporary.replace(file)
    for old in sorted(file.parent.glob("*.json"), key=lambda each: each.stat().st_mtime)[:-MOST]:
        old.unlink(missing_ok=True)
