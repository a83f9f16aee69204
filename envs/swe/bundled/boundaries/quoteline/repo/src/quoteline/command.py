import sys
from pathlib import Path

from quoteline.place import parse_place
from quoteline.select import select


def render(rows):
    """Right-aligned numbers, a bar, the line."""
    width = max((len(str(number)) for number, _ in rows), default=0)
    return "".join(f"{number:>{width}} | {line}".rstrip() + "\n" for number, line in rows)


def main(argv=None):
    places = [parse_place(word) for word in (sys.argv[1:] if argv is None else argv)]
    if not places:
        print("usage: quoteline FILE:START-END ...", file=sys.stderr)
        return 2
    blocks = [render(select(Path(place.file).read_text(encoding="utf-8"), place)) for place in places]
    print("\n".join(blocks), end="")
    return 0
