"""Which nodes have a sequence's ranges: they are moved, spread and rebuilt.

Whoever changes a sequence is inside changing(), which holds the sequence's lock.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from attention_client.errors import (
    InvalidArgumentError,
    KeysLostError,
    NotFoundError,
    OutOfRangeError,
    ResourceExhaustedError,
    UnavailableError,
)
from attention_client.ray import moving
from attention_client.ray.ranges import Range, Replica, SequenceMap, lengths, shown
from attention_client.ray.replicas import Replicas
from attention_client.ray.state import Node, State


class Placement:
    """The ranges of all sequences. ended: set when the map ends."""

    def __init__(
        self, state: State, replicas: Replicas, ended: threading.Event
    ) -> None:
        self._state = state
        self._replicas = replicas
        self._ended = ended

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

    def make_alike(self, known: SequenceMap) -> None:
        """Of a new fork: replicas that were forked amid appends to several layers."""
        for part in known.ranges:
            if len(part.replicas) < 2:
                continue
            if len(set(self._replicas.held(known, part))) > 1:
                known = self.rehome(known, part, part.replicas)

    def lengths(self, known: SequenceMap) -> list[int]:
        """Keys of each layer that are there: all replicas have them."""
        least = [self._replicas.least(known, part) for part in known.ranges]
        return lengths(known.form.layers, known.ranges, least)

    def catch_up(self, known: SequenceMap) -> SequenceMap:
        """Has replicas take what only those before them have, under the lock.

        A program has died, or is late, between two of them. The map is a new one where
        some were behind.
        """
        is_new = False
        for part in known.ranges:
            source, *others = self._replicas.held(known, part) or [()]
            for replica, counts in zip(part.replicas[1:], others, strict=True):
                if all(had >= has for had, has in zip(counts, source, strict=True)):
                    continue
                self._replicas.copy(part.replicas[:1], source, replica, counts)
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
            least = (self._replicas.least(known, one) for one in (before, part))
            had, has = (counts or [] for counts in least)
            for count, more in zip(had, has, strict=False):
                if more and count < before.capacity:
                    raise InvalidArgumentError(
                        f"file: {file} has {count} keys (expected {before.capacity}: "
                        "there are keys behind them)"
                    )

    def move(self, name: str, part: Range, onto: Sequence[Replica | Node]) -> bool:
        """rehome(); not where the range has changed, or a node takes no keys any more.

        Who asks for it looks again. A full range's keys are copied before the lock is
        taken.
        """
        new = {node.name for node in onto if isinstance(node, Node)}
        try:
            with self._ahead(name, part, onto) as made, self.changing(name) as known:
                # One that is drained by now may have been looked at for the last time.
                usable = {node.name for node in self._state.usable()}
                is_same = part in known.ranges and new <= usable
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
        # rehome() asks those that answer.
        with contextlib.suppress(UnavailableError, NotFoundError):
            counts = self._replicas.least(known, part) or counts
        new = [node.name for node in onto if isinstance(node, Node)]
        made: list[Replica] = []
        try:
            if min(counts) == part.capacity:
                for node in new:
                    one = self._replicas.new_replica(
                        known, part, part.replicas, counts, node
                    )
                    made.append(one)
            yield made
        finally:
            left = self._state.unnamed(replica.name for replica in made)
            self._replicas.delete([replica for replica in made if replica.name in left])

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
            sources = self._replicas.clients_of(part)
            counts, is_open, closed = moving.close(sources, known, part)
        except moving.SourceFullError as error:
            if not error.has_marks:  # it takes appends as before
                self._state.put(dataclasses.replace(known, moving=None))
            raise
        names = [one.node if isinstance(one, Replica) else one.name for one in onto]
        # One that did not answer may be gone, and these the last ones.
        kept = [r for r in closed if r.node in names and not is_open]
        staying = {replica.node for replica in kept}
        with self._replicas.undone() as new:
            for name in names:
                if name not in staying:
                    ready = [one for one in made if one.node == name]
                    new += ready or [
                        self._replicas.new_replica(known, part, closed, counts, name)
                    ]
            known = self._state.replace_range(
                known.name, dataclasses.replace(part, replicas=(*kept, *new))
            )
        self._replicas.delete([one for one in part.replicas if one not in kept])
        return known

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
                    places = self._state.places(known, part.capacity, others)
                    free = [node for node, _ in places[:1]]
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
        leaving: set[str] = set()
        with contextlib.suppress(NotFoundError):
            while not self._ended.is_set():
                with self._state.lock_soon(name), self.changing(name) as known:
                    step = self._state.thin(known, leaving.union(full))
                    if step is None:
                        if full and self._state.thin(known) is not None:
                            raise next(iter(full.values()))
                        return
                    part, node = step
                if node.ray_node in moving.draining():
                    # Where its own drain fails, this would go on for ever.
                    leaving.add(node.name)
                    continue
                try:
                    self.move(name, part, [*part.replicas, node])
                except ResourceExhaustedError as error:
                    if isinstance(error, moving.SourceFullError):
                        raise
                    full[node.name] = error


def _at(part: Range, node: str) -> bool:
    return any(replica.node == node for replica in part.replicas)
