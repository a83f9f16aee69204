"""Reports of weather stations."""
