"""Rivals of ReasoningBank by their papers, each one file: what it learns of an attempt, and the bank it keeps it in."""
