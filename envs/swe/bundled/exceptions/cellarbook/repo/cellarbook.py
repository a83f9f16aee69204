"""Tanks, and moving wine from one to another."""

import tanks
from trouble import CellarError


class Cellar:
    def __init__(self):
        self.tanks = {}
        self.book = []

    def add_tank(self, name, capacity, litres=0, wine=None):
        if name in self.tanks:
            raise CellarError(f"there is a tank {name} already")
        self.tanks[name] = tanks.Tank(name, capacity, litres, wine)

    def tank(self, name):
        return self.tanks[name]

    def total(self, wine):
        return sum(tank.litres for tank in self.tanks.values() if tank.wine == wine)

    def rack(self, source, target, litres):
        """Moves wine; it may be blended with what is there."""
        wine, drawn = self.tank(source).draw(litres)
        self.book.append(f"{source}: {drawn} l out")
        self.tank(target).fill(wine, drawn)
        self.book.append(f"{target}: {drawn} l in")

    def bottle(self, name, bottles, size=0.75):
        """Fills bottles; how many litres it took."""
        _, drawn = self.tank(name).draw(bottles * size)
        self.book.append(f"{name}: {bottles} bottles")
        return drawn
