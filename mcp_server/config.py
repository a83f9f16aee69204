"""The server's configuration: config/mcp.yaml, a preset, and what the user types after it, composed by Hydra."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from core.errors import UserError

FOLDER = Path(__file__).parent / "config"  # a link to the repository's config/, so that a wheel carries it too


def load_config(overrides: list[str]) -> Any:
    """The composed configuration. A preset is a list of overrides, and those that were typed come after it.

    Where another option of a group is typed (retrieval=cosine), what the preset sets in that group is left out.
    """
    from hydra import compose, initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    known = OmegaConf.load(FOLDER / "mcp.yaml")
    chosen = [word.removeprefix("preset=") for word in overrides if word.startswith("preset=")]
    name = chosen[-1] if chosen else known.preset
    if name not in known.presets:
        raise UserError(f"preset={name}: give {' or '.join(known.presets)}.")
    typed = {word.partition("=")[0] for word in overrides}
    preset = [word for word in known.presets[name] if re.split(r"[./=]", word.lstrip("+"))[0] not in typed]
    try:
        with initialize_config_dir(str(FOLDER.resolve()), version_base="1.3", job_name="mcp_server"):
            return compose("mcp", overrides=[*preset, *overrides])
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(f"{' '.join(str(error).split())} (given: {' '.join(overrides)})") from error
