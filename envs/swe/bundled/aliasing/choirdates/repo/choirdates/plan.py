"""The printed plan."""


def plan(season):
    lines = []
    for date in season.dates:
        lines.append(f"{date.day:%d.%m.} {date.kind}: {', '.join(date.programme) or 'to be announced'}")
        if date.absent:
            lines.append(f"       without {', '.join(sorted(date.absent))}")
    return "\n".join(lines)
