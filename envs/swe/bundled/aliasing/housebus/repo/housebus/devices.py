"""Subscribers that many houses need."""


class Fahrenheit:
    """Shows a temperature to our American guests."""

    def __init__(self):
        self.text = ""

    def __call__(self, topic, message):
        message["celsius"] = message["celsius"] * 9 / 5 + 32
        self.text = f"{message['celsius']:.0f} F"


class BatteryWatch:
    def __init__(self, least=20):
        self.least = least
        self.low = set()

    def __call__(self, topic, message):
        sensor = message.get("sensor", {})
        if sensor.get("battery", 100) < self.least:
            self.low.add(sensor["id"])
