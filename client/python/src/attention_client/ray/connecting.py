"""A program's connections to a cluster: to its map, and to its servers."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from attention_client import _channel
from attention_client.client import Client
from attention_client.errors import CancelledError, NotFoundError
from attention_client.ray import moving
from attention_client.ray.figures import shown
from attention_client.ray.hedging import Recent
from attention_client.ray.tree import Trees

# Of the map's methods.
_REPEATABLE = frozenset(
    (
        "copied_bytes",
        "delete",
        "describe",
        "end",
        "export",
        "extend",
        "give_up",
        "names",
        "nodes",
        "refresh",
        "taken",
        "targets",
    )
)
_THREADS = 64
_PAUSE = 0.1  # seconds until a map that is being started anew is asked again


class Connections:
    """What sequences need of their AttentionCluster.

    connect: how servers are called, as of Client. timeout: seconds that a call may take
    unless it says otherwise.
    """

    _is_closed = False

    def __init__(
        self, map_actor: Any, connect: Mapping[str, Any], timeout: float
    ) -> None:
        self.timeout = timeout
        self._map = map_actor
        self._connect = dict(connect)
        self._clients: dict[str, Client] = {}
        self._targets: dict[str, str] = {}
        self._threads = ThreadPoolExecutor(_THREADS)  # that wait for answers
        self._recent = Recent()
        self._trees = Trees()

    def close(self) -> None:
        """Lets go of the connections; the cluster goes on.

        Calls on its sequences are a CancelledError from then on, but for delete(): a
        with statement that made one can still end it.
        """
        self._is_closed = True
        for client in list(self._clients.values()):
            client.close()
        self._clients.clear()
        self._threads.shutdown(wait=False)

    def _ask(
        self,
        method: str,
        *arguments: Any,
        timeout: float | None = 60,
        metadata: _channel.Metadata | None = None,
    ) -> Any:
        """A method of the map. metadata: of the calls of servers that it makes."""
        asked, told = method, arguments
        if metadata is not None:
            own = _channel.checked(metadata)
            asked, told = "with_metadata", (own, method, *arguments)
        end = time.monotonic() + (math.inf if timeout is None else timeout)
        left = timeout
        while True:
            try:
                return moving.ask_handle(self._map, "the map", asked, told, left)
            except moving.RestartingError:
                # What it has been asked may have been done.
                if method not in _REPEATABLE or time.monotonic() + _PAUSE >= end:
                    raise
                time.sleep(_PAUSE)
                left = None if timeout is None else end - time.monotonic()

    def _copy(
        self,
        method: str,
        *arguments: Any,
        timeout: float | None,
        metadata: _channel.Metadata | None = None,
    ) -> Any:
        """As _ask(), of what may take long: a terminal shows how far it is."""
        with shown(method, lambda: int(self._ask("copied_bytes"))):
            return self._ask(method, *arguments, timeout=timeout, metadata=metadata)

    def _client(self, node: str, timeout: float | None = 60) -> Client:
        self._check_open()
        client = self._clients.get(node)
        if client is None:
            target = self._targets.get(node)  # others may find new ones meanwhile
            if target is None:
                self._find_nodes(timeout)
                target = self._targets.get(node)
            if target is None:
                raise NotFoundError(f"node: {node!r} has gone")
            client = Client(target, **moving.plain(self._connect))
            client = self._clients.setdefault(node, client)
            if self._is_closed:  # meanwhile, by another thread
                self.close()
                self._check_open()
        return client

    def _check_open(self) -> None:
        if self._is_closed:
            raise CancelledError(
                f"this {self!r} is closed (expected calls before close() or the end of "
                "its context; AttentionCluster.connect() would do)"
            )

    def _find_nodes(self, timeout: float | None) -> None:
        """Learns of nodes that have come, and lets go of what is of those that went."""
        self._targets = self._ask("targets", timeout=timeout)
        for node in self._clients.keys() - self._targets.keys():
            self._clients.pop(node, None)  # calls that it has are finished
        self._recent.keep(self._targets)
