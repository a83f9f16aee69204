"""The bank in PostgreSQL with pgvector, for many writers on many hosts."""
