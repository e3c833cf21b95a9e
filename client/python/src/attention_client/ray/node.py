"""The actor of a node: it starts a server there and watches it."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from attention_client._arrays import Array
from attention_client._channel import LONGEST_TIMEOUT
from attention_client.client import Client
from attention_client.errors import (
    AttentionError,
    DeadlineExceededError,
    UnavailableError,
)
from attention_client.ray import checkpoints
from attention_client.server import LocalServer

COPIED = 8 << 20  # bytes of a message that copies keys
_ANSWER = 3.0  # seconds that a server may take to say that it serves
_ASKED = 3  # times: one that is busy may be late
_PAUSE = 0.5  # seconds, after a connection that could not be made
# Of gRPC's text: the machine lives, and nobody listens there. All else that gRPC calls
# UNAVAILABLE may be the network's, such as a neighbour that resolves no address.
_REFUSED = "connection refused"

_DATATYPES = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "I8": np.dtype(np.int8),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
}


@dataclasses.dataclass(frozen=True)
class NodeReport:
    """What a node's actor says of its server."""

    node: str  # of the cluster; another one after the server was started anew
    ray_node: str  # Ray's id of the node
    target: str  # what Client takes
    pid: int  # of the server
    status: str  # "SERVING", or what else it says of itself
    memory_limit: int  # bytes that keys and values may take there
    held_bytes: int  # that they take


class NodeActor:
    """One for each node. Ray calls it; so its methods take and return plain values."""

    def __init__(
        self,
        name: str,
        listen: str,
        flags: Mapping[str, Any],
        connect: Mapping[str, Any],
    ) -> None:
        self._name = name
        self._listen = listen
        self._flags = dict(flags)
        self._connect = dict(connect)
        self._lock = threading.Lock()
        self._starts = 0
        self._server: LocalServer | None = None
        self._client: Client | None = None

    def report(self, gone: str | None = None) -> NodeReport:
        """Of the server, which is started where it does not run.

        gone: a node that the map has given up, whose server is started anew also where
        it runs, so that the memory of its keys is free again.
        """
        import ray

        with self._lock:
            is_running = self._server is not None and self._server.is_running()
            if not is_running or gone == self._node():
                self._start()
            server, client = self._server, self._client
            assert server is not None and client is not None
            store = client.info(timeout=10).sequence_store
            if store is None:
                raise UnavailableError(f"{server.target} keeps no sequences")
            return NodeReport(
                node=self._node(),
                ray_node=ray.get_runtime_context().get_node_id(),
                target=server.target,
                pid=server.pid,
                status=client.health(timeout=10),
                memory_limit=store.memory_limit,
                held_bytes=store.held_bytes,
            )

    def serves(self, node: str) -> bool:
        """Whether the server of that name runs, and answers here.

        Without the lock: while a server is started anew the earlier one does not serve.
        """
        server = self._server
        return (
            node == self._node()
            and server is not None
            and server.is_running()
            and bool(answers(server.target, self._connect))
        )

    def copy(
        self,
        source: str,
        starts: Sequence[int],
        lengths: Sequence[int],
        target: str,
        name: str,
    ) -> int:
        """Appends keys of a sequence here to one at another server.

        starts, lengths: of each layer, the first one and the one after the last.
        Returns the bytes that were copied.
        """
        copied = 0
        with self._exported(source) as file, Client(target, **self._connect) as client:
            tensors = read_tensors(file)
            made = client.open_sequence(name)
            for layer, (first, length) in enumerate(zip(starts, lengths, strict=True)):
                per_key = sum(
                    tensor[..., :1, :].nbytes
                    if tensor.ndim == 3
                    else tensor[:, :1].nbytes
                    for part, tensor in tensors.items()
                    if part.endswith(f".{layer}") and length > 0
                )
                step = max(1, COPIED // max(per_key, 1))
                for start in range(first, length, step):
                    rows = slice(start, min(start + step, length))
                    key, value = (
                        _rows(tensors, part, layer, rows) for part in ("key", "value")
                    )
                    made.append(key, value, layer, start)
                copied += per_key * max(0, length - first)
        return copied

    def write(self, source: str, file: str) -> int:
        """Writes a sequence here into a file that other nodes see, too; its bytes."""
        with self._exported(source) as exported:
            size = exported.stat().st_size
            shutil.copyfile(exported, file)
        checkpoints.to_disk(file)
        return size

    def read(self, file: str, name: str, label: str) -> list[int]:
        """Makes a sequence of such a file; keys of each layer."""
        client, folder = self._running()
        own = folder / f"{os.urandom(8).hex()}.safetensors"
        try:
            shutil.copyfile(file, own)
            made = client.import_sequence(
                own.name, name=name, label=label, timeout=LONGEST_TIMEOUT
            )
        finally:
            own.unlink(missing_ok=True)
        return list(made.lengths)

    def stop(self) -> None:
        """Ends the server: what it has begun is finished first."""
        with self._lock:
            if self._client is not None:
                self._client.close()
            if self._server is not None:
                self._server.stop()

    def _node(self) -> str:
        return f"{self._name}.{self._starts}"

    def _start(self) -> None:
        self._starts += 1
        if self._server is not None:
            if self._server.is_running():
                # It was given up: its keys are nobody's, and it may hang.
                os.kill(self._server.pid, signal.SIGKILL)
            self._server.stop()
        if self._client is not None:
            self._client.close()
        # Which keys are needed is the map's to say, not the time's.
        import ray

        is_node = self._listen == "node"
        util: Any = ray.util
        address = util.get_node_ip_address() if is_node else self._listen
        wanted: dict[str, Any] = {
            "grpc_address": address,
            "resident_folder": True,
            "resident_idle_limit": 0,
            **self._flags,
        }
        # On one host they ask each other. Elsewhere, and over TLS, flags say whom.
        if address == "127.0.0.1" and "tls_certificate" not in wanted:
            wanted.setdefault("peers", "127.0.0.1:*")
        self._server = LocalServer(**wanted)
        self._client = Client(self._server.target, **self._connect)

    def _running(self) -> tuple[Client, Path]:
        """A client, and the folder for files of sequences."""
        files = None if self._server is None else self._server.files
        if self._client is None or files is None:
            raise UnavailableError(f"{self._name}: the server has not been started")
        return self._client, files

    def _exported(self, source: str) -> _Exported:
        client, folder = self._running()
        return _Exported(client, source, folder)


class _Exported:
    """A file of a sequence, for as long as the context lasts."""

    def __init__(self, client: Client, source: str, folder: Path) -> None:
        self._client = client
        self._source = source
        self._path = folder / f"{os.urandom(8).hex()}.safetensors"

    def __enter__(self) -> Path:
        source = self._client.open_sequence(self._source)
        source.export(self._path.name, timeout=LONGEST_TIMEOUT)
        return self._path

    def __exit__(self, *_: object) -> None:
        self._path.unlink(missing_ok=True)


def read_tensors(path: Path) -> dict[str, Array]:
    """A safetensors file's, mapped into memory.

    The package of that name reads all of a file, and not all of these types.
    """
    data = np.memmap(path, np.uint8, mode="r")
    size = int(data[:8].view("<u8")[0])
    header = json.loads(bytes(data[8 : 8 + size]))
    tensors: dict[str, Array] = {}
    for name, told in header.items():
        if name == "__metadata__":
            continue
        kind, shape = _DATATYPES[told["dtype"]], told["shape"]
        first = 8 + size + told["data_offsets"][0]
        last = first + math.prod(shape) * kind.itemsize
        tensors[name] = data[first:last].view(kind).reshape(shape)
    return tensors


def _rows(tensors: dict[str, Array], part: str, layer: int, rows: slice) -> Any:
    elements = tensors[f"{part}.{layer}"][:, rows]
    scales = tensors.get(f"{part}_scale.{layer}")
    return elements if scales is None else (elements, scales[:, rows])


def answers(target: str, connect: Mapping[str, Any]) -> bool | None:
    """Whether a server serves, or at least says something; None: it stays silent.

    So does one that hangs, or whose machine is gone or cannot be reached. False: its
    machine says that no server is there.
    """
    with Client(target, **connect) as client:
        for number in range(1, _ASKED + 1):
            try:
                client.health(timeout=_ANSWER)
            except UnavailableError as error:
                if _REFUSED in error.message.lower():
                    return False
                if number < _ASKED:
                    time.sleep(_PAUSE)
            except DeadlineExceededError:
                continue
            except AttentionError:
                return True
            else:
                return True
    return None
