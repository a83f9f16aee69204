from datetime import date

import pytest

from choirdates import Date, Season
from choirdates.plan import plan

FIRST = date(2024, 9, 2)


def test_repeat():
    season = Season()
    season.repeat(Date(FIRST, "rehearsal"), weeks=3)
    assert [evening.day.day for evening in season.dates] == [2, 9, 16]


def test_sorted():
    season = Season()
    season.add(Date(date(2024, 12, 1), "concert"))
    season.add(Date(FIRST, "rehearsal"))
    assert [evening.kind for evening in season.dates] == ["rehearsal", "concert"]


def test_absences():
    season = Season()
    season.add(Date(FIRST, "rehearsal", absent=["Ruth"]))
    assert season.absences("Ruth") == [FIRST]
    assert season.absences("Paul") == []


def test_seats():
    assert Date(FIRST, "concert", drivers={"Ruth": ["Paul", "Ada"], "Jo": []}).seats() == 6


def test_nothing():
    with pytest.raises(LookupError, match="nothing on 2024-09-02"):
        Season().on(FIRST)


def test_plan():
    season = Season()
    season.add(Date(FIRST, "rehearsal", ["warm-up", "Bruckner"], ["Ruth", "Paul"]))
    season.add(Date(date(2024, 12, 1), "concert"))
    assert plan(season).splitlines() == [
        "02.09. rehearsal: warm-up, Bruckner",
        "       without Paul, Ruth",
        "01.12. concert: to be announced",
    ]
