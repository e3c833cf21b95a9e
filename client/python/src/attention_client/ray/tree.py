"""Servers that ask others and merge what they answer, so that a client asks few.

Tree Attention, arXiv 2408.04093.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Sequence
from typing import TypeVar

from attention_client import _messages
from attention_client._wire import Message
from attention_client.errors import (
    AttentionError,
    FailedPreconditionError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnimplementedError,
)

# Servers that a client asks itself, all of them. Of more, the time that it takes for
# each is longer than a server's hop to another: benchmarks/sharded --overhead.
MOST_ASKED = 3
# What a client takes of a processor to ask a server, in what a server takes for that:
# benchmarks/sharded measures both, and which fan-out follows.
_CLIENT_COST = 4.5
_MOST_OTHERS = 64  # of one server, by the API
_PAUSE = 60.0  # seconds, after servers could not reach each other

# A server that lacks the method, or may not ask others for this caller.
_REFUSALS = (
    UnimplementedError,
    FailedPreconditionError,
    PermissionDeniedError,
    UnauthenticatedError,
)

_logger = logging.getLogger("attention_client.ray")
_REQUEST = _messages.numbers("attention.v1.AttendShardsRequest")
_SHARD = _messages.numbers("attention.v1.Shard")

Member = TypeVar("Member")


class LateError(AttentionError):
    """A tree that has not answered in time: one of its servers may be slow.

    kind: of the call.
    """

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class Trees:
    """Whether a cluster's servers ask each other. For many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._off_until = 0.0
        self._is_told = False

    def is_for(self, servers: int) -> bool:
        return servers > MOST_ASKED and time.monotonic() >= self._off_until

    @staticmethod
    def ends_with(error: AttentionError) -> bool:
        """Whether each server may well answer where a tree has this error."""
        return isinstance(error, (*_REFUSALS, LateError))

    def note(self, error: AttentionError) -> None:
        """A tree has failed where calls to each server may not; says so once."""
        if isinstance(error, LateError):
            return
        refused = isinstance(error, _REFUSALS)
        with self._lock:
            self._off_until = math.inf if refused else time.monotonic() + _PAUSE
            if self._is_told:
                return
            self._is_told = True
        _logger.warning(
            "servers do not ask each other, so that this program asks all of them, "
            "which takes longer: %s (expected --peers of each server to list the "
            "others, in the flags of AttentionCluster)",
            error,
        )


def groups(members: Sequence[Member]) -> list[list[Member]]:
    """Of a tree's servers: the client asks the first of each, and that the others."""
    count = max(
        1,
        round(math.sqrt(len(members) / _CLIENT_COST)),
        math.ceil(len(members) / (_MOST_OTHERS + 1)),
    )
    return [list(members[first::count]) for first in range(count)]


def request(common: bytes, parts: Sequence[tuple[str, Sequence[bytes]]]) -> bytes:
    """An AttendShardsRequest.

    parts: of each server, its target and its parts; the first one is whom it is for.
    """
    shard = _shard("", parts[0][1])
    for target, of_other in parts[1:]:
        shard.add_message(_SHARD["shards"], _shard(target, of_other))
    message = Message()
    message.add_message(_REQUEST["common"], _of(common))
    message.add_message(_REQUEST["shard"], shard)
    return message.join()


def _shard(target: str, parts: Sequence[bytes]) -> Message:
    shard = Message()
    if target:
        shard.add_message(_SHARD["target"], _of(target.encode()))
    for part in parts:
        shard.add_message(_SHARD["parts"], _of(part))
    return shard


def _of(data: bytes) -> Message:
    message = Message()
    message.add_bytes(data)
    return message
