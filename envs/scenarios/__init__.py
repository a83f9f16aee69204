"""Scenarios: six jobs against simulated services, a file for each, played by one engine."""
