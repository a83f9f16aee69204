import json
from dataclasses import dataclass
from pathlib import Path

from .support import parse_support
from .versions import Version


@dataclass(frozen=True)
class Plugin:
    name: str
    version: str
    host: str = "any"

    def runs_on(self, host):
        return parse_support(self.host).accepts(Version(host))


def discover(folder):
    """The plugins of a folder: every subfolder with a plugin.json."""
    files = sorted(Path(folder).glob("*/plugin.json"))
    return [Plugin(**json.loads(file.read_text(encoding="utf-8"))) for file in files]
