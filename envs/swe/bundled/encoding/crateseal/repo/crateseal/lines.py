"""The seal as text."""


def to_text(digests):
    return "".join(f"{digest}  {path}\n" for path, digest in sorted(digests.items()))


def from_text(text):
    digests = {}
    for line in text.splitlines():
        if line:
            digest, path = line.split("  ", 1)
            digests[path] = digest
    return digests
