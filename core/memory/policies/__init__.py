"""Retrieval policies (`retrieval=NAME`), one file each. The paper's is cosine.py.

To add one, subclass `Ranking` (base.py) in a new file here and add config/retrieval/NAME.yaml (CONTRIBUTING.md).
"""
