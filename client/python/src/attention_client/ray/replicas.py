"""A range's replicas at their servers: made, counted, copied and deleted."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from attention_client import _channel
from attention_client.client import Client
from attention_client.errors import (
    AttentionError,
    DeadlineExceededError,
    NotFoundError,
    OutOfRangeError,
    ResourceExhaustedError,
    UnavailableError,
)
from attention_client.ray import moving
from attention_client.ray.figures import Figures
from attention_client.ray.ranges import PAGE, Range, Replica, SequenceMap
from attention_client.ray.state import Node, State

# Of the call of the map that a thread does.
_metadata: ContextVar[_channel.Metadata | None] = ContextVar("metadata", default=None)
_UNANSWERED = (UnavailableError, NotFoundError, DeadlineExceededError)


@contextlib.contextmanager
def sending(metadata: _channel.Metadata) -> Iterator[None]:
    """Calls of servers have this metadata, those that this thread makes."""
    token = _metadata.set(metadata)
    try:
        yield
    finally:
        _metadata.reset(token)


class _Client(Client):
    """It sends what sending() says, and its errors name its server."""

    def _call(
        self,
        method: str,
        request: bytes,
        timeout: float | None,
        metadata: _channel.Metadata | None,
    ) -> bytes:
        try:
            return super()._call(method, request, timeout, metadata)
        except UnavailableError as error:
            error.server = error.server or self.target
            raise

    def _metadata_with(
        self, metadata: _channel.Metadata | None
    ) -> tuple[tuple[str, str | bytes], ...]:
        of_call = _channel.mapping(_metadata.get())
        return super()._metadata_with({**of_call, **_channel.mapping(metadata)})


class Replicas:
    """Of all sequences. Who makes or deletes one has the map say so.

    connect: how servers are called, as of Client.
    """

    def __init__(
        self, state: State, connect: Mapping[str, Any], figures: Figures
    ) -> None:
        self._state = state
        self._figures = figures
        self._connect = moving.plain(connect)
        self._clients: dict[str, Client] = {}
        # Those whose servers have not answered when they were to be deleted.
        self._undeleted: set[Replica] = set()

    @contextlib.contextmanager
    def undone(self) -> Iterator[list[Replica]]:
        """Replicas that are listed are deleted where the block fails.

        They are listed before they are made: an answer may be lost.
        """
        made: list[Replica] = []
        try:
            yield made
        except BaseException:
            self.delete(made)
            raise

    def client(self, node: str) -> Client:
        target = self._node(node).target
        client = self._clients.get(target)  # others may forget() it at any moment
        if client is None:
            client = _Client(target, **self._connect)
            client = self._clients.setdefault(target, client)
        return client

    def forget(self, node: Node) -> None:
        """Lets go of its client: calls that it has are finished."""
        self._clients.pop(node.target, None)
        for replica in list(self._undeleted):
            if replica.node == node.name:
                self._undeleted.discard(replica)

    def clients_of(self, part: Range) -> list[tuple[Client, Replica]]:
        return [(self.client(replica.node), replica) for replica in part.replicas]

    def next_range(self, known: SequenceMap, size: int, filled: Sequence[int]) -> Range:
        """Of so many keys, or of as many as there is room for where that is less.

        filled: keys of each layer that are there.
        """
        return self._placed(known, known.end, size, self._make, filled)

    def imported(self, known: SequenceMap, start: int, size: int, file: str) -> Range:
        def read(known: SequenceMap, replica: Replica) -> None:
            told = (file, replica.name, self._state.name)
            moving.ask(self._node(replica.node).actor, "read", *told, timeout=None)
            self._figures.add("import", Path(file).stat().st_size)

        return self._placed(known, start, size, read)

    def _placed(
        self,
        known: SequenceMap,
        start: int,
        size: int,
        make: Callable[[SequenceMap, Replica], None],
        filled: Sequence[int] | None = None,
    ) -> Range:
        """A range where there is room for it; make() makes a replica at its server.

        A server that turns out to be full is passed over. ResourceExhaustedError where
        too few are left.
        """
        full: dict[str, ResourceExhaustedError] = {}
        with self.undone() as replicas:
            while len(replicas) < known.replicas:
                others = {*full, *(replica.node for replica in replicas)}
                found = self._best(known, size, others, filled)
                if found is None:
                    raise next(iter(full.values()), self._too_few(known))
                node, room = found
                if filled is not None:
                    if room < PAGE:  # what is set aside may never be taken
                        room = self._state.rooms.free(known, node.name)
                    if room < PAGE:  # else a full server would have the range for good
                        full[node.name] = ResourceExhaustedError(
                            f"node: {node.name!r} has no memory for {PAGE} keys of "
                            f"{known.name!r}"
                        )
                        continue
                    size = min(size, room)
                name = self._state.new_name(known.name, start)
                replicas.append(Replica(node.name, name))
                try:
                    make(known, replicas[-1])
                except ResourceExhaustedError as error:
                    full[node.name] = error
                    self.delete([replicas.pop()])
        return Range(start, size, tuple(replicas))

    def _best(
        self,
        known: SequenceMap,
        size: int,
        others: set[str],
        filled: Sequence[int] | None,
    ) -> tuple[Node, int] | None:
        """The best place, and its room, by what its server says now."""
        asked: set[str] = set()
        while places := self._state.places(known, size, others, filled):
            node, _ = places[0]
            if node.name in asked:
                return places[0]
            asked.add(node.name)
            store = self.client(node.name).info().sequence_store
            if store is not None:
                free = store.memory_limit - store.held_bytes
                self._state.rooms.set(node.name, free)
        return None

    def _too_few(self, known: SequenceMap) -> ResourceExhaustedError:
        return ResourceExhaustedError(
            f"{len(self._state.usable())} nodes can take keys of {known.name!r} "
            f"(expected {known.replicas})"
        )

    def _make(self, known: SequenceMap, replica: Replica) -> None:
        """Without keys."""
        form = known.form
        self.client(replica.node).sequence(
            heads=form.heads,
            width=form.key_width,
            value_width=form.value_width,
            layers=form.layers,
            dtype=form.datatype,
            name=replica.name,
            label=self._state.name,
        )

    def written(self, part: Range, file: str) -> int:
        """Bytes of a file of a range that is at one server."""
        [(actor, name)] = self._actors(part.replicas)
        try:
            size: int = moving.ask(actor, "write", name, file, timeout=None)
        except (AttentionError, OSError):
            self._actors(part.replicas)  # where it has been drained, that is why
            raise
        self._figures.add("export", size)
        return size

    def fork_range(self, made: SequenceMap, part: Range, length: int | None) -> Range:
        """made: whose range it becomes. length: of the sequence; None: all of it.

        One that is lost begins anew where none of its keys are kept.
        """
        cut = None if length is None or length >= part.end else length - part.start
        if cut == 0 and not part.replicas:
            return self._placed(made, part.start, part.capacity, self._make)
        if cut is None and len(part.replicas) > 1:
            # Appends go on: each replica is forked where all of them are now.
            counts = set(self.least(made, part) or ())
            cut = counts.pop() if len(counts) == 1 else None
        with self.undone() as replicas:
            for client, replica in self.clients_of(part):
                name = self._state.new_name(made.name, part.start)
                replicas.append(Replica(replica.node, name))
                client.open_sequence(replica.name).fork(name, cut)
        return dataclasses.replace(part, replicas=tuple(replicas))

    def new_replica(
        self,
        known: SequenceMap,
        part: Range,
        sources: Sequence[Replica],
        counts: list[int],
        node: str,
    ) -> Replica:
        """A new replica with the first keys of a range, counts of each layer.

        sources: those of its replicas that have them. Where the node has one already,
        they share memory: there may be no more.
        """
        starts = [min(counts)] * len(counts)
        here = [replica for replica in part.replicas if replica.node == node]
        with self.undone() as undone:
            if here:
                one = dataclasses.replace(part, replicas=tuple(here))
                # Not where it is gone, or behind: then as at any other node.
                with contextlib.suppress(NotFoundError, OutOfRangeError):
                    forked = self.fork_range(known, one, part.start + min(counts))
                    undone += forked.replicas
            if not undone:
                starts = [0] * len(counts)
                name = self._state.new_name(known.name, part.start)
                undone.append(Replica(node, name))
                self._make(known, undone[0])
            (replica,) = undone
            if starts != counts:
                self.copy(sources, counts, replica, starts)
        return replica

    def copy(
        self,
        sources: Sequence[Replica],
        counts: Sequence[int],
        target: Replica,
        starts: Sequence[int],
    ) -> None:
        """Has target take keys of the first source that is there.

        counts: keys of each layer that it has then. starts: those that it has.
        """
        size = moving.copy(
            self._actors(sources),
            counts,
            self._node(target.node).target,
            target.name,
            starts,
        )
        self._figures.add("move", size)

    def held(self, known: SequenceMap, part: Range) -> list[tuple[int, ...]]:
        """Keys of each layer, at each replica."""
        return [
            moving.held(client, known, part, replica)
            for client, replica in self.clients_of(part)
        ]

    def least(self, known: SequenceMap, part: Range) -> list[int] | None:
        """Keys of each layer that all replicas have; None: there is none."""
        held = self.held(known, part)
        return [min(counts) for counts in zip(*held, strict=True)] or None

    def delete(self, replicas: Sequence[Replica]) -> None:
        for replica in replicas:
            # What is gone with its server is gone; one that does not answer is no
            # reason to fail: sweep() asks it again.
            with contextlib.suppress(*_UNANSWERED):
                client = self.client(replica.node)
                self._undeleted.add(replica)
                client.delete_sequences([replica.name])
                self._undeleted.discard(replica)

    def sweep(self, node: str) -> None:
        """Deletes what a map that has ended, or delete(), could not at a node."""
        with contextlib.suppress(*_UNANSWERED):
            kept = self.client(node).sequences(label=self._state.name)
            left = self._state.left_over([one.name for one in kept])
            self.delete([Replica(node, name) for name in left])
            self.delete([one for one in list(self._undeleted) if one.node == node])

    def _node(self, name: str) -> Node:
        try:
            return self._state.node(name)
        except NotFoundError:
            raise UnavailableError(f"node: {name!r} has gone") from None

    def _actors(self, replicas: Sequence[Replica]) -> list[tuple[str, str]]:
        """Of their nodes, and the names that these have for them."""
        return [(self._node(one.node).actor, one.name) for one in replicas]
