"""The words of a call of bubblewrap: what of this machine a sandbox shows, as whom a command runs, whether it works."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from core.errors import UserError
from envs.swe.sandbox import ENVIRONMENT
from envs.swe.seccomp import filter_file

ROOT = Path(__file__).resolve().parents[2]
TOOLS = "/opt/tools"  # pytest, as a library
SCRIPTS = "/opt/scripts"  # pytest, as a program
PYTHON = "/opt/python"  # the interpreter, where it does not lie in /usr
SHM_MB = 64
OLDEST = (0, 8)
APT = "apt-get install -y bubblewrap"
FILTER = 9  # the descriptor from which bubblewrap reads the filter of system calls


def enter(uid: int, own: list[str]) -> list[str]:
    """The words that run what follows them in a sandbox. uid: as whom, where we are root. own: further options."""
    # A file anew for each, as a reader moves on in it: /proc opens it from its beginning.
    opened = ["sh", "-c", f'exec {FILTER}< /proc/{os.getpid()}/fd/{filter_file()}; exec "$@"', "sh"]
    # fmt: off
    words = [
        *opened, shutil.which("bwrap") or "bwrap", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts",
        "--unshare-cgroup-try", "--die-with-parent", "--new-session", "--clearenv", "--hostname", "testbed",
        *system(),
        "--proc", "/proc", "--dev", "/dev", "--size", str(SHM_MB << 20), "--tmpfs", "/dev/shm", *own,
        "--remount-ro", "/dev", "--remount-ro", "/", "--cap-drop", "ALL",
    ]
    if os.geteuid() != 0:
        return [*words, "--unshare-user", "--disable-userns", "--seccomp", str(FILTER), "--"]
    # The kernel limits no process of root, in whatever namespace: so first an ordinary user, then his own namespace.
    return [
        *words, "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_SETPCAP", "--",
        "setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all", "--",
        "bwrap", "--unshare-user", "--disable-userns", "--die-with-parent",
        "--bind", "/", "/", "--dev-bind", "/dev", "/dev", "--seccomp", str(FILTER), "--",
    ]
    # fmt: on


@cache
def system() -> tuple[str, ...]:
    """Options: the programs of this machine, our interpreter and pytest, read-only; the environment variables.

    Left out is what lies among them and is none of them: installed libraries, this project, the user's own folders.
    """
    words = ["--ro-bind", "/usr", "/usr"]
    for name in ("/etc", "/opt", "/opt/bin", TOOLS):  # of a folder that it makes by itself bwrap bars all other users
        words += ["--dir", name]
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        place = Path("/", name)
        if place.is_symlink():
            words += ["--symlink", str(place.readlink()), str(place)]
        elif place.is_dir():
            words += ["--ro-bind", str(place), str(place)]
    for name in ("/etc/alternatives", "/etc/ld.so.cache", "/etc/localtime"):
        words += ["--ro-bind-try", name, name]
    base = Path(sys.base_prefix).resolve()
    inside = base if base.is_relative_to("/usr") else Path(PYTHON)
    if inside != base:
        words += ["--ro-bind", str(base), PYTHON]
    covered = [inside / each.relative_to(base) if each.is_relative_to(base) else each for each in hidden(base)]
    for option in ("--tmpfs", "--remount-ro"):  # else each is room to write for a user who is not root
        words += [word for place in covered for word in (option, str(place))]
    for name, path in tools().items():
        words += ["--ro-bind", str(path), f"{TOOLS}/{name}"]
    python = f"{inside}/bin/python{sys.version_info[0]}.{sys.version_info[1]}"
    for name in ("python", "python3"):
        words += ["--symlink", python, f"/opt/bin/{name}"]
    variables = {"HOME": "/tmp", "PYTHONPATH": TOOLS, "PATH": f"/opt/bin:{SCRIPTS}:/usr/local/bin:/usr/bin:/bin"}
    if inside != base and sysconfig.get_config_var("Py_ENABLE_SHARED"):
        variables["LD_LIBRARY_PATH"] = f"{PYTHON}/lib"
    for name, value in {**ENVIRONMENT, **variables}.items():
        words += ["--setenv", name, value]
    return tuple(words)


def hidden(base: Path) -> list[Path]:
    """Folders in /usr and in the interpreter's that a command must not read, outer ones first.

    They hold the answers of tasks where this project lies or is installed there, and runs, banks and keys of the user.
    """
    paths = sysconfig.get_paths(vars={"base": str(base), "platbase": str(base)})
    places = [Path(each[name]) for each in (paths, sysconfig.get_paths()) for name in ("purelib", "platlib")]
    places += [*Path("/usr/lib/python3").glob("dist-packages"), *Path("/usr/local/lib").glob("python3*/*-packages")]
    places += [ROOT, Path.cwd(), Path.home()]
    needed = [Path("/usr", name) for name in ("bin", "sbin", "lib", "lib64", "share", "local/bin", "local/lib")]
    shown = [Path("/usr"), base]
    return sorted(
        place
        for place in {each.resolve() for each in places}
        if place.is_dir()
        and any(place.is_relative_to(each) for each in shown)
        and not any(each.is_relative_to(place) for each in (*shown, *needed))
    )


def tools() -> dict[str, Path]:
    """{name: path} of the files and folders, in the libraries' folder, of pytest and of what it requires."""
    try:
        from packaging.requirements import Requirement  # a requirement of pytest

        found: dict[str, Path] = {}
        todo, seen = ["pytest"], set()
        while todo:
            name = todo.pop()
            if name in seen:
                continue
            seen.add(name)
            package = distribution(name)
            wanted = map(Requirement, package.requires or ())
            todo += [each.name for each in wanted if each.marker is None or each.marker.evaluate({"extra": ""})]
            for top in {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
                found[top] = Path(package.locate_file(top)).resolve()
    except (ImportError, PackageNotFoundError) as error:
        raise UserError("env.sandbox=bwrap needs pytest, which runs the tests: pip install pytest") from error
    return {name: path for name, path in sorted(found.items()) if path.exists()}


@cache
def check_bubblewrap() -> None:
    """Raises UserError where bubblewrap is missing, too old, or not allowed to work here."""
    if not sys.platform.startswith("linux"):
        raise UserError("env.sandbox=bwrap needs Linux: what a model writes is run in bubblewrap.")
    if shutil.which("bwrap") is None:
        raise UserError(f"env.sandbox=bwrap: bubblewrap is not installed: {APT}")
    version = subprocess.run(["bwrap", "--version"], capture_output=True, text=True, check=False).stdout.split()[-1:]
    if tuple(int(number) for number in "".join(version).split(".")[:2] if number.isdigit()) < OLDEST:
        raise UserError(f"env.sandbox=bwrap: bubblewrap 0.8 or newer is needed, this is {''.join(version)}: {APT}")
    with tempfile.TemporaryDirectory() as empty:
        words = [*enter(65_000, ["--bind", empty, "/tmp"]), "python", "-m", "pytest", "--version"]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, env={})
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no reason given"]
        raise UserError(
            f"env.sandbox=bwrap: bubblewrap cannot work here ({said[0]}). It needs user namespaces, which a container "
            "or a setting of the system may forbid."
        )
