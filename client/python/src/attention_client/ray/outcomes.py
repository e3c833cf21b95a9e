"""What of several calls at once has failed, and whether another map would help."""

from __future__ import annotations

from typing import Any

from attention_client.errors import (
    AbortedError,
    AttentionError,
    CancelledError,
    KeysLostError,
    NotFoundError,
    UnavailableError,
)
from attention_client.ray import fanout
from attention_client.ray.ranges import shown

# What a server says that has gone, or has no longer what the map says.
_STALE = (UnavailableError, NotFoundError, AbortedError, CancelledError)


class Outdated(Exception):
    """A call that may succeed with another map."""

    def __init__(self, error: AttentionError, nodes: list[str]) -> None:
        self.error = error
        self.nodes = nodes  # that do not answer


def raise_first(calls: list[fanout.Call]) -> None:
    """What a caller has done wrong, or that the map is out of date."""
    failed = [call for call in calls if isinstance(call.outcome, AttentionError)]
    stale = []
    for call in failed:
        if isinstance(call.outcome, _STALE) or (
            # Of an open range whose length has changed.
            call.outcome.field in ("attend_mask", "bias")
        ):
            stale.append(call)
        else:
            raise call.outcome
    if stale:
        gone = [
            replica.node
            for call in stale
            if isinstance(call.outcome, (UnavailableError, CancelledError))
            for replica in call.replicas[:1]
        ]
        raise Outdated(stale[0].outcome, gone)


def lost(name: str, missing: Any) -> KeysLostError:
    """missing: pairs of the first position and the one after the last."""
    positions = tuple(missing)
    return KeysLostError(
        f"the sequence {name!r} has lost its keys at positions {shown(positions)}: the "
        "nodes that had them are gone (partial=True attends to the others)",
        positions,
    )
