from plughost import Plugin, discover, loadable, newest
from plughost.versions import Version


def test_versions():
    assert Version("1.2") == Version("1.2.0")
    assert Version("1.9") < Version("1.10")


def test_discover(write):
    folder = write(name="spellcheck", version="3.1", host="1.2 to 2.0")
    assert discover(folder) == [Plugin("spellcheck", "3.1", "1.2 to 2.0")]


def test_newest_plugin_wins():
    old, new = Plugin("themes", "1.9"), Plugin("themes", "1.10")
    assert loadable("1.0", [new, old]) == [new]


def test_from_to():
    plugin = Plugin("spellcheck", "3.1", "1.2 to 2.0")
    assert [plugin.runs_on(host) for host in ("1.1.9", "1.3.1", "2.1")] == [False, True, False]


def test_series():
    assert newest(["1.3", "1.4", "1.4.2", "1.5"], "1.4") == "1.4.2"


def test_none():
    assert newest(["1.3"], "2.0 to 3.0") is None
