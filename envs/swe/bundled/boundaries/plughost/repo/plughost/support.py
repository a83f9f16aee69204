"""What a plugin says about the hosts that it supports."""

from .versions import Version


class Anything:
    def accepts(self, version):
        return True


class Series:
    """One release and its patches."""

    def __init__(self, text):
        self.numbers = Version(text).numbers

    def accepts(self, version):
        return version.numbers[: len(self.numbers)] == self.numbers


class FromTo:
    def __init__(self, low, high):
        self.low, self.high = Version(low), Version(high)

    def accepts(self, version):
        return self.low < version <= self.high


def parse_support(text):
    """An object with `accepts(version)`."""
    text = text.strip()
    if text == "any":
        return Anything()
    low, found, high = text.partition(" to ")
    return FromTo(low, high) if found else Series(text)
