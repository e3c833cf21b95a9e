"""Why a client belongs to the process that has made it.

gRPC's threads do not cross os.fork(). What a child has inherited of gRPC is of no use
there: a call could wait without end, whatever its timeout, and so could letting go of
a channel. So in a child the calls of such clients are errors, and what it has inherited
stays as it is until the child ends. gRPC itself starts anew in a child, unless a thread
was inside it at the moment of the fork: then, the child has no clients at all.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from attention_client.errors import FailedPreconditionError

# Channels and streams that are there.
_open: weakref.WeakSet[Any] = weakref.WeakSet()
# What has threads inside gRPC: calls and streams, and AsyncClients that are open.
_under_way: set[object] = set()
_of_asyncio: weakref.WeakSet[Any] = weakref.WeakSet()
# Whether this process was forked while there were any.
_is_cut_off = False


def check_new() -> None:
    """FailedPreconditionError where this process can have no clients."""
    if _is_cut_off:
        raise _refused(
            "this process was forked amid calls of its parent",
            "a fork without calls or an open AsyncClient",
        )


def check(process: int) -> None:
    """FailedPreconditionError for what was made in another process than this one."""
    if process != os.getpid():
        raise _refused(
            "this client was made before this process was forked",
            "a client that is made in this process",
        )


def _refused(what: str, expected: str) -> FailedPreconditionError:
    return FailedPreconditionError(
        f"{what}, which gRPC does not survive (expected {expected}, or a process that "
        'multiprocessing\'s "spawn" or "forkserver" starts, to which clients can be '
        "passed)"
    )


def keep(channel: Any) -> None:
    """Has a channel outlast every child of this process."""
    _open.add(channel)


def keep_asyncio(client: Any, *, is_open: bool) -> None:
    """Has an AsyncClient count as a call that is under way."""
    (_of_asyncio.add if is_open else _of_asyncio.discard)(client)


@contextmanager
def under_way(stream: Any = None) -> Iterator[None]:
    """Of a call, or of a stream, which outlasts every child, too."""
    call = object()
    if stream is not None:
        _open.add(stream)
    _under_way.add(call)
    try:
        yield
    finally:
        _under_way.discard(call)


def _in_child() -> None:
    global _is_cut_off
    _is_cut_off = _is_cut_off or bool(_under_way) or len(_of_asyncio) > 0
    _under_way.clear()
    for of_grpc in list(_open):
        # Never freed, not even when the interpreter ends.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(of_grpc))


os.register_at_fork(after_in_child=_in_child)
