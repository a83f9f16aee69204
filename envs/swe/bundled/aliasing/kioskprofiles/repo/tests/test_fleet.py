import pytest

from kioskprofiles import Fleet
from kioskprofiles.merge import differences, merge


def test_merge():
    under = {"a": 1, "b": {"c": 2, "d": 3}}
    assert merge(under, {"b": {"c": 5}, "e": 6}) == {"a": 1, "b": {"c": 5, "d": 3}, "e": 6}


def test_differences():
    assert differences({"a": 1, "b": {"c": 2, "d": 3}}, {"a": 1, "b": {"c": 5, "d": 3}}) == {"b": {"c": 5}}


def test_profile():
    fleet = Fleet({"screen": {"brightness": 60, "rotate": False}})
    fleet.add("hall", {"screen": {"brightness": 90}})
    assert fleet.profile("hall") == {"screen": {"brightness": 90, "rotate": False}}


def test_twice():
    fleet = Fleet({})
    fleet.add("hall", {})
    with pytest.raises(ValueError, match="hall already"):
        fleet.add("hall", {})
