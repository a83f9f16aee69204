"""A control group for a sandbox, where this user may make one: the kernel counts and limits all memory used in it, also
such as belongs to no process. As a rule that is so for root, and where systemd has left a group to the user."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
# {limit: (limit together with swap, or of swap; file that counts what was killed)} of version 2 and of version 1
FILES = {
    "memory.max": ("memory.swap.max", "memory.events"),
    "memory.limit_in_bytes": ("memory.memsw.limit_in_bytes", "memory.oom_control"),
}


@dataclass(frozen=True)
class MemoryGroup:
    """folder: of the group; events: the name of the file in it that counts what the kernel has killed."""

    folder: Path
    events: str

    def enter(self) -> list[str]:
        """The words that run what follows them in the group."""
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self.folder / "cgroup.procs")]

    def kills(self) -> int:
        """How many processes were killed so far because the group had no memory left."""
        with suppress(OSError):  # another thread has closed it
            lines = map(str.split, (self.folder / self.events).read_text("utf-8").splitlines())
            return sum(int(line[1]) for line in lines if line[0] == "oom_kill")
        return 0

    def close(self) -> None:
        """Remove it, once the processes in it are gone."""
        for _ in range(20):
            with suppress(OSError):
                self.folder.rmdir()
            if not self.folder.exists():
                break
            time.sleep(0.05)


def memory_group(name: str, memory: int) -> MemoryGroup | None:
    """A new group of this name that may use so many bytes; None where none can be made."""
    for line in Path("/proc/self/cgroup").read_text("utf-8").splitlines() if MOUNT.is_dir() else ():
        _, controllers, own = line.split(":", 2)
        if "memory" in controllers.split(",") or not controllers:
            place = MOUNT / ("memory" if controllers else "") / own.strip("/")
            # of version 2, a group with processes has no groups with limits below it, but has them beside it
            for parent in (place, place.parent):
                if (made := _made(parent / name, memory)) is not None:
                    return made
    return None


def _made(folder: Path, memory: int) -> MemoryGroup | None:
    with suppress(OSError):
        folder.mkdir()
        for limit, (swap, events) in FILES.items():
            if (folder / limit).is_file():
                with suppress(OSError):
                    (folder / limit).write_bytes(b"%d" % memory)
                    with suppress(OSError):  # of a kernel that counts no swap
                        (folder / swap).write_bytes(b"0" if limit == "memory.max" else b"%d" % memory)
                    return MemoryGroup(folder, events)
        folder.rmdir()
    return None
