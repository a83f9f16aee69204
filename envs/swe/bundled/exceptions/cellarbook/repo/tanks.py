"""One tank."""

from trouble import CellarError


class Tank:
    def __init__(self, name, capacity, litres=0, wine=None):
        self.name, self.capacity, self.litres, self.wine = name, capacity, litres, wine

    @property
    def room(self):
        return self.capacity - self.litres

    def draw(self, litres):
        """Takes wine out: (wine, litres)."""
        if litres > self.litres:
            raise CellarError(f"{self.name} has only {self.litres} l")
        self.litres -= litres
        wine = self.wine
        if self.litres == 0:
            self.wine = None
        return wine, litres

    def fill(self, wine, litres):
        if litres > self.room:
            raise CellarError(f"{self.name} has room for {self.room} l only")
        self.litres += litres
        self.wine = wine if self.wine in (None, wine) else f"{self.wine} / {wine}"
