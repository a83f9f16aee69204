"""How much memory, disk and how many files a command in bubblewrap uses, with all that it started.

The kernel has no limit for these that everybody may set, so they are measured while the command runs and after it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from core.errors import InfraError
from envs.swe.cgroup import MemoryGroup
from envs.swe.sandbox import FREE_MB, Limits

FREE_FILES = 2000  # on the disk that is written to, as FREE_MB; with fewer nothing goes on
LOOK_S = 10.0  # to measure what a running command wrote: it may be writing faster than it can be counted
MEASURE_S = 60.0  # likewise, when nothing runs: for which it takes longer is a machine that is too slow
UNMEASURED = "unmeasured"  # what a watch says where it could not find out in time


class TooSlow(InfraError):
    """The size of a sandbox's files could not be measured in time."""


@dataclass(kw_only=True)
class UsageWatch:
    """Called while the command runs: the limit that it has passed, UNMEASURED where that cannot be found out, or "".

    root     the first process of the sandbox: all others descend from it
    folder   contains all that the command can write to
    before   (bytes, files) in the folder before the command began
    group    of the sandbox; kills: how many of its processes had been killed when the command began
    """

    limits: Limits
    root: int
    folder: Path
    before: tuple[int, int]
    group: MemoryGroup | None = None
    kills: int = 0

    def __call__(self) -> str:
        if self.starved() or resident(self.root) > self.limits.memory_mb << 20:
            return "memory"
        try:
            return self.written(usage(self.folder, LOOK_S))
        except TooSlow:  # by the command or by the machine: known when the command has ended
            return UNMEASURED

    def starved(self) -> bool:
        """Whether the kernel has killed a process of the command, as the sandbox's group had no memory left."""
        return self.group is not None and self.group.kills() > self.kills

    def written(self, used: tuple[int, int]) -> str:
        """Which of the two limits of the folder is passed. Raises InfraError where none is, and the disk is full."""
        over = passed(self.limits, used, self.before)
        if not over:
            check_room(self.folder)
        return over


def passed(limits: Limits, used: tuple[int, int], allowed: tuple[int, int]) -> str:
    """disk | files, or "" where bytes and files are within the limits, or no more than what is allowed anyway."""
    most = (limits.disk_mb << 20, limits.files)
    over = [now > max(limit, least) for now, limit, least in zip(used, most, allowed, strict=True)]
    return "disk" if over[0] else "files" if over[1] else ""


def check_room(folder: Path) -> None:
    """Raises InfraError where the disk of a folder is as good as full, whoever filled it."""
    try:
        disk = os.statvfs(folder)
    except OSError as error:
        raise InfraError(f"the sandbox is gone: {error.strerror}") from error
    if disk.f_bavail * disk.f_frsize < FREE_MB << 20:
        left = f"{FREE_MB} MB"
    elif disk.f_files and disk.f_favail < FREE_FILES:  # 0: of a file system without such a limit
        left = f"{FREE_FILES} files"
    else:
        return
    raise InfraError(f"this machine's disk is full: there is no room for {left} where sandboxes are (TMPDIR)")


def usage(folder: Path, timeout_s: float) -> tuple[int, int]:
    """(bytes, files) in a folder. Raises TooSlow where one of them takes longer than timeout_s to find out."""
    return measure(folder, "--block-size=1", timeout_s), measure(folder, "--inodes", timeout_s)


def measure(folder: Path, unit: str, timeout_s: float) -> int:
    """Run du, which follows no links and has no limit on depth."""
    words = ["du", "--summarize", "--one-file-system", unit, "--", str(folder)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        raise TooSlow(f"this machine is too slow: measuring a sandbox took longer than {timeout_s:g} s") from error
    except OSError as error:
        raise InfraError(f"du: {error}") from error
    return int((done.stdout.split() or ["0"])[0])


def resident(root: int) -> int:
    """Bytes in memory of a process and its descendants. What they share counts for each, and what they only share with
    each other, in whole: no process need have it in memory that has filled it."""
    rows = dict(processes())
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in rows.items():
        children.setdefault(parent, []).append(pid)
    total, todo = 0, [root]
    shared: dict[str, int] = {}  # {inode: bytes}
    while todo:
        pid = todo.pop()
        total += rows.get(pid, (0, 0))[1]
        for inode, size in shared_mappings(pid):
            shared[inode] = max(size, shared.get(inode, 0))
        todo += children.get(pid, ())
    return total * os.sysconf("SC_PAGE_SIZE") + sum(shared.values())


def shared_mappings(pid: int) -> Iterator[tuple[str, int]]:
    """(inode, bytes) of the memory that a process may share with its children, which Linux shows as a file."""
    with suppress(OSError):  # it has ended meanwhile
        for line in Path("/proc", str(pid), "maps").read_text("utf-8").splitlines():
            if line.endswith("/dev/zero (deleted)"):
                words = line.split()
                begin, end = (int(word, 16) for word in words[0].split("-"))
                yield words[4], end - begin


def processes() -> Iterator[tuple[int, tuple[int, int]]]:
    """(process id, (its parent's, pages in memory)) of all processes."""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError):  # it has ended meanwhile
                words = Path(entry.path, "stat").read_bytes().rpartition(b")")[2].split()
                yield int(entry.name), (int(words[1]), int(words[21]))
