"""The cluster's map: which positions of which sequence are where.

It lives in a named actor, and in Ray's own key-value store, where the actor finds it
again after a restart. state.py says what a change of the map is, placing.py how keys
move with it, replicas.py what servers do for that, watching.py what goes on without
being asked; this says when.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from attention_client.errors import (
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    ResourceExhaustedError,
    UnavailableError,
)
from attention_client.info import SequenceForm
from attention_client.ray import checkpoints, exporting, moving
from attention_client.ray.figures import Figures
from attention_client.ray.node import NodeReport
from attention_client.ray.placing import Placement
from attention_client.ray.ranges import Range, Replica, SequenceMap, capacity
from attention_client.ray.replicas import Replicas, sending
from attention_client.ray.state import State
from attention_client.ray.watching import Watch

Method = TypeVar("Method", bound=Callable[..., Any])


def _without_lost_nodes(method: Method) -> Method:
    """Again where a node turns out to be gone."""

    @functools.wraps(method)
    def called(self: MapActor, *arguments: Any) -> Any:
        while True:
            before = self._state.node_names()
            try:
                return method(self, *arguments)
            except UnavailableError as error:
                self._watch.check_all(error.server)
                # Others may have found out before.
                if self._state.node_names() == before:
                    raise

    return called  # type: ignore[return-value]


def _check_name(name: str) -> None:
    """Servers check its letters, and take what State.new_name() makes of it."""
    if not 1 <= len(name) <= 200 or "@" in name:
        raise InvalidArgumentError(
            f"name: {name!r} (expected 1 to 200 letters, digits and . _ - : + = /)"
        )


class MapActor:
    """Its methods are called by clients and by AttentionCluster, by many at once.

    What changes a sequence holds the sequence's lock; reading the map holds none.
    """

    def __init__(self, name: str, connect: Mapping[str, Any]) -> None:
        self._state = State.load(name)
        self._ended = threading.Event()
        self._publishing = threading.Lock()  # each export deletes the one before it
        self._figures = Figures(name.rsplit(".", 1)[0])
        self._replicas = Replicas(self._state, connect, self._figures)
        self._placement = Placement(self._state, self._replicas, self._ended)
        self._watch = Watch(
            self._state,
            self._replicas,
            self._placement,
            connect,
            self._ended,
            self.drain,
            self._figures,
        )

    # Nodes.

    def add_node(self, actor: str, timeout: float) -> NodeReport:
        """Takes a node's actor, by its name, among those that hold keys."""
        return self._watch.add_node(actor, timeout)

    def nodes(self) -> list[NodeReport]:
        """Of those that answer."""
        return self._watch.nodes()

    def taken(self) -> list[str]:
        """Ray's ids of nodes that have a server, or are to have one again."""
        return [
            node.ray_node
            for node in self._state.all_nodes()
            if not (node.is_lost or node.is_leaving) or moving.is_alive(node.actor)
        ]

    def targets(self) -> dict[str, str]:
        return {node.name: node.target for node in self._state.nodes()}

    def drain(self, name: str) -> None:
        """Moves all that a node holds to others, and lets it go.

        NotFoundError where its server is lost meanwhile: its actor may have another
        one by then, which holds keys.
        """
        node = self._state.node(name)
        self._state.set_draining(name)
        try:
            if not self._state.usable() and self._keys_at(name):
                raise ResourceExhaustedError(
                    f"node: {name!r} is the last one (expected another one that takes "
                    "its keys: add_nodes() first)"
                )
            self._empty(name)
        except BaseException:
            with contextlib.suppress(NotFoundError):  # it has died
                self._state.set_draining(name, draining=False)
            self._watch.rebuild()  # for ranges that may have found no node meanwhile
            raise
        self._state.remove_node(name)
        self._replicas.forget(node)
        self._watch.let_go(node)

    @_without_lost_nodes
    def _empty(self, node: str) -> None:
        left = self._keys_at(node)
        while True:
            full: moving.SourceFullError | None = None
            # Each one's lock has been held then: what was under way before is over.
            for known in self._state.sequences():
                try:
                    self._placement.move_from(known.name, node)
                except moving.SourceFullError as error:
                    full = error  # those behind it may make room
            # A fork may have come meanwhile, of one that was there still.
            before, left = left, self._keys_at(node)
            if not left:
                return
            if full is not None and left >= before:
                raise full

    def _keys_at(self, node: str) -> int:
        return sum(known.load()[node] for known in self._state.sequences())

    @_without_lost_nodes
    def rebalance(self) -> int:
        """Moves ranges to nodes that have fewer of a sequence; how many."""
        moved = 0
        for known in self._state.sequences():
            moved += self._placement.rebalance(known.name)
        return moved

    # Sequences.

    def create(
        self, name: str, form: SequenceForm, replicas: int, range_keys: int
    ) -> SequenceMap:
        nodes = self._state.usable()
        if not 1 <= replicas <= len(nodes):
            raise InvalidArgumentError(
                f"replicas: {replicas} (expected 1 to {len(nodes)}, the nodes)"
            )
        if range_keys < 1:
            raise InvalidArgumentError(f"range_keys: {range_keys} (expected 1 or more)")
        _check_name(name)
        made = SequenceMap(name, form, replicas, range_keys, 0, ())
        self._state.add(made)
        try:
            return self.extend(name, 0, 1, [0] * form.layers)
        except BaseException:
            self._state.remove(name)
            raise

    def get(self, name: str) -> SequenceMap:
        return self._state.get(name)

    def names(self) -> list[str]:
        return sorted(known.name for known in self._state.sequences())

    @_without_lost_nodes
    def extend(
        self, name: str, position: int, end: int, filled: Sequence[int]
    ) -> SequenceMap:
        """Gives all positions up to end a place, for keys from position on.

        filled: keys of each layer, as far as the caller knows: what its ranges may
        still take in the others is not free.

        Where even the place before them is missing, no server would take them, and
        what the map had become would stay.
        """
        with self._placement.changing(name, needs_open=False) as known:
            if position > known.end:
                raise OutOfRangeError(
                    f"position: {position} leaves a gap, there is no key at "
                    f"{position - 1}"
                )
            while known.end < end:
                size = capacity(known, end, len(self._state.usable()))
                part = self._replicas.next_range(known, size, filled)
                known = self._state.put(known.changed([*known.ranges, part]))
            return known

    @_without_lost_nodes
    def refresh(
        self, name: str, version: int, suspects: Sequence[str], is_refused: bool
    ) -> SequenceMap:
        """The map, for a client whose map of that version failed.

        suspects: nodes that did not answer; those that do not answer now are lost.
        is_refused: an append was, so that replicas which are behind are caught up. A
        map of that version says that there is nothing to try again.
        """
        for node in suspects:
            self._watch.check(node)
        known = self._state.get(name)
        if known.version > version:
            return known
        # Once what changes it has ended.
        with self._placement.changing(name, needs_open=is_refused) as known:
            if known.version == version and is_refused:
                known = self._placement.catch_up(known)
            return known

    @_without_lost_nodes
    def describe(self, name: str) -> tuple[SequenceMap, list[int]]:
        """The map, and the keys of each layer that all replicas have."""
        with self._placement.changing(name, needs_open=False) as known:
            return known, self._placement.lengths(known)

    @_without_lost_nodes
    def fork(
        self, name: str, new_name: str, length: int | None
    ) -> tuple[SequenceMap, list[int]]:
        _check_name(new_name)
        if length is not None and length < 0:
            raise OutOfRangeError(f"length: {length} (expected 0 or more)")
        with self._placement.changing(name) as known:
            self._placement.check_length(known, length)
            kept = [p for p in known.ranges if length is None or p.start < length]
            kept = kept or list(known.ranges[:1])
            made = dataclasses.replace(known, name=new_name, ranges=(), version=0)
            self._state.add(made)
            parts: list[Range] = []
            try:
                # Who deletes it waits, or has done so.
                with self._state.lock(new_name), self._replicas.undone() as forked:
                    self._state.get(new_name)
                    # The last one first: appends go on, and are in the earlier ranges,
                    # too.
                    for part in reversed(kept):
                        parts.append(self._replicas.fork_range(made, part, length))
                        forked += parts[-1].replicas
                    self._state.put(made.changed(reversed(parts)))
            except BaseException:
                self._state.remove(new_name)
                raise
        try:
            self._make_alike(new_name)
            return self.describe(new_name)
        except BaseException:
            self.delete(new_name)
            raise

    @_without_lost_nodes
    def _make_alike(self, name: str) -> None:
        with self._placement.changing(name) as known:
            self._placement.make_alike(known)

    @_without_lost_nodes
    def truncate(self, name: str, length: int) -> SequenceMap:
        with self._placement.changing(name, needs_open=False) as known:
            self._placement.check_length(known, length)
            kept: list[Range] = []
            gone: list[Replica] = []
            with self._replicas.undone() as forked:
                for part in known.ranges:
                    if part.start >= length and part is not known.ranges[0]:
                        gone += part.replicas
                    elif length >= part.end:
                        kept.append(part)
                    else:
                        # By other names: an append that is under way goes nowhere.
                        kept.append(self._replicas.fork_range(known, part, length))
                        forked += kept[-1].replicas
                        gone += part.replicas
                # Marks are cut off, too.
                known = dataclasses.replace(known.changed(kept), moving=None)
                known = self._state.put(known)
            self._replicas.delete(gone)
            return known

    def with_metadata(
        self, metadata: dict[str, str | bytes], method: str, *arguments: Any
    ) -> Any:
        """What a method returns whose calls of servers have this metadata."""
        with sending(metadata):
            return getattr(self, method)(*arguments)

    def delete(self, name: str) -> None:
        with contextlib.suppress(NotFoundError), self._state.lock(name):
            known = self._state.get(name)
            self._state.remove(name)
            for part in known.ranges:
                self._replicas.delete(part.replicas)

    def give_up(self, name: str) -> None:
        """Deletes what somebody has asked for, who is not waiting for it any more.

        It may not have been made yet.
        """
        self._state.refuse(name)
        self.delete(name)

    @_without_lost_nodes
    def export(self, name: str, folder: str) -> int:
        """The files of an earlier checkpoint are whole until its index is replaced."""
        return exporting.export(
            self._replicas, self._placement, self._publishing, name, Path(folder)
        )

    def import_sequence(
        self, folder: str, name: str, replicas: int
    ) -> tuple[SequenceMap, list[int]]:
        index = Path(folder) / checkpoints.INDEX
        if not index.exists():
            raise NotFoundError(f"folder: {folder!r} has no {checkpoints.INDEX}")
        told = checkpoints.read(index)
        made = self.create(name, told.form, replicas, told.range_keys)
        try:
            with self._placement.changing(made.name) as known:
                self._replicas.delete(
                    [r for part in known.ranges for r in part.replicas]
                )
                known = self._state.put(known.changed([]))
                for one in told.parts:
                    if one.start != known.end:
                        raise InvalidArgumentError(
                            f"folder: {folder!r} has no range from position "
                            f"{known.end} on"
                        )
                    file = str(Path(folder) / one.file)
                    part = self._replicas.imported(known, one.start, one.capacity, file)
                    known = self._state.put(known.changed([*known.ranges, part]))
            self._check_no_gap(made.name, [one.file for one in told.parts])
            return self.describe(made.name)
        except BaseException:
            self.delete(made.name)
            raise

    @_without_lost_nodes
    def _check_no_gap(self, name: str, files: Sequence[str]) -> None:
        with self._placement.changing(name) as known:
            self._placement.check_no_gap(known, files)

    def copied_bytes(self) -> int:
        """That were moved, imported and exported since the actor started."""
        return self._figures.copied_bytes

    def end(self) -> None:
        """Stops every node's server, and forgets the map."""
        self._ended.set()
        self._watch.end()
        # All at once: one that hangs takes its time.
        with ThreadPoolExecutor(32) as threads:
            for node in self._state.all_nodes():
                threads.submit(moving.stop, node.actor)
        self._state.forget()
