"""ScienceWorld: science experiments as a text game."""
