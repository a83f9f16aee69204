"""What can be wrong with settings."""


class SettingsError(Exception):
    pass
