"""Profiles of the museum's kiosks."""

from .fleet import Fleet

__all__ = ["Fleet"]
