"""The engine as Python has it."""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass
from typing import Any

from typing_extensions import Self

from attention_client._channel import CLIENTS
from attention_client.info import Backend, Device, UnusedBackend
from attention_engine import _native

try:
    __version__ = importlib.metadata.version("attention-engine")
except importlib.metadata.PackageNotFoundError:  # sources that are not installed
    __version__ = "0+unknown"


@dataclass(frozen=True)
class EngineInfo:
    """What Engine.info returns: of a ServerInfo what is not a server's."""

    version: str
    backends: tuple[Backend, ...]  # in the order in which they are tried
    worker_threads: int
    devices: tuple[Device, ...]
    unused_backends: tuple[UnusedBackend, ...]


class Engine(_native.Engine):
    """Computes attention in this process.

    threads: that compute; None: one for each processor that the process may use.
    backend: "auto", "cpu" or "reference".

    One engine may serve many threads. It is of no use in a child that os.fork() has
    made, and says so: start children with "spawn" or "forkserver". Pickled, it is made
    anew with these settings. Its threads end with close(), or with the context.

        engine = Engine()
        output = engine.attend(query, key, value, causal=True).output
    """

    def __init__(self, threads: int | None = None, backend: str = "auto") -> None:
        super().__init__(0 if threads is None else threads, backend)
        self._settings = threads, backend
        CLIENTS[id(self)] = self  # for PyTorch's operator, which takes numbers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[type[Engine], tuple[int | None, str]]:
        return type(self), self._settings

    def __repr__(self) -> str:
        threads, backend = self._settings
        return f"Engine(threads={threads}, backend={backend!r})"

    def info(self) -> EngineInfo:
        """Version, backends and threads."""
        facts: dict[str, Any] = self.facts()
        return EngineInfo(
            version=__version__,
            backends=tuple(Backend(**one) for one in facts["backends"]),
            worker_threads=facts["worker_threads"],
            devices=tuple(Device(**one) for one in facts["devices"]),
            unused_backends=tuple(
                UnusedBackend(**one) for one in facts["unused_backends"]
            ),
        )
