from housebus import Bus
from housebus.devices import BatteryWatch, Fahrenheit


def test_publish():
    bus, seen = Bus(), []
    bus.subscribe("kitchen/*", lambda topic, message: seen.append((topic, message["celsius"])))
    assert bus.publish("kitchen/temperature", {"celsius": 21.5}) == 1
    assert bus.publish("cellar/temperature", {"celsius": 9}) == 0
    assert seen == [("kitchen/temperature", 21.5)]


def test_history():
    bus = Bus(keep=2)
    for celsius in (1, 2, 3):
        bus.publish("roof", {"celsius": celsius})
    assert bus.history.all("roof") == [{"celsius": 2}, {"celsius": 3}]
    assert bus.history.last("cellar") is None


def test_unsubscribe():
    bus, display = Bus(), Fahrenheit()
    bus.subscribe("**", display)
    bus.unsubscribe(display)
    assert bus.publish("kitchen", {"celsius": 10}) == 0


def test_devices():
    bus, display, watch = Bus(), Fahrenheit(), BatteryWatch()
    bus.subscribe("kitchen", display)
    bus.subscribe("**", watch)
    bus.publish("kitchen", {"celsius": 20, "sensor": {"id": 7, "battery": 5}})
    assert display.text == "68 F"
    assert watch.low == {7}
