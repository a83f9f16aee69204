"""Retrieval policies of the systems beside the paper, one a file; the paper's own is core/memory/policies/base.py."""
