"""What is checked before a record is stored: secrets, personal data, copied lessons, injected instructions."""
