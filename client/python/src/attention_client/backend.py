"""Where attention is computed: by a server, or in this process."""

from __future__ import annotations

import os
from typing import Any

from attention_client.client import Client

VARIABLE = "ATTENTION_SERVER"
LOCAL = "local"

_DEFAULT = "127.0.0.1:8001"


def AttentionBackend(where: str | None = None, **settings: Any) -> Any:
    """What computes at a place: a Client of a server, or "local", an Engine.

    where: "local", or a target as Client takes it; None: $ATTENTION_SERVER, else
    127.0.0.1:8001. settings: the Client's or the Engine's. An Engine is of the package
    attention-engine; its `attend` and its sequences are the Client's.

        with AttentionBackend("local") as attention:
            output = attention.attend(query, key, value).output
    """
    where = where or os.environ.get(VARIABLE) or _DEFAULT
    if where != LOCAL:
        return Client(where, **settings)
    try:
        from attention_engine import Engine
    except ModuleNotFoundError as error:
        if error.name != "attention_engine":
            raise
        raise ModuleNotFoundError(
            f"{LOCAL}: there is no package attention-engine (install the wheel that "
            "client/python-server/make-wheels makes, or name a server)",
            name=error.name,
        ) from None
    return Engine(**settings)
