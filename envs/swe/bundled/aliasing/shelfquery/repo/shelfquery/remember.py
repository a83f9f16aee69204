"""Remembers answers."""


class Remembered:
    """A function of keywords whose answers are kept until `forget`."""

    def __init__(self, function):
        self.function = function
        self.answers = {}
        self.asked = 0

    def __call__(self, **words):
        key = tuple(sorted(words.items()))
        if key not in self.answers:
            self.asked += 1
            self.answers[key] = self.function(**words)
        return self.answers[key]

    def forget(self):
        self.answers.clear()
