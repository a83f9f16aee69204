from pathlib import Path

from hostconf.known import USUAL
from hostconf.reader import convert, pairs


class Settings:
    """The settings of one file."""

    def __init__(self, path):
        self.path = Path(path)
        self.values = dict(USUAL)

    @classmethod
    def load(cls, path):
        settings = cls(path)
        settings.reload()
        return settings

    def reload(self):
        """Read the file again."""
        self.values = dict(USUAL)
        for number, name, value in pairs(self.path.read_text(encoding="utf-8")):
            self.values[name] = convert(number, name, value)

    def __getitem__(self, name):
        return self.values[name]
