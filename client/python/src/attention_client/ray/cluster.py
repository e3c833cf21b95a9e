"""Servers over the nodes of a Ray cluster."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from typing_extensions import Self

from attention_client import _known, _sequence_calls
from attention_client._channel import TIMEOUT
from attention_client.client import Client
from attention_client.errors import (
    AlreadyExistsError,
    AttentionError,
    CancelledError,
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
)
from attention_client.info import SequenceForm
from attention_client.ray import moving
from attention_client.ray.figures import shown
from attention_client.ray.hedging import Recent
from attention_client.ray.map import MapActor
from attention_client.ray.node import NodeActor, NodeReport
from attention_client.ray.sequence import ShardedSequence
from attention_client.ray.tree import Trees

# Of the map's methods.
_REPEATABLE = frozenset(
    (
        "copied_bytes",
        "delete",
        "describe",
        "export",
        "extend",
        "give_up",
        "names",
        "nodes",
        "refresh",
        "targets",
    )
)
_THREADS = 64
_MAP_MEMORY = 1 << 20  # bytes that Ray sets aside for the map's actor
_START = 120  # seconds that actors and servers may take to start
_END = 120  # and to end
_PAUSE = 0.1  # seconds until a map that is being started anew is asked again
_NAME_PAUSE = 0.01  # seconds until Ray is asked again whether a name is free


class AttentionCluster:
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

    _is_closed = False

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
        self.name = name
        self.timeout = timeout
        self._is_own = True
        self._clients: dict[str, Client] = {}
        self._threads = ThreadPoolExecutor(_THREADS)  # that wait for answers
        self._targets: dict[str, str] = {}
        self._recent = Recent()
        self._trees = Trees()
        self._connect = dict(connect or {})
        self._settings: dict[str, Any] = {
            "cpus": cpus,
            "memory": memory,
            "listen": listen,
            "flags": dict(flags or {}),
            "is_kept": is_kept,
        }
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        try:
            ray.get_actor(_map_name(name), namespace=moving.NAMESPACE)
        except ValueError:
            pass
        else:
            raise AlreadyExistsError(f"name: there is a cluster {name!r}")
        self._actors: list[Any] = []
        self._map: Any = (
            ray.remote(MapActor)
            .options(
                name=_map_name(name),
                namespace=moving.NAMESPACE,
                lifetime="detached" if is_kept else None,
                max_restarts=-1,
                max_concurrency=64,
                num_cpus=0,
                # Beside the program that starts it, not at a node that comes and goes.
                # One that needs nothing is put anywhere by Ray, whatever that says.
                memory=_MAP_MEMORY,
                scheduling_strategy=NodeAffinitySchedulingStrategy(
                    ray.get_runtime_context().get_node_id(), soft=True
                ),
            )
            .remote(f"{name}.{os.urandom(4).hex()}", self._connect)
        )
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
        import ray

        found = cls.__new__(cls)
        try:
            found._map = ray.get_actor(_map_name(name), namespace=moving.NAMESPACE)
        except ValueError:
            raise NotFoundError(f"name: there is no cluster {name!r}") from None
        found.name, found.timeout, found._is_own = name, timeout, False
        found._clients, found._targets, found._actors = {}, {}, []
        found._connect, found._settings = dict(connect or {}), {}
        found._threads = ThreadPoolExecutor(_THREADS)
        found._recent = Recent()
        found._trees = Trees()
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown() if self._is_own else self.close()

    def __repr__(self) -> str:
        return f"AttentionCluster({self.name!r})"

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

    def shutdown(self) -> None:
        """Ends the servers and all that they hold, and frees the cluster's name.

        Safe to call twice.
        """
        import ray

        self.close()
        try:
            with contextlib.suppress(UnavailableError, DeadlineExceededError):
                self._ask("end", timeout=_END)
        finally:
            ray.kill(self._map)
            self._wait_for_name()

    def _wait_for_name(self) -> None:
        """ray.kill() returns before Ray has taken the map's name from it."""
        import ray

        end = time.monotonic() + _END
        while time.monotonic() < end:
            try:
                found = ray.get_actor(_map_name(self.name), namespace=moving.NAMESPACE)
            except ValueError:
                return
            if found._actor_id != self._map._actor_id:
                return  # somebody else's by now
            time.sleep(_NAME_PAUSE)

    # Nodes.

    def nodes(self) -> list[NodeReport]:
        """What the servers say of themselves."""
        reports: list[NodeReport] = self._ask("nodes")
        return reports

    def add_nodes(self, count: int, *, balance: bool = True) -> list[NodeReport]:
        """Starts servers on nodes that have none; has them take a part of the keys."""
        if not self._settings:
            raise FailedPreconditionError(
                "add_nodes: called by a program that has not started the cluster"
            )
        self._check_addresses()
        had = self.nodes()
        added: list[NodeReport] = []
        for _ in range(count):
            taken = [report.ray_node for report in had + added]
            added.append(self._add_node(taken))
        if balance and had:
            self._copy("rebalance", timeout=None)
        return added

    def drain(self, node: str, *, timeout: float | None = None) -> None:
        """Moves a node's keys to others while calls go on, and ends its server.

        node: NodeReport.node. timeout: seconds; None: as long as it takes.
        """
        self._copy("drain", node, timeout=timeout)

    def remove_nodes(self, count: int) -> None:
        """Drains those that hold least."""
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

    def _ask(self, method: str, *arguments: Any, timeout: float | None = 60) -> Any:
        end = time.monotonic() + (math.inf if timeout is None else timeout)
        left = timeout
        while True:
            try:
                return moving.ask_handle(self._map, "the map", method, arguments, left)
            except moving.RestartingError:
                # What it has been asked may have been done.
                if method not in _REPEATABLE or time.monotonic() + _PAUSE >= end:
                    raise
                time.sleep(_PAUSE)
                left = None if timeout is None else end - time.monotonic()

    def _copy(self, method: str, *arguments: Any, timeout: float | None) -> Any:
        """As _ask(), of what may take long: a terminal shows how far it is."""
        with shown(method, lambda: int(self._ask("copied_bytes"))):
            return self._ask(method, *arguments, timeout=timeout)

    def _client(self, node: str, timeout: float | None = 60) -> Client:
        self._check_open()
        client = self._clients.get(node)
        if client is None:
            if node not in self._targets:
                self._find_nodes(timeout)
            if node not in self._targets:
                raise NotFoundError(f"node: {node!r} has gone")
            client = Client(self._targets[node], **moving.plain(self._connect))
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

    def _check_addresses(self) -> None:
        import ray

        nodes_of: Any = ray.nodes
        addresses = {node["NodeManagerAddress"] for node in nodes_of() if node["Alive"]}
        if self._settings["listen"] == "127.0.0.1" and len(addresses) > 1:
            raise FailedPreconditionError(
                f"listen: '127.0.0.1', and Ray's nodes are at {sorted(addresses)} "
                "(expected listen='node', with flags and connect that say who may call "
                "the servers)"
            )

    def _add_node(self, taken: Sequence[str]) -> NodeReport:
        """Starts a server on a node that is none of those."""
        end = time.monotonic() + _START
        while True:
            try:
                return self._start_node(taken)
            except moving.GoneError:
                # Ray chose a node that had died, and had not seen that yet.
                if time.monotonic() > end:
                    raise
                self.nodes()  # an error where it is the map that has gone

    def _start_node(self, taken: Sequence[str]) -> NodeReport:
        import ray

        settings = self._settings
        needs = {"num_cpus": settings["cpus"], "memory": settings["memory"]}
        name = f"{_map_name(self.name)}-node-{os.urandom(4).hex()}"
        kind = ray.remote(NodeActor).options(
            name=name,
            namespace=moving.NAMESPACE,
            lifetime="detached" if settings["is_kept"] else None,
            max_concurrency=8,
            label_selector=(
                {"ray.io/node-id": f"!in({','.join(taken)})"} if taken else None
            ),
            **needs,
        )
        actor: Any = kind.remote(
            name, settings["listen"], settings["flags"], self._connect
        )
        try:
            report: NodeReport = self._ask("add_node", name, _START, timeout=None)
        except BaseException as error:
            # A map that was started anew may have taken it, and says so.
            if isinstance(error, moving.RestartingError) and self._has(name):
                self._actors.append(actor)
            else:
                ray.kill(actor)  # one that is kept would stay
            if not isinstance(error, DeadlineExceededError):
                raise
            raise FailedPreconditionError(
                f"nodes: Ray has started no server within {_START} s (expected a node "
                f"with {needs} to spare beside the {len(taken)} that have one)"
            ) from None
        self._actors.append(actor)  # which lives as long as its handles
        return report

    def _has(self, actor: str) -> bool:
        """Whether the map has the node of an actor, and says so."""
        try:
            return any(node.startswith(f"{actor}.") for node in self._ask("targets"))
        except AttentionError:
            return False


def _map_name(name: str) -> str:
    return f"attention-{name}"
