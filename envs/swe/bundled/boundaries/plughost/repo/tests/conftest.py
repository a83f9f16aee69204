import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))


@pytest.fixture
def write(tmp_path):
    def write(**fields):
        folder = tmp_path / f"{fields['name']}-{fields['version']}"
        folder.mkdir()
        (folder / "plugin.json").write_text(json.dumps(fields))
        return tmp_path

    return write
