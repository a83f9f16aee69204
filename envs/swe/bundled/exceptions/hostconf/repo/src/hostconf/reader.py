"""Lines to values."""

from hostconf.errors import SettingsError
from hostconf.known import TYPES


def pairs(text):
    """(line number, name, text) of each line that sets something."""
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.partition(";")[0].strip()
        if line:
            name, equals, value = line.partition("=")
            if not equals:
                raise SettingsError(f"line {number}: there is no = in {line!r}")
            yield number, name.strip(), value.strip()


def convert(number, name, value):
    try:
        kind = TYPES[name]
    except KeyError as error:
        raise SettingsError(f"line {number}: unknown setting {name!r}") from error
    return kind(value)
