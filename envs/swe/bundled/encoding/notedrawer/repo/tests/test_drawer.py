import pytest

from notedrawer import Drawer, file_name


@pytest.fixture
def drawer(tmp_path):
    drawer = Drawer(tmp_path / "notes")
    drawer.save("Shopping list", "eggs\n\nflour\n")
    return drawer


def test_names():
    assert file_name("Shopping list") == "shopping-list.md"
    assert file_name("  What's up, doc? (2)") == "what-s-up-doc-2.md"


def test_load(drawer):
    assert drawer.load("shopping LIST") == "eggs\n\nflour\n"
    assert drawer.titles() == ["Shopping list"]


def test_missing(drawer):
    with pytest.raises(FileNotFoundError):
        drawer.load("Chopping list")


def test_rename(drawer):
    drawer.rename("Shopping list", "Errands")
    assert drawer.load("errands") == "eggs\n\nflour\n"
    assert drawer.titles() == ["Errands"]


def test_save_again(drawer):
    drawer.save("Shopping list", "milk\n")
    assert drawer.load("Shopping list") == "milk\n"
