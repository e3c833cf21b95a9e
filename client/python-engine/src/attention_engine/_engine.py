"""The engine as Python has it."""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass
from typing import Any

from typing_extensions import Self, Unpack

from attention_client import Options, Result
from attention_client._calls import Returned, Steps, run
from attention_client._channel import Metadata, number_of
from attention_client._keeps_sequences import KeepsSequences
from attention_client.info import Backend, Device, UnusedBackend
from attention_engine import _native
from attention_engine._sequences import Sequences

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


class Engine(KeepsSequences):
    """Computes attention in this process.

    threads: that compute; None: one for each processor that the process may use.
    backend: "auto", "cpu" or "reference". resident_memory_limit: bytes that the
    sequences may take together; None: what the process can have.

    One engine may serve many threads. It is of no use in a child that os.fork() has
    made, and says so: start children with "spawn" or "forkserver". Pickled, it is made
    anew with these settings, without sequences. Its threads and its sequences end with
    close(), or with the context.

        engine = Engine()
        output = engine.attend(query, key, value, causal=True).output
    """

    takes_out = True  # of attend(), which PyTorch's adapters make use of

    def __init__(
        self,
        threads: int | None = None,
        backend: str = "auto",
        resident_memory_limit: int | None = None,
    ) -> None:
        # The engine last: with it come threads, which a wrong setting shall not leave.
        self._store = _native.Store(resident_memory_limit)
        self._native = _native.Engine(0 if threads is None else threads, backend)
        self._sequences = Sequences(self._native, self._store)
        self._settings = threads, backend, resident_memory_limit
        number_of(self)  # before PyTorch compiles calls, which cannot give it one

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[type[Engine], tuple[Any, ...]]:
        return type(self), self._settings

    def __repr__(self) -> str:
        threads, backend, limit = self._settings
        more = "" if limit is None else f", resident_memory_limit={limit}"
        return f"Engine(threads={threads}, backend={backend!r}{more})"

    def attend(
        self,
        query: Any,
        key: Any,
        value: Any,
        *,
        out: Any = None,
        timeout: float | None = None,
        **options: Unpack[Options],
    ) -> Result:
        """Attention of the queries to the keys: a Result with .output.

        As attention_client.Client.attend, with its options, results and exceptions, but
        computed in this process. Arrays of numpy, and PyTorch's and JAX's of the host,
        are read where they are, whatever their strides; float64 is computed as float32.
        Nobody may change them while the call runs.

        out: where the output goes in place of a new array: of numpy or PyTorch, of the
        output's datatype and shape, in rows without gaps. timeout: seconds.
        """
        return self._native.attend(
            query, key, value, out=out, timeout=timeout, **options
        )

    def close(self) -> None:
        """Ends the threads once no call runs; calls are refused from then on."""
        self._native.close()
        self._store.close()

    def _run(
        self,
        steps: Steps[Returned],
        timeout: float | None,
        metadata: Metadata | None,
    ) -> Returned:
        if metadata is not None:
            raise TypeError(
                "metadata: given to an engine (expected none: calls send nothing; or "
                "the Client of a server)"
            )
        left = self._left(timeout)
        return run(
            steps, lambda method, asked: self._sequences.answer(method, asked, left())
        )

    def info(self) -> EngineInfo:
        """Version, backends and threads."""
        facts: dict[str, Any] = self._native.facts()
        return EngineInfo(
            version=__version__,
            backends=tuple(Backend(**one) for one in facts["backends"]),
            worker_threads=facts["worker_threads"],
            devices=tuple(Device(**one) for one in facts["devices"]),
            unused_backends=tuple(
                UnusedBackend(**one) for one in facts["unused_backends"]
            ),
        )
