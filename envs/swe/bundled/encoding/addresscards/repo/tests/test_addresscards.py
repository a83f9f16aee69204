import pytest

from addresscards import AddressBook

CSV = "name,phone,street,town\nAnn Otto,12,Quay 1,Kiel\nZoë Lund,,Mill Road 4, Åmål\n"


@pytest.fixture
def book(tmp_path):
    path = tmp_path / "contacts.csv"
    path.write_text(CSV, encoding="utf-8")
    return AddressBook.read(path)


def test_read(book):
    assert book.names() == ["Ann Otto", "Zoë Lund"]
    assert book.find("Zoë Lund").town == "Åmål"
    assert book.find("Zo") is None


def test_card(book):
    assert book.card("Ann Otto").splitlines()[1:4] == [
        "| Ann Otto" + " " * 22 + " |",
        "| Quay 1" + " " * 24 + " |",
        "| Kiel" + " " * 26 + " |",
    ]


def test_no_card(book):
    with pytest.raises(LookupError, match="no card for Bo"):
        book.card("Bo")


def test_write(book, tmp_path):
    book.write(tmp_path / "out.csv")
    assert AddressBook.read(tmp_path / "out.csv").contacts == book.contacts
