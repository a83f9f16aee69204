from datetime import date

from cashbook import Entry, balance, by_account, read_book, report

TEXT = """
# spring
2024-03-12 groceries -5210
2024-03-15 wages 241000 March
2024-03-18 groceries -1290  # market
2024-02-11 rent -85000
"""


def test_read():
    book = read_book(TEXT)
    assert len(book) == 4
    assert book[0] == Entry(date(2024, 2, 11), "rent", -85000)
    assert book[2].remark == "March"


def test_balance():
    assert balance(read_book(TEXT), "2024-03-02", "2024-03-30") == 241000 - 5210 - 1290


def test_by_account():
    assert by_account(read_book(TEXT), "2024-02-01", "2024-03-14") == {"rent": -85000, "groceries": -5210}


def test_report():
    assert report(read_book(TEXT), "2024-03-10", "2024-03-14").splitlines() == [
        "2024-03-10 .. 2024-03-14",
        "groceries     -52.10",
        "total         -52.10",
    ]
