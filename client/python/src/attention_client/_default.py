"""The client of the adapters' calls that name none."""

from __future__ import annotations

import inspect
import threading
from typing import Any

from attention_client.backend import AttentionBackend
from attention_client.errors import InvalidArgumentError

_lock = threading.Lock()
_default: Any = None


def set_client(client: Any) -> None:
    """What computes from now on, where a call names no client of its own.

    Until then, and after None: AttentionBackend(), which is the server at
    $ATTENTION_SERVER, an Engine where that is "local", else 127.0.0.1:8001.
    """
    global _default
    checked(client)
    with _lock:
        _default = client


def checked(client: Any) -> Any:
    """client, where it is one, or None."""
    attend = getattr(client, "attend", None)
    is_client = (
        callable(attend)
        and not inspect.isclass(client)
        and not inspect.iscoroutinefunction(attend)
    )
    if client is not None and not is_client:
        raise InvalidArgumentError(
            f"client: {client!r} (expected a client, such as "
            "Client('127.0.0.1:8001'), or an Engine)"
        )
    return client


def default_client() -> Any:
    """The client that set_client has set."""
    global _default
    with _lock:
        if _default is None:
            _default = AttentionBackend()
        return _default
