"""All contacts."""

import csv
from pathlib import Path

from addresscards.card import card
from addresscards.contact import COLUMNS, Contact


class AddressBook:
    def __init__(self, contacts=()):
        self.contacts = {}
        for contact in contacts:
            self.add(contact)

    @classmethod
    def read(cls, path):
        with Path(path).open(encoding="utf-8", newline="") as file:
            return cls(Contact.from_row(row) for row in csv.DictReader(file))

    def add(self, contact):
        """The later one of the same name counts."""
        self.contacts[contact.name] = contact

    def find(self, name):
        return self.contacts.get(name)

    def card(self, name):
        contact = self.find(name)
        if contact is None:
            raise LookupError(f"no card for {name}")
        return card(contact)

    def names(self):
        return sorted(self.contacts)

    def write(self, path):
        with Path(path).open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            writer.writerows([getattr(contact, name) for name in COLUMNS] for contact in self.contacts.values())
