import csv

import pytest
from termpool import Pool


@pytest.fixture
def pool(tmp_path):
    (tmp_path / "anna.tsv").write_text("bolt\tSchraube\nnut\tMutter\tnot Nuss\n", encoding="utf-8")
    (tmp_path / "li.tsv").write_text("nut\tMutter\n\nbolt\tBolzen\nwasher\tScheibe\n", encoding="utf-8")
    pool = Pool()
    assert pool.merge(tmp_path / "anna.tsv", by="anna") == 2
    assert pool.merge(tmp_path / "li.tsv", by="li") == 1
    return pool


def test_lookup(pool):
    assert pool.lookup("nut") == "Mutter"
    assert pool.lookup("screw") is None


def test_who(pool):
    assert pool.terms["nut"].by == ["anna", "li"]


def test_disputed(pool):
    assert pool.disputed() == ["bolt"]
    assert pool.terms["bolt"].others == ["Bolzen"]


def test_export(pool, tmp_path):
    pool.export(tmp_path / "pool.csv")
    with (tmp_path / "pool.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["source", "target", "by"]
    assert rows[2] == ["nut", "Mutter", "anna li"]
