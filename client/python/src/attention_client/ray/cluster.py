"""Servers over the nodes of a Ray cluster."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

from typing_extensions import Self

from attention_client import _known, _sequence_calls
from attention_client._channel import TIMEOUT
from attention_client.errors import (
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    UnavailableError,
)
from attention_client.info import SequenceForm
from attention_client.ray import starting
from attention_client.ray.connecting import Connections
from attention_client.ray.node import NodeReport
from attention_client.ray.sequence import ShardedSequence

_END = 120  # seconds that servers may take to end


class AttentionCluster(Connections):
    """An attention-server on each of so many nodes of the Ray cluster.

    nodes: how many, each on a node of Ray's of its own. name: by which connect() finds
    it, in other programs. cpus and memory: what Ray is to set aside for each server,
    memory in bytes; keys may take as much as its --resident-memory-limit says.
    listen: the servers' address: "127.0.0.1" for Ray's nodes on one host, "node" for
    the address that each has in Ray, where everybody who reaches it can call the
    server unless flags say otherwise. flags: of the servers, as of LocalServer.
    connect: how clients call them, as of Client: tls, token. timeout: seconds that a
    call may take unless it says otherwise.

    Ray must run (ray.init()). As a context manager, and with this program, it ends, and
    its sequences with it; is_kept=True leaves it to shutdown().
    """

    def __init__(
        self,
        nodes: int,
        *,
        name: str = "attention",
        cpus: float = 1,
        memory: int | None = None,
        listen: str = "127.0.0.1",
        flags: Mapping[str, Any] | None = None,
        connect: Mapping[str, Any] | None = None,
        timeout: float = TIMEOUT,
        is_kept: bool = False,
    ) -> None:
        if nodes < 1:
            raise InvalidArgumentError(f"nodes: {nodes} (expected 1 or more)")
        settings = starting.Settings(
            cpus, memory, listen, dict(flags or {}), dict(connect or {}), is_kept
        )
        self.name = name
        self._starter: starting.Starter | None = starting.Starter(name, settings)
        map_actor = starting.start_map(name, settings.connect, is_kept=is_kept)
        super().__init__(map_actor, settings.connect, timeout)
        try:
            self.add_nodes(nodes)
        except BaseException:
            self.shutdown()
            raise

    @classmethod
    def connect(
        cls,
        name: str = "attention",
        *,
        connect: Mapping[str, Any] | None = None,
        timeout: float = TIMEOUT,
    ) -> AttentionCluster:
        """The one of a name, which another program has started; it outlasts this."""
        found = cls.__new__(cls)
        found.name, found._starter = name, None
        Connections.__init__(found, starting.find_map(name), connect or {}, timeout)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close() if self._starter is None else self.shutdown()

    def __repr__(self) -> str:
        return f"AttentionCluster({self.name!r})"

    def shutdown(self) -> None:
        """Ends the servers and all that they hold, and frees the cluster's name.

        Safe to call twice.
        """
        self.close()
        try:
            with contextlib.suppress(UnavailableError, DeadlineExceededError):
                self._ask("end", timeout=_END)
        finally:
            starting.end_map(self.name, self._map)

    # Nodes.

    def nodes(self) -> list[NodeReport]:
        """What the servers say of themselves."""
        reports: list[NodeReport] = self._ask("nodes")
        return reports

    def add_nodes(self, count: int, *, balance: bool = True) -> list[NodeReport]:
        """Starts servers on nodes that have none; has them take a part of the keys."""
        if self._starter is None:
            raise FailedPreconditionError(
                "add_nodes: called by a program that has not started the cluster"
            )
        self._starter.check_addresses()
        had = self.nodes()
        added: list[NodeReport] = []
        for _ in range(count):
            added.append(self._starter.start(self._ask, self._ask("taken")))
        if balance and had:
            self._copy("rebalance", timeout=None)
        return added

    def drain(self, node: str, *, timeout: float | None = None) -> None:
        """Moves a node's keys to others while calls go on, and ends its server.

        node: NodeReport.node. timeout: seconds; None: as long as it takes.
        NotFoundError where the server is gone, also where it dies meanwhile:
        its node, where that is still there, has another one, which nodes() lists.
        """
        self._copy("drain", node, timeout=timeout)

    def remove_nodes(self, count: int) -> None:
        """Drains those that hold least, one after another; errors as of drain()."""
        reports = sorted(self.nodes(), key=lambda report: report.held_bytes)
        if not 0 <= count < len(reports):
            raise InvalidArgumentError(
                f"count: {count} (expected 0 to {len(reports) - 1}: one node stays)"
            )
        for report in reports[:count]:
            self.drain(report.node)

    # Sequences.

    def sequence(
        self,
        *,
        heads: int,
        width: int,
        value_width: int | None = None,
        layers: int = 1,
        dtype: Any = "float32",
        name: str | None = None,
        replicas: int = 1,
        range_keys: int = 4096,
    ) -> ShardedSequence:
        """A new ShardedSequence.

        As Client.sequence. replicas: nodes that have each key; one less may be lost.
        range_keys: the least number of keys that are together at one node; ranges grow
        with the sequence.
        """
        form = SequenceForm.of(_known.form(heads, width, value_width, layers, dtype))
        with self._making(name) as new:
            made = self._ask("create", new, form, replicas, range_keys)
            return ShardedSequence(self, made, [0] * form.layers)

    def open_sequence(self, name: str) -> ShardedSequence:
        """The one of a name. As a context manager it is not deleted."""
        known, lengths = self._ask("describe", name)
        return ShardedSequence(self, known, lengths, is_own=False)

    def import_sequence(
        self,
        folder: str | os.PathLike[str],
        *,
        name: str | None = None,
        replicas: int = 1,
    ) -> ShardedSequence:
        """A new one of a checkpoint that export() has written, on any cluster."""
        path = os.path.abspath(folder)
        with self._making(name) as new:
            known, lengths = self._copy(
                "import_sequence", path, new, replicas, timeout=None
            )
            return ShardedSequence(self, known, lengths)

    def sequences(self) -> list[str]:
        """Names of all."""
        names: list[str] = self._ask("names")
        return names

    @contextlib.contextmanager
    def _making(self, name: str | None) -> Iterator[str]:
        """The name of what the map makes in the block; not left where that fails.

        What the map was asked for goes on after a timeout. One of a given name may
        have been there before.
        """
        new = _sequence_calls.New.of(name)
        try:
            yield new.name
        except BaseException as error:
            if new.is_left_by(error):
                with contextlib.suppress(Exception):
                    self._ask("give_up", new.name, timeout=_sequence_calls.CLEANUP)
            raise
