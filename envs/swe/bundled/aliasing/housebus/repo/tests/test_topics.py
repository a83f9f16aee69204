from housebus import fits


def test_fits():
    assert fits("kitchen/lamp", "kitchen/lamp")
    assert fits("*/lamp", "kitchen/lamp")
    assert fits("kitchen/**", "kitchen/lamp/left")
    assert not fits("kitchen/*", "kitchen/lamp/left")
    assert not fits("kitchen", "cellar")
