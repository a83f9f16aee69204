"""Consolidation of stored records (`memory.consolidate`): one policy per file, run by the Consolidator."""
