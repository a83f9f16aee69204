"""The command line and the configuration: config/mcp.yaml, a preset, and what the user types, composed by Hydra."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import UserError

if TYPE_CHECKING:
    from mcp_server.service import Service

FOLDER = Path(__file__).parent / "config"  # a link to the repository's config/, so that a wheel carries it too
TOKEN_ENV = "REASONINGBANK_MCP_TOKEN"  # the variable that holds the bearer token, unless another is named


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


def bank_options(sub: argparse.ArgumentParser, required: bool = True) -> None:
    """The options of every command that opens a bank."""
    sub.add_argument("--bank", type=Path, required=required, metavar="PATH", help="the bank's SQLite file")
    sub.add_argument("--embedder", metavar="NAME", help="of a new bank: all-MiniLM-L6-v2, hashing-256, ...")
    sub.add_argument("--require-agent-id", action="store_true", help="refuse calls that do not say whose memory")
    sub.add_argument("overrides", nargs="*", metavar="key=value", help="preset=NAME, llm=NAME, retrieval.top_k=3, ...")


def bank_or_server_options(sub: argparse.ArgumentParser) -> None:
    """The options of a command that calls a tool: on a bank's file, or on a running server, which is faster."""
    bank_options(sub, required=False)
    sub.add_argument("--url", metavar="URL", help="a running server instead of --bank, e.g. http://127.0.0.1:8765/mcp")
    sub.add_argument("--token-env", default=TOKEN_ENV, metavar="NAME", help="its bearer token")


def open_service(given: argparse.Namespace) -> Service:
    """The bank that the options of `bank_options` name, opened with the configuration typed after them."""
    from mcp_server.service import Service

    path, cfg = given.bank.expanduser(), load_config(given.overrides)
    return Service(path, cfg, embedder=given.embedder, require_agent=given.require_agent_id)
