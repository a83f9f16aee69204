"""The write filter (guard.py) and its checks: secrets, personal data, copied lessons, injected instructions."""
