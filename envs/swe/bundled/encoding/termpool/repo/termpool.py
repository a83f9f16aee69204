"""The pool."""

from pathlib import Path

from export import export_csv
from term import Term


class Pool:
    def __init__(self):
        self.terms = {}

    def add(self, term):
        """Whether the term is new; of a known one the translators are added."""
        known = self.terms.get(term.source)
        if known is None:
            self.terms[term.source] = term
            return True
        if known.target == term.target:
            known.by.extend(name for name in term.by if name not in known.by)
        else:
            known.others.append(term.target)
        return False

    def merge(self, path, by):
        """Takes over a translator's file; how many terms are new."""
        new = 0
        for line in Path(path).read_text(encoding="utf-8").splitlines():
            if line.strip():
                source, target = (part.strip() for part in line.split("\t")[:2])
                new += self.add(Term(source, target, [by]))
        return new

    def lookup(self, source):
        term = self.terms.get(source)
        return term.target if term else None

    def disputed(self):
        return [term.source for term in self.terms.values() if term.others]

    def export(self, path):
        export_csv(sorted(self.terms.values(), key=lambda term: term.source), path)
