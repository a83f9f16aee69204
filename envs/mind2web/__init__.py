"""Mind2Web: single steps on recorded web pages."""
