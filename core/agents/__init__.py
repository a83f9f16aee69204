"""Agents: the first messages of an attempt and how a reply is read; two agents that ask no model."""
