"""From a title to the name of a file."""

import re


def file_name(title):
    """Lower case, with a dash where there is anything else than letters and digits."""
    text = title.lower().encode("ascii", "ignore").decode("ascii")
    return re.sub(r"[\W_]+", "-", text).strip("-") + ".md"
