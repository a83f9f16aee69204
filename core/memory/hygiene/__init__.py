"""Hygiene of what enters the bank: secrets and personal data out, injected instructions into quarantine."""
