"""Which word is on which page."""

from collections import Counter, defaultdict

from pagefinder.pages import pages
from pagefinder.words import words


class Index:
    def __init__(self):
        self.places = defaultdict(set)
        self.counts = Counter()

    @classmethod
    def of_folder(cls, folder):
        index = cls()
        for name, text in pages(folder):
            index.add(name, text)
        return index

    def add(self, name, text):
        for word in words(text):
            self.places[word].add(name)
            self.counts[word] += 1

    def search(self, query):
        """The names of the pages with all words of a query."""
        found = [self.places.get(word, set()) for word in words(query)]
        return sorted(set.intersection(*found)) if found else []

    def most_common(self, count):
        return self.counts.most_common(count)
