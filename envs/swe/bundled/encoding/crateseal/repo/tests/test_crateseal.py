import pytest

from crateseal.__main__ import main
from crateseal.lines import from_text, to_text
from crateseal.seal import check, seal


@pytest.fixture
def crate(tmp_path):
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "1.dng").write_bytes(b"one")
    (tmp_path / "read me.txt").write_bytes(b"hello")
    return tmp_path


def test_as_sealed(crate):
    assert seal(crate) == 2
    assert check(crate)["same"] == ["raw/1.dng", "read me.txt"]


def test_differences(crate):
    seal(crate)
    (crate / "raw" / "1.dng").write_bytes(b"two")
    (crate / "read me.txt").rename(crate / "readme.txt")
    assert check(crate) == {"same": [], "changed": ["raw/1.dng"], "missing": ["read me.txt"], "new": ["readme.txt"]}


def test_lines():
    digests = {"b": "22", "a c": "11"}
    assert to_text(digests) == "11  a c\n22  b\n"
    assert from_text(to_text(digests)) == digests


def test_command(crate, capsys):
    assert main(["seal", str(crate)]) == 0
    assert main(["check", str(crate)]) == 0
    assert "2 files as sealed" in capsys.readouterr().out
    (crate / "more").write_bytes(b"")
    assert main(["check", str(crate)]) == 1
    assert capsys.readouterr().out == "new: more\n"
