from hostconf.errors import SettingsError
from hostconf.settings import Settings

__all__ = ["Settings", "SettingsError"]
