"""What a server says of itself. Fields are those of GetServerInfoResponse."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from attention_client._wire import name_of


@dataclass(frozen=True)
class BackendCost:
    """What computing should cost, in nanoseconds: the sum of these for a request."""

    of_problem: float  # the same for all
    of_multiply_add: float
    of_byte: float  # of tensors and results


@dataclass(frozen=True)
class Backend:
    """What can compute."""

    name: str
    instruction_set: str
    experimental: bool
    broken: str  # what has broken since the start; else empty
    # By which `--backend auto` chooses; None: it has no choice.
    cost: BackendCost | None = None

    @classmethod
    def of(cls, message: Any) -> Backend:
        """Of a Backend message."""
        cost = _copy(BackendCost, message.cost) if message.HasField("cost") else None
        made: Backend = _copy(cls, message)
        return dataclasses.replace(made, cost=cost)


@dataclass(frozen=True)
class UnusedBackend:
    """What `--backend auto` has passed over at the start."""

    name: str
    reason: str


@dataclass(frozen=True)
class Limits:
    """Of messages, in bytes, and of requests at once."""

    max_request_bytes: int
    max_response_bytes: int
    max_requests_in_flight: int
    max_bytes_in_flight: int
    max_stream_requests_in_flight: int


@dataclass(frozen=True)
class Device:
    """An accelerator that the server uses."""

    name: str
    memory_bytes: int


@dataclass(frozen=True)
class SequenceStore:
    """Keys and values that stay at the server."""

    memory_limit: int  # bytes, of all callers
    held_bytes: int  # by this caller
    sequences: int  # of this caller
    idle_limit_ms: int | None  # of those that say nothing of it; None: no limit
    incarnation: int  # a number of this run of the server

    @classmethod
    def of(cls, message: Any) -> SequenceStore:
        """Of a SequenceStore message."""
        limited = message.HasField("idle_limit_ms")
        return cls(
            memory_limit=message.memory_limit,
            held_bytes=message.held_bytes,
            sequences=message.sequences,
            idle_limit_ms=message.idle_limit_ms if limited else None,
            incarnation=message.incarnation,
        )


@dataclass(frozen=True)
class ServerInfo:
    """What Client.info returns."""

    version: str
    backends: tuple[Backend, ...]  # in the order in which they are tried
    worker_threads: int
    limits: Limits
    devices: tuple[Device, ...]
    unused_backends: tuple[UnusedBackend, ...]
    sequence_store: SequenceStore | None  # None: a server that keeps none

    @classmethod
    def of(cls, message: Any) -> ServerInfo:
        """Of a GetServerInfoResponse."""
        return cls(
            version=message.version,
            backends=tuple(Backend.of(one) for one in message.backends),
            worker_threads=message.worker_threads,
            limits=_copy(Limits, message.limits),
            devices=tuple(_copy(Device, one) for one in message.devices),
            unused_backends=tuple(
                _copy(UnusedBackend, one) for one in message.unused_backends
            ),
            sequence_store=(
                SequenceStore.of(message.sequence_store)
                if message.HasField("sequence_store")
                else None
            ),
        )


def _copy(kind: Any, message: Any) -> Any:
    names = kind.__dataclass_fields__
    return kind(**{name: getattr(message, name) for name in names})


@dataclass(frozen=True)
class SequenceForm:
    """What all keys and values of a sequence have in common."""

    heads: int
    key_width: int
    value_width: int
    datatype: str  # "float32", "float16", "bfloat16", "int8" or "float8_e4m3fn"
    layers: int

    @classmethod
    def of(cls, message: Any) -> SequenceForm:
        """Of a SequenceForm message."""
        return cls(
            heads=message.heads,
            key_width=message.key_width,
            value_width=message.value_width,
            datatype=name_of(message.datatype),
            layers=message.layers if message.HasField("layers") else 1,
        )


@dataclass(frozen=True)
class SequenceDescription:
    """What a sequence is. Fields are those of the API's message."""

    name: str
    label: str
    form: SequenceForm
    lengths: tuple[int, ...]  # keys of each layer
    bytes: int  # with what it shares with others
    idle_limit_ms: int | None  # None: it may be idle for ever
    idle_ms: int  # since it was last used
    incarnation: int  # a number of this run of the server

    @classmethod
    def of(cls, message: Any) -> SequenceDescription:
        """Of a SequenceDescription message."""
        limited = message.HasField("idle_limit_ms")
        return cls(
            name=message.name,
            label=message.label,
            form=SequenceForm.of(message.form),
            lengths=tuple(message.lengths),
            bytes=message.bytes,
            idle_limit_ms=message.idle_limit_ms if limited else None,
            idle_ms=message.idle_ms,
            incarnation=message.incarnation,
        )
