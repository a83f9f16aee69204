"""One contact."""

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Contact:
    name: str
    street: str = ""
    town: str = ""

    @classmethod
    def from_row(cls, row):
        known = {field.name for field in fields(cls)}
        return cls(**{key: value.strip() for key, value in row.items() if key in known and value})


COLUMNS = [field.name for field in fields(Contact)]
