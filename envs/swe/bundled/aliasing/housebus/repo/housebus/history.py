"""What has been said."""

from collections import defaultdict, deque


class History:
    def __init__(self, keep):
        self.topics = defaultdict(lambda: deque(maxlen=keep))

    def record(self, topic, message):
        self.topics[topic].append(message)

    def last(self, topic):
        """The last message of a topic, None if there was none."""
        said = self.topics.get(topic)
        return said[-1] if said else None

    def all(self, topic):
        """The messages kept of a topic, the oldest first."""
        return list(self.topics.get(topic, ()))
