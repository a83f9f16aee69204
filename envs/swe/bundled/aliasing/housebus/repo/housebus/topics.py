"""Topics are words with slashes between them."""


def fits(pattern, topic):
    """Whether a topic is one of a pattern; a * is one word, a last ** any number of them."""
    patterns, words = pattern.split("/"), topic.split("/")
    if patterns[-1] == "**":
        patterns, words = patterns[:-1], words[: len(patterns) - 1]
    return len(patterns) == len(words) and all(one in ("*", word) for one, word in zip(patterns, words))
