"""How litellm is loaded, and the HTTP client that its calls go through."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

from core.starting import loading


def load_litellm() -> Any:
    """litellm, made to keep off the network and the terminal while it loads. Takes seconds the first time."""
    first = "litellm" not in sys.modules
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    os.environ.setdefault("LOGGING_EXECUTOR_MAX_THREADS", "1")  # of its own, for callbacks that we do not use
    with loading("litellm") if first else nullcontext():
        import litellm

    litellm.suppress_debug_info = True
    litellm.DEFAULT_MAX_RETRIES = 0  # else it takes the max_retries=0 of our embedding calls for 2
    if first:
        gc.freeze()  # its classes never go; looking through them all holds every call in flight for a sixth of a second
    return litellm


def http_client() -> Any:
    """An httpx client for many threads. A read timeout alone would let a server send one byte a second for ever."""
    import httpx

    class Bounded(httpx.SyncByteStream):
        def __init__(self, stream: Any, request: Any) -> None:
            self._stream, self._request = stream, request

        def __iter__(self) -> Iterator[bytes]:
            for chunk in self._stream:
                if time.monotonic() > self._request.extensions.get("deadline", float("inf")):
                    raise httpx.ReadTimeout("the answer took longer than the limit", request=self._request)
                yield chunk

        def close(self) -> None:
            self._stream.close()

    def begin(request: Any) -> None:
        if limit := request.extensions.get("timeout", {}).get("read"):
            request.extensions["deadline"] = time.monotonic() + limit

    def bound(response: Any) -> None:
        response.stream = Bounded(response.stream, response.request)

    return httpx.Client(
        event_hooks={"request": [begin], "response": [bound]},
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
        follow_redirects=True,
    )
