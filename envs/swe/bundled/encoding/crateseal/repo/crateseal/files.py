"""The files of a folder."""

import hashlib
import os
from pathlib import Path

SEAL = "SEAL"


def digests(folder):
    """{path: SHA-256} of every file below a folder but its seal."""
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            if path != Path(folder, SEAL):
                found[os.path.relpath(path, folder)] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found
