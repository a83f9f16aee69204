class LetterError(Exception):
    """No letters can be made of this."""
