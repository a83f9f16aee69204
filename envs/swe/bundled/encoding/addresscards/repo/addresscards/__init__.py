from addresscards.book import AddressBook

__all__ = ["AddressBook"]
