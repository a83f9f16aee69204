"""Prices."""

from pathlib import Path

from parcelrate.table import read_table

FOLDER = Path(__file__).parent / "carriers"


class NoRate(LookupError):
    """The carrier does not take such a parcel."""


def quote(carrier, *, grams, zone, extras=()):
    table = read_table((FOLDER / f"{carrier}.txt").read_text(encoding="utf-8"))
    for step in table.zones.get(zone, ()):
        if step.fits(grams):
            return step.price + sum(price_of_extra(table, carrier, name) for name in extras)
    raise NoRate(f"{carrier} has no rate for {grams} g, zone {zone}")


def price_of_extra(table, carrier, name):
    if name not in table.extras:
        raise NoRate(f"{carrier} has no {name}")
    return table.extras[name]
