"""Reports, grouped by station."""

from weatherwire.report import Report, parse


class Collection:
    def __init__(self) -> None:
        self.reports: dict[str, list[Report]] = {}

    def receive(self, data: bytes) -> None:
        report = parse(data)
        self.reports.setdefault(report.station, []).append(report)

    def stations(self) -> list[str]:
        return sorted(self.reports)

    def values(self, station: str, name: str) -> list[float]:
        return [report.values[name] for report in self.reports.get(station, ()) if name in report.values]
