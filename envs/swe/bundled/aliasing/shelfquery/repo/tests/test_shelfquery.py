import pytest

from shelfquery import Catalogue
from shelfquery.screen import show


def row(title, author, year, *subjects):
    return {"title": title, "author": author, "year": year, "subjects": list(subjects), "copies": 1}


@pytest.fixture
def catalogue():
    return Catalogue(
        [
            row("Solaris", "Lem", 1961, "ocean", "fiction"),
            row("Eden", "Lem", 1959, "fiction"),
            row("Endgames", "Speelman", 1981, "chess"),
        ]
    )


def test_find(catalogue):
    assert [found["title"] for found in catalogue.find(author="lem")] == ["Solaris", "Eden"]
    assert [found["title"] for found in catalogue.find(subject="chess", year=1981)] == ["Endgames"]
    assert catalogue.find(author="Borges") == []


def test_remembered(catalogue):
    catalogue.find(author="lem")
    catalogue.find(author="lem")
    assert catalogue.find.asked == 1


def test_add(catalogue):
    catalogue.find(author="lem")
    catalogue.add(row("Fiasco", "Lem", 1986, "fiction"))
    assert len(catalogue.find(author="lem")) == 3
    assert catalogue.copies() == 4


def test_show(catalogue):
    assert show(catalogue.find(author="lem")) == [
        "1961 Lem: Solaris [fiction, ocean]",
        "1959 Lem: Eden [fiction]",
    ]
