"""The kiosks."""

from .base import BASE
from .merge import differences, merge


class Fleet:
    def __init__(self, base=BASE):
        self.base = base
        self.profiles = {}

    def add(self, kiosk, profile):
        """A kiosk and what it does differently."""
        if kiosk in self.profiles:
            raise ValueError(f"there is a kiosk {kiosk} already")
        self.profiles[kiosk] = merge(self.base, profile)

    def profile(self, kiosk):
        """All that a kiosk has to know."""
        return self.profiles[kiosk]

    def special(self, kiosk):
        """What a kiosk does differently."""
        return differences(self.base, self.profiles[kiosk])
