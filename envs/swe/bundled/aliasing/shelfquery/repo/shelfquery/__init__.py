from shelfquery.catalogue import Catalogue

__all__ = ["Catalogue"]
