"""Shared by the scripts: help from the docstring, one sentence for bad input, and a way to start each other."""

from __future__ import annotations

import argparse
import functools
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]


def parser(doc: str, *, runs: bool = False) -> argparse.ArgumentParser:
    """A parser whose help is the script's docstring. runs: it begins with run directories or folders of them."""
    from core.version import VersionAction  # here, because scripts.doctor says so itself where core is missing

    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--version", action=VersionAction)
    if runs:
        made.add_argument("runs", nargs="+", metavar="RUNS")
    return made


def plain_errors(status: int = 2) -> Callable[[Callable], Callable[..., int]]:
    """For a script's main: bad input ends it with one sentence on stderr and this exit status; None is status 0.

    Ctrl-C is one sentence too, with status 130.
    """

    def decorate(main: Callable[..., int | None]) -> Callable[..., int]:
        @functools.wraps(main)
        def guarded(arguments: list[str] | None = None) -> int:
            from core.terminal import refuse_little_memory, stop_in_order

            stop_in_order()
            refuse_little_memory()
            from core.errors import (  # here, because scripts.doctor runs where core cannot be imported
                UserError,
                extra_for,
            )
            from core.terminal import after_output_failed, open_standard_streams

            open_standard_streams()
            try:
                status_of_main = main(arguments) or 0
                sys.stdout.flush()
                return status_of_main
            except BrokenPipeError as error:
                return after_output_failed(error)
            except UserError as error:
                print(f"error: {error}", file=sys.stderr)
                return status
            except OSError as error:
                what = f"{error.filename} cannot be read or written: {error.strerror}." if error.filename else error
                print(f"error: {what}", file=sys.stderr)
                return status
            except ModuleNotFoundError as error:
                if (sentence := extra_for(error)) is None:
                    raise
                print(f"error: {sentence}", file=sys.stderr)
                return status
            except KeyboardInterrupt:
                print("\nstopped.", file=sys.stderr)
                return 130

        return guarded

    return decorate


def command_of(module: str, *words: object) -> list[str]:
    """The command that runs a module. Start it with cwd=REPO, so that it is the one of this checkout."""
    return [sys.executable, "-m", module, *map(str, words)]


def start_module(module: str, called: str, arguments: list[str]) -> int:
    """Run a module in this process as `python -m` does; returns its exit status. called: how its help names it."""
    sys.argv = [called, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=module == "main")
    except SystemExit as ended:
        if isinstance(ended.code, str):  # which Python would print
            print(ended.code, file=sys.stderr)
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0
