"""A site of WebArena set up anew, by the control port that the images of webarena-verified have beside their own."""

from __future__ import annotations

import json
import urllib.request
from urllib.parse import urlsplit

from core.errors import InfraError

READY_S = 600.0  # for a site to be set up: GitLab takes minutes


def control_of(site: str, url: str) -> str:
    """The control port of a site at an address, as the images have it: its own + 1, of reddit - 1."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"{parts.scheme}://{parts.hostname}:{port + (-1 if site == 'reddit' else 1)}"


def reset_site(site: str, control: str) -> None:
    """POST /init, and wait for its answer {success, message}. Raises InfraError where that is no success."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(f"{control.rstrip('/')}/init", data=b"", method="POST")
    try:
        with direct.open(request, timeout=READY_S) as answer:
            told = json.loads(answer.read())
    except (OSError, ValueError) as error:
        raise InfraError(f"{site} cannot be reset by {control}/init: {error}") from error
    if not (isinstance(told, dict) and told.get("success")):
        raise InfraError(f"{site} cannot be reset by {control}/init: {str(told)[:200]}")
