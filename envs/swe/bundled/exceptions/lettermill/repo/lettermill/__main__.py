"""The command."""

import sys

from lettermill.errors import LetterError
from lettermill.mill import write_letters


def main(argv):
    if len(argv) != 3:
        print("usage: python -m lettermill TEMPLATE LIST FOLDER", file=sys.stderr)
        return 2
    try:
        written = write_letters(*argv)
    except LetterError as error:
        print(f"lettermill: {error}", file=sys.stderr)
        return 1
    print(f"{len(written)} letters")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
