"""The bus."""

from .history import History
from .topics import fits


class Bus:
    def __init__(self, keep=10):
        self.history = History(keep)
        self.subscribers = []

    def subscribe(self, pattern, function):
        """function(topic, message) is called for each message; the order is that of subscribing."""
        self.subscribers.append((pattern, function))

    def unsubscribe(self, function):
        self.subscribers = [(pattern, other) for pattern, other in self.subscribers if other is not function]

    def publish(self, topic, message):
        """How many were told."""
        self.history.record(topic, message)
        told = [function for pattern, function in self.subscribers if fits(pattern, topic)]
        for function in told:
            function(topic, message)
        return len(told)
