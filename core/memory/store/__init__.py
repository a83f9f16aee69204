"""The bank's truth: one SQLite file, its changes and their history, and a second copy beside it."""
