"""Scenarios: six jobs against simulated services, one file a job."""
