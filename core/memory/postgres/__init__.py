"""The PostgreSQL backend, with pgvector: for many writers on many hosts."""
