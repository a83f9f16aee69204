"""Templates."""

import re

FIELD = re.compile(r"\{(\w+)\}")


class Template:
    def __init__(self, text):
        self.text = text

    def fields(self):
        """The columns that it needs."""
        return sorted({name.lower() for name in FIELD.findall(self.text)})

    def render(self, row):
        return FIELD.sub(lambda match: self.value(match[1], row), self.text)

    def value(self, name, row):
        value = row[name.lower()]
        return value.upper() if name.isupper() else value
