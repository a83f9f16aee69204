from datetime import timedelta

import pytest

from hostconf import Settings, SettingsError


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "server.conf"
        path.write_text(text)
        return path

    return write


def test_types(write):
    settings = Settings.load(write("port = 90 ; low\ncompress = NO\nkeepalive = 2.5\n"))
    assert settings["port"] == 90
    assert settings["compress"] is False
    assert settings["keepalive"] == timedelta(seconds=2.5)


def test_left_out(write):
    assert Settings.load(write("\n; nothing\n"))["workers"] == 4


def test_reload(write):
    settings = Settings.load(write("port = 90\nworkers = 2\n"))
    write("port = 91\n")
    settings.reload()
    assert (settings["port"], settings["workers"]) == (91, 4)


def test_unknown_name(write):
    with pytest.raises(SettingsError, match="line 2: unknown setting 'prot'"):
        Settings.load(write("\nprot = 90\n"))


def test_no_equals(write):
    with pytest.raises(SettingsError, match="no = in 'port 90'"):
        Settings.load(write("port 90\n"))
