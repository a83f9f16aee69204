"""All carriers side by side."""

from parcelrate.quote import FOLDER, NoRate, quote


def carriers():
    return sorted(path.stem for path in FOLDER.glob("*.txt"))


def offers(grams, zone):
    """[(price, carrier), ...] of those who take such a parcel, the cheapest first."""
    found = []
    for carrier in carriers():
        try:
            found.append((quote(carrier, grams=grams, zone=zone), carrier))
        except NoRate:
            continue
    return sorted(found)


def cheapest(grams, zone):
    """(carrier, price), the first in the alphabet of equals."""
    found = offers(grams, zone)
    if not found:
        raise NoRate(f"nobody takes {grams} g, zone {zone}")
    price, carrier = found[0]
    return carrier, price
