"""Where a model's commands run, and never anywhere else.

    box = make_sandbox("bwrap", Limits())
    box.check()                          # UserError where it cannot be had
    box.open(source)                     # a copy of a folder, or an image, at /testbed
    ran = box.run("ls", timeout_s=60)    # each command in a bash of its own
    box.close()

bwrap: namespaces of the kernel, no daemon, no image (sandbox_bubblewrap.py). docker, podman: an image that holds the
repository (sandbox_container.py).
"""

from __future__ import annotations

from core.errors import UserError
from envs.swe.bubblewrap import Bubblewrap
from envs.swe.container import Container
from envs.swe.sandbox import Limits, Sandbox

KINDS = ("bwrap", "docker", "podman")


def make_sandbox(kind: str, limits: Limits) -> Sandbox:
    """One of KINDS, not yet opened. There is no sandbox that is none."""
    if kind not in KINDS:
        raise UserError(f"env.sandbox={kind}: choose {', '.join(KINDS[:-1])} or {KINDS[-1]}.")
    return Bubblewrap(limits=limits) if kind == "bwrap" else Container(program=kind, limits=limits)
