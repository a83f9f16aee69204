"""What the SQLite and PostgreSQL backends share: their interface (contract.py), changes, the schema and the queue."""
