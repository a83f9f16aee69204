"""The box office's command."""

import argparse
import json
from pathlib import Path

from hall import Hall, Taken
from spans import Span

ROWS = {row: Span(1, 25) for row in "ABCDEFGH"}


def load(path):
    hall = Hall(ROWS)
    if path.exists():
        for row, party, start, end in json.loads(path.read_text(encoding="utf-8")):
            hall.reserve(party, row, start, end)
    return hall


def save(hall, path):
    rows = [[row, party, *span] for row, parties in hall.parties.items() for party, span in parties.items()]
    path.write_text(json.dumps(rows), encoding="utf-8")


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--file", type=Path, default=Path("seats.json"))
    commands = parser.add_subparsers(dest="command", required=True)
    reserve = commands.add_parser("reserve")
    reserve.add_argument("party")
    reserve.add_argument("row")
    reserve.add_argument("start", type=int)
    reserve.add_argument("end", type=int)
    free = commands.add_parser("free")
    free.add_argument("row")
    args = parser.parse_args(argv)
    hall = load(args.file)
    if args.command == "free":
        print(*hall.free(args.row), sep=", ")
        return 0
    try:
        hall.reserve(args.party, args.row, args.start, args.end)
    except Taken as taken:
        print(f"Sorry: {taken}.")
        return 1
    save(hall, args.file)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
