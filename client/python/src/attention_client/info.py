"""What a server says of itself. Fields are those of GetServerInfoResponse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Backend:
    """What can compute."""

    name: str
    instruction_set: str
    experimental: bool
    broken: str  # what has broken since the start; else empty


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
class ServerInfo:
    """What Client.info returns."""

    version: str
    backends: tuple[Backend, ...]  # in the order in which they are tried
    worker_threads: int
    limits: Limits
    devices: tuple[Device, ...]
    unused_backends: tuple[UnusedBackend, ...]

    @classmethod
    def of(cls, message: Any) -> ServerInfo:
        """Of a GetServerInfoResponse."""
        return cls(
            version=message.version,
            backends=tuple(_copy(Backend, one) for one in message.backends),
            worker_threads=message.worker_threads,
            limits=_copy(Limits, message.limits),
            devices=tuple(_copy(Device, one) for one in message.devices),
            unused_backends=tuple(
                _copy(UnusedBackend, one) for one in message.unused_backends
            ),
        )


def _copy(kind: Any, message: Any) -> Any:
    names = kind.__dataclass_fields__
    return kind(**{name: getattr(message, name) for name in names})
