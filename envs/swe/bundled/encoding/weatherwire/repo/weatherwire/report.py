"""One report."""

from dataclasses import dataclass, field


@dataclass
class Report:
    station: str
    values: dict[str, float] = field(default_factory=dict)


def parse(data: bytes) -> Report:
    """A report from the wire; ValueError if it is none."""
    report = None
    for line in data.decode("ascii").splitlines():
        word, _, rest = line.strip().partition(" ")
        if word == "station":
            report = Report(rest.strip())
        elif word:
            if report is None:
                raise ValueError("a report begins with its station")
            report.values[word] = float(rest)
    if report is None:
        raise ValueError("an empty report")
    return report
