"""The SQLite backend: the bank's file, its journal file, migrations, repair, and search."""
