import pytest

from pagefinder import Index
from pagefinder.cite import cite


@pytest.fixture
def index(tmp_path):
    (tmp_path / "organ-fund.txt").write_text("The ORGAN of 1887,\npaid by Mrs Gray.", encoding="utf-8")
    (tmp_path / "minutes-1887.txt").write_text("1887: organ to be bought", encoding="utf-8")
    (tmp_path / "other.md").write_text("organ", encoding="utf-8")
    return Index.of_folder(tmp_path)


def test_search(index):
    assert index.search("Organ 1887") == ["minutes-1887", "organ-fund"]
    assert index.search("organ gray") == ["organ-fund"]
    assert index.search("piano") == index.search("") == []


def test_most_common(index):
    assert dict(index.most_common(2)) == {"1887": 2, "organ": 2}


def test_cite():
    assert cite("one\nTwo organs\n", "organs") == "Two organs"
    assert cite("x" * 70 + " organ", "organ") == "x" * 57 + "..."
    assert cite("one", "two") == ""
