"""What a change of the map does at the servers: ranges that are made, moved and forked.

Whoever changes a sequence is inside changing(), which holds the sequence's lock.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attention_client.client import Client
from attention_client.errors import (
    DeadlineExceededError,
    InvalidArgumentError,
    KeysLostError,
    NotFoundError,
    OutOfRangeError,
    ResourceExhaustedError,
    UnavailableError,
)
from attention_client.ray import moving
from attention_client.ray.figures import Figures
from attention_client.ray.ranges import Range, Replica, SequenceMap, lengths, shown
from attention_client.ray.state import Node, State

_LOST = (UnavailableError, NotFoundError)


class Placement:
    """The ranges of all sequences, at their servers.

    connect: how servers are called, as of Client. ended: set when the map ends.
    """

    def __init__(
        self,
        state: State,
        connect: Mapping[str, Any],
        ended: threading.Event,
        figures: Figures,
    ) -> None:
        self._state = state
        self._figures = figures
        self._connect = moving.plain(connect)
        self._ended = ended
        self._clients: dict[str, Client] = {}
        # Replicas whose servers have not answered when they were to be deleted.
        self._undeleted: set[Replica] = set()

    @contextlib.contextmanager
    def changing(self, name: str, *, needs_open: bool = True) -> Iterator[SequenceMap]:
        """Nobody else changes it meanwhile; a move that broke off comes to its end.

        needs_open: SourceFullError where a range stays closed to appends, because
        there is no room. Else its map says that it moves.
        """
        with self._state.lock(name):
            known = self._state.get(name)
            for part in known.ranges:
                if part.start != known.moving:
                    continue
                try:
                    known = self.rehome(known, part, part.replicas)
                except ResourceExhaustedError as error:
                    known = self._state.get(name)
                    if needs_open and known.moving is not None:
                        raise moving.SourceFullError(
                            error.message, retry_after=error.retry_after
                        ) from None
            yield known

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
            client = Client(target, **self._connect)
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

    def new_range(
        self, known: SequenceMap, start: int, size: int, nodes: Sequence[Node]
    ) -> Range:
        form = known.form
        with self.undone() as replicas:
            for node in nodes:
                name = self._state.new_name(known.name, start)
                replicas.append(Replica(node.name, name))
                self.client(node.name).sequence(
                    heads=form.heads,
                    width=form.key_width,
                    value_width=form.value_width,
                    layers=form.layers,
                    dtype=form.datatype,
                    name=name,
                    label=self._state.name,
                )
        return Range(start, size, tuple(replicas))

    def imported(self, known: SequenceMap, start: int, size: int, file: str) -> Range:
        with self.undone() as replicas:
            for node in self._state.places(known, known.replicas):
                name = self._state.new_name(known.name, start)
                replicas.append(Replica(node.name, name))
                read = (file, name, self._state.name)
                moving.ask(node.actor, "read", *read, timeout=None)
                self._figures.add("import", Path(file).stat().st_size)
        return Range(start, size, tuple(replicas))

    def fork_range(self, made: SequenceMap, part: Range, length: int | None) -> Range:
        """made: whose range it becomes. length: of the sequence; None: all of it.

        One that is lost begins anew where none of its keys are kept.
        """
        cut = None if length is None or length >= part.end else length - part.start
        if cut == 0 and not part.replicas:
            nodes = self._state.places(made, made.replicas)
            return self.new_range(made, part.start, part.capacity, nodes)
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

    def make_alike(self, known: SequenceMap) -> None:
        """Of a new fork: replicas that were forked amid appends to several layers."""
        for part in known.ranges:
            if len(part.replicas) > 1 and len(set(self.held(known, part))) > 1:
                known = self.rehome(known, part, part.replicas)

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

    def lengths(self, known: SequenceMap) -> list[int]:
        """Keys of each layer that are there: all replicas have them."""
        least = [self.least(known, part) for part in known.ranges]
        return lengths(known.form.layers, known.ranges, least)

    def catch_up(self, known: SequenceMap) -> SequenceMap:
        """Has replicas take what only those before them have, under the lock.

        A program has died, or is late, between two of them. The map is a new one where
        some were behind.
        """
        is_new = False
        for part in known.ranges:
            source, *others = self.held(known, part) or [()]
            for replica, counts in zip(part.replicas[1:], others, strict=True):
                if all(had >= has for had, has in zip(counts, source, strict=True)):
                    continue
                size = moving.copy(
                    self._actors(part.replicas[:1]),
                    source,
                    self._node(replica.node).target,
                    replica.name,
                    counts,
                )
                self._figures.add("move", size)
                is_new = True
        return self._state.put(known.changed(known.ranges)) if is_new else known

    def check_length(self, known: SequenceMap, length: int | None) -> None:
        if length is None:
            return
        shortest = min(self.lengths(known))
        if not 0 <= length <= shortest:
            raise OutOfRangeError(
                f"length: {length} (expected 0 to {shortest}, which every layer has)"
            )
        cut = [part for part in known.ranges if part.start < length < part.end]
        self.check_not_lost(dataclasses.replace(known, ranges=tuple(cut)))

    def check_not_lost(self, known: SequenceMap) -> None:
        missing = tuple((p.start, p.end) for p in known.ranges if not p.replicas)
        if missing:
            raise KeysLostError(
                f"the sequence {known.name!r} has lost its keys at positions "
                f"{shown(missing)}",
                missing,
            )

    def check_no_gap(self, known: SequenceMap, files: Sequence[str]) -> None:
        """Of files, which may have been of a sequence that was appended to."""
        pairs = itertools.pairwise(known.ranges)
        for file, (before, part) in zip(files, pairs, strict=False):
            # None where it was lost meanwhile, which others say.
            had, has = (self.least(known, one) or [] for one in (before, part))
            for count, more in zip(had, has, strict=False):
                if more and count < before.capacity:
                    raise InvalidArgumentError(
                        f"file: {file} has {count} keys (expected {before.capacity}: "
                        "there are keys behind them)"
                    )

    def delete(self, replicas: Sequence[Replica]) -> None:
        for replica in replicas:
            # What is gone with its server is gone; one that does not answer is no
            # reason to fail: sweep() asks it again.
            with contextlib.suppress(*_LOST, DeadlineExceededError):
                client = self.client(replica.node)
                self._undeleted.add(replica)
                client.delete_sequences([replica.name])
                self._undeleted.discard(replica)

    def sweep(self, node: str) -> None:
        """Deletes what a map that has ended, or delete(), could not at a node."""
        with contextlib.suppress(*_LOST, DeadlineExceededError):
            kept = self.client(node).sequences(label=self._state.name)
            left = self._state.left_over([one.name for one in kept])
            self.delete([Replica(node, name) for name in left])
            self.delete([one for one in list(self._undeleted) if one.node == node])

    def move(self, name: str, part: Range, onto: Sequence[Replica | Node]) -> bool:
        """rehome(); not where the range has changed: who asks for it looks again.

        A full one's keys are copied before the lock is taken.
        """
        try:
            with self._ahead(name, part, onto) as made, self.changing(name) as known:
                is_same = part in known.ranges
                if is_same:
                    self.rehome(known, part, onto, made)
                return is_same
        except UnavailableError:
            if part in self._state.get(name).ranges:
                raise
            return False  # its replicas went with it

    @contextlib.contextmanager
    def _ahead(
        self, name: str, part: Range, onto: Sequence[Replica | Node]
    ) -> Iterator[list[Replica]]:
        """A full range's new replicas; they go where the map does not have them then.

        Nobody appends to it, and who cuts it off makes another one.
        """
        known = self._state.get(name)
        counts = [0]
        with contextlib.suppress(*_LOST):  # rehome() asks those that answer
            counts = self.least(known, part) or counts
        new = [node.name for node in onto if isinstance(node, Node)]
        made: list[Replica] = []
        try:
            if min(counts) == part.capacity:
                for node in new:
                    one = self._copied(known, part, part.replicas, counts, node)
                    made.append(one)
            yield made
        finally:
            left = self._state.unnamed(replica.name for replica in made)
            self.delete([replica for replica in made if replica.name in left])

    def rehome(
        self,
        known: SequenceMap,
        part: Range,
        onto: Sequence[Replica | Node],
        made: Sequence[Replica] = (),
    ) -> SequenceMap:
        """Has a range at these nodes alone, under its sequence's lock.

        Replicas that stay where they are keep their keys, unless the range has room:
        then its keys are closed to appends, and forked for those that go on.
        made: replicas of a full range that are there already.
        """
        if not part.replicas:
            return self._state.replace_range(known.name, part)
        known = self._state.put(dataclasses.replace(known, moving=part.start))
        try:
            counts, is_open, closed = moving.close(self.clients_of(part), known, part)
        except moving.SourceFullError as error:
            if not error.has_marks:  # it takes appends as before
                self._state.put(dataclasses.replace(known, moving=None))
            raise
        names = [one.node if isinstance(one, Replica) else one.name for one in onto]
        # One that did not answer may be gone, and these the last ones.
        kept = [r for r in closed if r.node in names and not is_open]
        staying = {replica.node for replica in kept}
        with self.undone() as new:
            for name in names:
                if name not in staying:
                    ready = [one for one in made if one.node == name]
                    new += ready or [self._copied(known, part, closed, counts, name)]
            known = self._state.replace_range(
                known.name, dataclasses.replace(part, replicas=(*kept, *new))
            )
        self.delete([one for one in part.replicas if one not in kept])
        return known

    def _copied(
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
        made: Range | None = None
        if here:
            one = dataclasses.replace(part, replicas=tuple(here))
            # Not where it is gone, or behind: then as at any other node.
            with contextlib.suppress(NotFoundError, OutOfRangeError):
                made = self.fork_range(known, one, part.start + min(counts))
        if made is None:
            starts = [0] * len(counts)
            nodes = [self._node(node)]
            made = self.new_range(known, part.start, part.capacity, nodes)
        with self.undone() as undone:
            undone += made.replicas
            (replica,) = made.replicas
            if starts != counts:
                size = moving.copy(
                    self._actors(sources),
                    counts,
                    self._node(node).target,
                    replica.name,
                    starts,
                )
                self._figures.add("move", size)
        return replica

    def move_from(self, name: str, node: str) -> None:
        """All ranges that a node has of a sequence.

        ResourceExhaustedError where no other node has room for one of them.
        """
        full: dict[str, ResourceExhaustedError] = {}  # those that were tried for it
        with contextlib.suppress(NotFoundError):
            while True:
                with self.changing(name) as known:
                    part = next(
                        (p for p in known.ranges if _at(p, node)),
                        None,
                    )
                    if part is None:
                        return
                    stay: list[Any] = [r for r in part.replicas if r.node != node]
                    others = {node, *full, *(r.node for r in stay)}
                    free = self._state.places(known, 1, others, at_least=0)
                    if full and not free:
                        raise next(iter(full.values()))
                    if not stay and not free:
                        raise ResourceExhaustedError(
                            f"no node can take the keys of {node!r} (expected another "
                            "one: add_nodes() first)"
                        )
                try:
                    self.move(name, part, [*stay, *free])
                    full.clear()
                except ResourceExhaustedError as error:
                    if not free or isinstance(error, moving.SourceFullError):
                        raise
                    full[free[0].name] = error

    def rebalance(self, name: str) -> int:
        """As far as nodes have room."""
        moved = 0
        full: set[str] = set()
        with contextlib.suppress(NotFoundError, moving.SourceFullError):
            while True:
                with self.changing(name) as known:
                    step = self._state.better(known, full)
                    if step is None:
                        return moved
                    part, source, target = step
                    stay: list[Any] = [r for r in part.replicas if r.node != source]
                    onto = [*stay, self._state.node(target)]
                try:
                    moved += self.move(name, part, onto)
                except moving.SourceFullError:
                    raise
                except ResourceExhaustedError:
                    full.add(target)
        return moved

    def rebuild(self, name: str) -> None:
        """ResourceExhaustedError where no node has room for what is missing.

        DeadlineExceededError where somebody changes the sequence for long.
        """
        full: dict[str, ResourceExhaustedError] = {}
        with contextlib.suppress(NotFoundError):
            while not self._ended.is_set():
                with self._state.lock_soon(name), self.changing(name) as known:
                    step = self._state.thin(known, full)
                    if step is None:
                        if full and self._state.thin(known) is not None:
                            raise next(iter(full.values()))
                        return
                    part, node = step
                try:
                    self.move(name, part, [*part.replicas, node])
                except ResourceExhaustedError as error:
                    if isinstance(error, moving.SourceFullError):
                        raise
                    full[node.name] = error

    def _node(self, name: str) -> Node:
        try:
            return self._state.node(name)
        except NotFoundError:
            raise UnavailableError(f"node: {name!r} has gone") from None

    def _actors(self, replicas: Sequence[Replica]) -> list[tuple[str, str]]:
        """Of their nodes, and the names that these have for them."""
        return [(self._node(one.node).actor, one.name) for one in replicas]


def _at(part: Range, node: str) -> bool:
    return any(replica.node == node for replica in part.replicas)
