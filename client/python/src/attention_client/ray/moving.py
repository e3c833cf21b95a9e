"""How keys get from one server to another while calls go on."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attention_client import _sequence_calls, _sequence_tensors
from attention_client._arrays import Array
from attention_client.client import Client
from attention_client.errors import (
    AbortedError,
    AttentionError,
    DeadlineExceededError,
    NotFoundError,
    ResourceExhaustedError,
    UnavailableError,
)
from attention_client.info import SequenceForm
from attention_client.ray.fanout import known as at_server
from attention_client.ray.ranges import Range, Replica, SequenceMap

_MARK = 16  # keys
_STOP = 90  # seconds: a server that hangs is killed after 60
NAMESPACE = "attention"  # Ray's, of our actors
# A machine that is gone resets nothing: calls that wait for it fail after both times.
# Servers end connections whose pings come more often than every 10 s.
_KEEPALIVE = (
    ("grpc.keepalive_time_ms", 12_000),
    ("grpc.keepalive_timeout_ms", 8_000),
    ("grpc.http2.ping_timeout_ms", 8_000),
)


class SourceFullError(ResourceExhaustedError):
    """The nodes that have a range lack room for what ends appends, or begins them.

    has_marks: whether some layers are closed to appends.
    """

    has_marks = False


def close(
    sources: Sequence[tuple[Client, Replica]], known: SequenceMap, part: Range
) -> tuple[list[int], bool, list[Replica]]:
    """Ends appends to a range: its keys of each layer, whether it was open, and where.

    Behind the last key of each layer goes a mark, keys that follow from the replica's
    name. An append that comes later finds other keys in its place, which is an
    AbortedError to its caller, who asks for the map. No reader sees the mark: they say
    how many keys they see. A range that is full takes no appends; it is left as it is.
    Safe to call twice. Replicas that are gone, or without room for a mark, are passed
    over: an append is acknowledged only once all of them have it. The others are
    returned. SourceFullError where there are none.
    """
    counts: list[list[int]] = []
    closed: list[Replica] = []
    error: AttentionError | None = None
    full: SourceFullError | None = None
    for client, replica in sources:
        layers: list[int] = []
        try:
            for layer in range(known.form.layers):
                count = _close_layer(client, known.form, part, replica, layer)
                layers.append(count)
        except (UnavailableError, NotFoundError) as failed:
            error = failed
        except ResourceExhaustedError as failed:
            full = full or _source_full(replica, failed)
            full.has_marks |= any(count < part.capacity for count in layers)
        else:
            counts.append(layers)
            closed.append(replica)
    if not counts:
        nobody = UnavailableError(f"no server has position {part.start}")
        raise error or full or nobody
    # What was acknowledged is at all of them.
    least = [min(of_layer) for of_layer in zip(*counts, strict=True)]
    return least, any(count < part.capacity for count in least), closed


def _source_full(replica: Replica, error: ResourceExhaustedError) -> SourceFullError:
    return SourceFullError(
        f"node: {replica.node!r} has no room for what ends appends to keys that are to "
        f"move: {error}",
        retry_after=error.retry_after,
    )


def copy(
    sources: Sequence[tuple[str, str]],
    counts: Sequence[int],
    target: str,
    name: str,
    starts: Sequence[int] | None = None,
) -> int:
    """Of the first source that is there: actor, and sequence at its server. Bytes.

    counts: keys of each layer that the target has then. starts: those that it has.
    """
    starts = starts or [0] * len(counts)
    error: AttentionError | None = None
    for actor, source in sources:
        try:
            size: int = ask(
                actor, "copy", source, starts, counts, target, name, timeout=None
            )
            return size
        except (UnavailableError, NotFoundError) as failed:
            error = failed
    raise UnavailableError("no server has the keys that are to be copied") from error


def held(
    client: Client, known: SequenceMap, part: Range, replica: Replica
) -> tuple[int, ...]:
    """Keys of each layer at a replica of a range; marks are none."""
    counts = _held(client, replica)
    if part.start != known.moving:
        return counts
    return tuple(
        count - _MARK
        if count >= _MARK and _has_mark(client, known.form, replica, layer, count)
        else count
        for layer, count in enumerate(counts)
    )


def _held(client: Client, replica: Replica) -> tuple[int, ...]:
    return client._run(_sequence_calls.describe(replica.name), None, None).lengths


def _close_layer(
    client: Client, form: SequenceForm, part: Range, replica: Replica, layer: int
) -> int:
    while True:
        count = _held(client, replica)[layer]
        if count >= _MARK and _has_mark(client, form, replica, layer, count):
            return count - _MARK
        if count == part.capacity:
            return count
        try:
            _append_mark(client, form, replica, layer, count)
        except AbortedError:
            continue  # keys were appended meanwhile
        return count


def _has_mark(
    client: Client, form: SequenceForm, replica: Replica, layer: int, count: int
) -> bool:
    try:
        _append_mark(client, form, replica, layer, count - _MARK)
    except AbortedError:
        return False
    return True


def _append_mark(
    client: Client, form: SequenceForm, replica: Replica, layer: int, position: int
) -> None:
    key, value = (
        _mark(f"{replica.name} {layer} {name}", form, width)
        for name, width in (("key", form.key_width), ("value", form.value_width))
    )
    steps = _sequence_tensors.append(
        at_server(form, replica), key, value, layer, position
    )
    client._run(steps, None, None)


def _mark(seed: str, form: SequenceForm, width: int) -> Array:
    """Small integers, which every datatype keeps; at least 64 random bits of them."""
    digest = hashlib.sha256(seed.encode()).digest()
    random = np.random.default_rng(np.frombuffer(digest, np.uint32))
    return random.integers(1, 16, (1, form.heads, _MARK, width)).astype(np.float32)


def plain(connect: Mapping[str, Any]) -> dict[str, Any]:
    """A client's settings, for calls whose failure is answered here and at once."""
    given = connect.get("options", ())
    options = [*_KEEPALIVE, *given, ("grpc.enable_retries", 0)]
    return {**connect, "options": options, "shared_memory": False}


# Ray.


class GoneError(UnavailableError):
    """The actor has died, or its node."""


class RestartingError(UnavailableError):
    """Ray is starting the actor anew."""


def ask(actor: str, method: str, *arguments: Any, timeout: float | None = 60) -> Any:
    """A node's actor. UnavailableError where it is gone."""
    import ray

    try:
        handle = ray.get_actor(actor, namespace=NAMESPACE)
    except ValueError:
        raise UnavailableError(f"{actor} is gone") from None
    return ask_handle(handle, actor, method, arguments, timeout)


def ask_handle(
    handle: Any,
    name: str,
    method: str,
    arguments: Sequence[Any],
    timeout: float | None,
) -> Any:
    """An actor's method; its AttentionErrors are raised here as they were there."""
    import ray

    # Ray ends the program where it is given a negative timeout.
    if timeout is not None and timeout <= 0:
        raise DeadlineExceededError(f"no time was left to ask {name} for {method}()")
    try:
        return ray.get(getattr(handle, method).remote(*arguments), timeout=timeout)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.GetTimeoutError:
        raise DeadlineExceededError(
            f"{name} has not answered {method}() within {timeout:g} s"
        ) from None
    except ray.exceptions.ActorUnavailableError as error:
        raise RestartingError(f"{name} is being started anew: {error}") from None
    except ray.exceptions.ActorDiedError as error:
        raise GoneError(f"{name} does not answer {method}(): {error}") from None
    except ray.exceptions.RayError as error:
        raise UnavailableError(f"{name} does not answer {method}(): {error}") from None


def is_alive(actor: str) -> bool:
    """Whether Ray still has it: one that is slow is not gone."""
    import ray

    try:
        ray.get_actor(actor, namespace=NAMESPACE)
    except ValueError:
        return False
    return True


def stop(actor: str) -> None:
    """Ends a node's actor."""
    import ray

    with contextlib.suppress(UnavailableError, DeadlineExceededError):
        ask(actor, "stop", timeout=_STOP)
    with contextlib.suppress(ValueError):
        ray.kill(ray.get_actor(actor, namespace=NAMESPACE))


def draining() -> set[str]:
    """Ray's ids of the nodes that it drains."""
    from ray._private.state import state

    return set(state.get_draining_nodes())
