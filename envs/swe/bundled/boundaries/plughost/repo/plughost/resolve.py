from .support import parse_support
from .versions import Version


def loadable(host, plugins):
    """Of each name the newest plugin that runs on a host, sorted by name."""
    best = {}
    for plugin in plugins:
        if plugin.runs_on(host):
            known = best.get(plugin.name)
            if known is None or Version(known.version) < Version(plugin.version):
                best[plugin.name] = plugin
    return [best[name] for name in sorted(best)]


def newest(hosts, support):
    """The newest of several host versions that a plugin's line "host" supports; None if there is none."""
    good = [host for host in hosts if parse_support(support).accepts(Version(host))]
    return max(good, key=Version, default=None)
