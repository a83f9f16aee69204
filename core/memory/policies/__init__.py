"""Retrieval policies (`retrieval=`), one a file. The paper's own is cosine.py."""
