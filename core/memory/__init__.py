"""The memory bank (bank.py). store/ is what both databases share; sqlite/ and postgres/ are the two, each with search.

In SQLite the bank's file is the truth and the vector index a cache that is rebuilt from it. policies/ (retrieval),
hygiene/ (write filter) and consolidation/ are plug-ins; formats/ imports and exports.
"""
