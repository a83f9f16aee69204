"""The summary of a day."""

from pathlib import Path

from weatherwire.collect import Collection


def row(collection: Collection, station: str) -> str:
    temps = collection.values(station, "temp")
    if not temps:
        return f"{station}: no temperature"
    return f"{station}: {min(temps):.1f} to {max(temps):.1f}, {len(temps)} reports"


def daily(collection: Collection, path: Path) -> None:
    lines = [row(collection, station) for station in collection.stations()]
    Path(path).write_text("".join(line + "\n" for line in lines), encoding="ascii", errors="replace")
