"""reasoning-gym: generated puzzles."""
