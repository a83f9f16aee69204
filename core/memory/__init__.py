"""The memory bank: SQLite is the truth (store), FAISS a rebuildable cache (search), bank the facade."""
