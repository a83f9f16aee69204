"""The services of env=scenarios: one file a job, each a small state machine over base.py."""
