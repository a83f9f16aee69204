"""The version of the installed package, which pyproject.toml alone states."""

from __future__ import annotations

import argparse

PACKAGE = "reasoningbank-harness"


def package_version() -> str:
    """Such as `0.1.0`; `unknown` where the code runs without being installed."""
    from importlib.metadata import PackageNotFoundError, version  # 30 ms

    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        return "unknown"


def version_line() -> str:
    """What `--version` prints."""
    return f"{PACKAGE} {package_version()}"


class VersionAction(argparse.Action):
    """argparse's action="version", which looks the version up only when it is asked for."""

    def __init__(self, option_strings: list[str], dest: str) -> None:
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, help="print the version")

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(version_line())
        parser.exit()
