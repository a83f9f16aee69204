"""The bank's cache for search: FAISS indexes that follow the store."""
