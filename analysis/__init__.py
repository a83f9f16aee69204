"""Finished runs, read: cells, statistics, tables, plots, the audit and the report. Nothing here writes to a run."""
