"""What an agent that is a program of its own (agent=command) finds where an env starts it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

REPOSITORY = "/testbed"  # where the command is started
HOME = "/tmp/home"  # its home folder, empty at first
GIVEN = "/given"  # its files, which it cannot change
RELAY = "/relay"  # the way to its model
SUBMIT_LEFT = "(submit what the command left)"  # the action after the command


@dataclass(frozen=True, kw_only=True)
class Outfit:
    """Handed to `EnvView.equip` before the step whose action is the command.

    timeout_s    after which the command is ended; what it has left by then is submitted all the same
    given        {name: text} of files at GIVEN
    placed       {path in the repository: text}: put at the file's end, or into a new one, and no part of the answer
    shows        folders and files of this machine that it sees, read-only, at their own paths
    relay        a folder of this machine that it sees at RELAY; None: none
    before       a line for bash that runs before the command, in the same shell
    variables    further environment variables
    """

    timeout_s: float
    given: Mapping[str, str] = field(default_factory=dict)
    placed: Mapping[str, str] = field(default_factory=dict)
    shows: tuple[str, ...] = ()
    relay: str | None = None
    before: str = ":"
    variables: Mapping[str, str] = field(default_factory=dict)
