"""Puts one nested dict over another."""


def merge(under, over):
    """`under` with what `over` says instead; dicts are merged, everything else is replaced."""
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(under.get(key), dict):
            merge(under[key], value)
        else:
            under[key] = value
    return under


def differences(under, over):
    """The smallest dict that, put over `under`, gives `over`."""
    found = {}
    for key, value in over.items():
        if key not in under:
            found[key] = value
        elif isinstance(value, dict) and isinstance(under[key], dict):
            if inner := differences(under[key], value):
                found[key] = inner
        elif under[key] != value:
            found[key] = value
    return found
