"""The command."""

import sys

from crateseal.seal import check, seal


def main(argv):
    if len(argv) != 2 or argv[0] not in ("seal", "check"):
        print("usage: python -m crateseal seal|check FOLDER", file=sys.stderr)
        return 2
    command, folder = argv
    if command == "seal":
        print(f"{folder}: {seal(folder)} files sealed")
        return 0
    report = check(folder)
    for word, paths in report.items():
        if word != "same":
            print("".join(f"{word}: {path}\n" for path in paths), end="")
    if any(report[word] for word in ("changed", "missing", "new")):
        return 1
    print(f"{folder}: {len(report['same'])} files as sealed")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
