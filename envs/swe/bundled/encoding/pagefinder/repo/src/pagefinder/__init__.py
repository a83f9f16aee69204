from pagefinder.index import Index

__all__ = ["Index"]
