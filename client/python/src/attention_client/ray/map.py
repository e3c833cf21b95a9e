"""The cluster's map: which positions of which sequence are where.

It lives in a named actor, and in Ray's own key-value store, where the actor finds it
again after a restart. The functions of state.py say what a change is; this says when.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from attention_client import _sequence_calls
from attention_client.client import Client
from attention_client.errors import (
    AttentionError,
    InvalidArgumentError,
    KeysLostError,
    NotFoundError,
    OutOfRangeError,
    ResourceExhaustedError,
    UnavailableError,
)
from attention_client.info import SequenceForm
from attention_client.ray import moving
from attention_client.ray.node import NodeReport, answers
from attention_client.ray.ranges import (
    Range,
    Replica,
    SequenceMap,
    capacity,
    lengths,
    shown,
)
from attention_client.ray.state import Node, State

_CHECK = 1.0  # seconds between two looks at every node
_REPORT = 30.0  # seconds that a node's report may take
_LOST = (UnavailableError, NotFoundError)

_logger = logging.getLogger("attention_client.ray")


Method = TypeVar("Method", bound=Callable[..., Any])


def _without_lost_nodes(method: Method) -> Method:
    """Of a sequence's name: again where a node of it turns out to be gone."""

    @functools.wraps(method)
    def called(self: MapActor, name: str, *arguments: Any) -> Any:
        while True:
            try:
                return method(self, name, *arguments)
            except UnavailableError:
                nodes = self._state.get(name).nodes()
                if not any([self._check(node) for node in nodes]):
                    raise

    return called  # type: ignore[return-value]


class MapActor:
    """Its methods are called by clients and by AttentionCluster, by many at once.

    What changes a sequence holds the sequence's lock; reading the map holds none.
    """

    def __init__(self, name: str, connect: Mapping[str, Any]) -> None:
        self._connect = dict(connect)
        self._state = State.load(name)
        self._clients: dict[str, Client] = {}
        self._pool = ThreadPoolExecutor(32)
        self._ended = threading.Event()
        self._rebuilding = threading.Event()
        self._rebuilding.set()  # after a restart there may be some
        for work in (self._watch, self._rebuild):
            threading.Thread(target=work, daemon=True).start()

    # Nodes.

    def add_node(self, actor: str, timeout: float) -> NodeReport:
        """Takes a node's actor, by its name, among those that hold keys."""
        report = self._report(actor, timeout)
        self._state.add_node(Node(report.node, actor, report.target, report.ray_node))
        self._rebuilding.set()
        return report

    def nodes(self) -> list[NodeReport]:
        """Of those that answer."""
        reports = self._reports()
        for node, report in reports:
            self._look_at(node, report)
        return [r for node, r in reports if r is not None and r.node == node.name]

    def targets(self) -> dict[str, str]:
        return {node.name: node.target for node in self._state.nodes()}

    def drain(self, name: str) -> None:
        """Moves all that a node holds to others, and lets it go."""
        node = self._state.node(name)
        self._state.set_draining(name)
        others = [n for n in self._state.usable() if n.name != name]
        if not others and any(m.keys_at(name) for m in self._state.sequences()):
            self._state.set_draining(name, draining=False)
            raise ResourceExhaustedError(
                f"node: {name!r} is the last one (expected another one that takes its "
                "keys: add_nodes() first)"
            )
        try:
            for known in self._state.sequences():
                self._move_from(known.name, name)
        except BaseException:
            self._state.set_draining(name, draining=False)
            raise
        self._state.remove_node(name)
        moving.stop(node.actor)

    def rebalance(self) -> int:
        """Moves ranges to nodes that have fewer of a sequence; how many."""
        moved = 0
        for known in self._state.sequences():
            moved += self._rebalance(known.name)
        return moved

    # Sequences.

    def create(
        self, name: str | None, form: SequenceForm, replicas: int, range_keys: int
    ) -> SequenceMap:
        nodes = self._state.usable()
        if not 1 <= replicas <= len(nodes):
            raise InvalidArgumentError(
                f"replicas: {replicas} (expected 1 to {len(nodes)}, the nodes)"
            )
        if range_keys < 1:
            raise InvalidArgumentError(f"range_keys: {range_keys} (expected 1 or more)")
        name = os.urandom(16).hex() if name is None else name
        if not 1 <= len(name) <= 200 or "@" in name:
            raise InvalidArgumentError(
                f"name: {name!r} (expected 1 to 200 letters, digits and . _ - : + = /)"
            )
        made = SequenceMap(name, form, replicas, range_keys, 0, ())
        self._state.add(made)
        try:
            return self.extend(name, 1)
        except BaseException:
            self._state.remove(name)
            raise

    def get(self, name: str) -> SequenceMap:
        return self._state.get(name)

    def names(self) -> list[str]:
        return sorted(known.name for known in self._state.sequences())

    def extend(self, name: str, end: int) -> SequenceMap:
        """Gives all positions up to end a place."""
        with self._changing(name) as known:
            while known.end < end:
                size = capacity(known, end, len(self._state.usable()))
                nodes = self._state.places(known, known.replicas)
                try:
                    part = self._new_range(known, known.end, size, nodes)
                except UnavailableError:
                    if not any([self._check(node.name) for node in nodes]):
                        raise
                    known = self._state.get(name)
                    continue  # at others
                known = self._state.put(known.changed([*known.ranges, part]))
            return known

    def refresh(self, name: str, version: int, suspects: Sequence[str]) -> SequenceMap:
        """The map, for a client whose map of that version failed.

        suspects: nodes that did not answer; those that do not answer now are lost.
        """
        for node in suspects:
            self._check(node)
        known = self._state.get(name)
        if known.version > version:
            return known
        with self._changing(name) as known:  # once what changes it has ended
            if known.version > version:
                return known
            return known

    @_without_lost_nodes
    def describe(self, name: str) -> tuple[SequenceMap, list[int]]:
        """The map, and the keys of each layer."""
        with self._changing(name) as known:
            held = [self._held(known, part) for part in known.ranges]
            for part, counts in zip(known.ranges, held, strict=True):
                if len(set(counts)) > 1:  # an append has reached some replicas
                    known = self._rehome(known, part, part.replicas)
            held = [self._held(known, part) for part in known.ranges]
            first = [counts[0] if counts else None for counts in held]
            return known, lengths(known.form.layers, known.ranges, first)

    @_without_lost_nodes
    def fork(
        self, name: str, new_name: str | None, length: int | None
    ) -> tuple[SequenceMap, list[int]]:
        if length is not None and length < 0:
            raise OutOfRangeError(f"length: {length} (expected 0 or more)")
        new_name = os.urandom(16).hex() if new_name is None else new_name
        with self._changing(name) as known:
            self._check_length(known, length)
            kept = [p for p in known.ranges if length is None or p.start < length]
            kept = kept or list(known.ranges[:1])
            made = dataclasses.replace(known, name=new_name, ranges=(), version=0)
            self._state.add(made)
            parts: list[Range] = []
            try:
                for part in kept:
                    parts.append(self._fork_range(made, part, length))
                self._state.put(made.changed(parts))
            except BaseException:
                self._state.remove(new_name)
                self._delete([r for part in parts for r in part.replicas])
                raise
        return self.describe(new_name)

    @_without_lost_nodes
    def truncate(self, name: str, length: int) -> SequenceMap:
        with self._changing(name) as known:
            self._check_length(known, length)
            kept: list[Range] = []
            for part in known.ranges:
                if part.start >= length and part is not known.ranges[0]:
                    self._delete(part.replicas)
                    continue
                for replica in part.replicas if length < part.end else ():
                    client = self._client(replica.node)
                    client.open_sequence(replica.name).truncate(length - part.start)
                kept.append(part)
            return self._state.put(known.changed(kept))

    def delete(self, name: str) -> None:
        with contextlib.suppress(NotFoundError), self._state.lock(name):
            known = self._state.get(name)
            self._state.remove(name)
            for part in known.ranges:
                self._delete(part.replicas)

    @_without_lost_nodes
    def export(self, name: str, folder: str) -> int:
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        with self._changing(name) as known:
            self._check_not_lost(known)
            told: dict[str, Any] = {
                "form": dataclasses.asdict(known.form),
                "range_keys": known.range_keys,
                "ranges": [],
            }
            size = 0
            for part in known.ranges:
                file = f"{part.start}.safetensors"
                replica = part.replicas[0]
                actor = self._state.node(replica.node).actor
                size += moving.ask(actor, "write", replica.name, str(path / file))
                told["ranges"].append(
                    {"start": part.start, "capacity": part.capacity, "file": file}
                )
        index = path / "sequence.json"
        partial = path / "sequence.json.part"
        partial.write_text(json.dumps(told, indent=1))
        partial.replace(index)
        return size + index.stat().st_size

    def import_sequence(
        self, folder: str, name: str | None, replicas: int
    ) -> tuple[SequenceMap, list[int]]:
        index = Path(folder) / "sequence.json"
        if not index.exists():
            raise NotFoundError(f"folder: {folder!r} has no sequence.json")
        told = json.loads(index.read_text())
        form = SequenceForm(**told["form"])
        made = self.create(name, form, replicas, told["range_keys"])
        try:
            with self._changing(made.name) as known:
                self._delete([r for part in known.ranges for r in part.replicas])
                known = self._state.put(known.changed([]))
                for one in told["ranges"]:
                    file = str(Path(folder) / one["file"])
                    part = self._imported(known, one["start"], one["capacity"], file)
                    known = self._state.put(known.changed([*known.ranges, part]))
            return self.describe(made.name)
        except BaseException:
            self.delete(made.name)
            raise

    def end(self) -> None:
        """Stops every node's server, and forgets the map."""
        self._ended.set()
        self._rebuilding.set()
        for node in self._state.nodes():
            with contextlib.suppress(Exception):
                moving.stop(node.actor)
        self._state.forget()

    # What those are made of.

    @contextlib.contextmanager
    def _changing(self, name: str) -> Iterator[SequenceMap]:
        """Nobody else changes it meanwhile; a move that broke off comes to its end."""
        with self._state.lock(name):
            known = self._state.get(name)
            for part in known.ranges:
                if part.start == known.moving:
                    known = self._rehome(known, part, part.replicas)
            yield known

    def _client(self, node: str) -> Client:
        target = self._state.node(node).target
        if target not in self._clients:
            self._clients[target] = Client(target, **moving.plain(self._connect))
        return self._clients[target]

    def _clients_of(self, part: Range) -> list[tuple[Client, Replica]]:
        return [(self._client(replica.node), replica) for replica in part.replicas]

    def _new_range(
        self, known: SequenceMap, start: int, size: int, nodes: Sequence[Node]
    ) -> Range:
        replicas = tuple(
            Replica(node.name, self._state.new_name(known.name, start))
            for node in nodes
        )
        for replica in replicas:
            form = known.form
            self._client(replica.node).sequence(
                heads=form.heads,
                width=form.key_width,
                value_width=form.value_width,
                layers=form.layers,
                dtype=form.datatype,
                name=replica.name,
                label=self._state.name,
            )
        return Range(start, size, replicas)

    def _imported(self, known: SequenceMap, start: int, size: int, file: str) -> Range:
        replicas = []
        for node in self._state.places(known, known.replicas):
            replica = Replica(node.name, self._state.new_name(known.name, start))
            moving.ask(node.actor, "read", file, replica.name, self._state.name)
            replicas.append(replica)
        return Range(start, size, tuple(replicas))

    def _fork_range(self, made: SequenceMap, part: Range, length: int | None) -> Range:
        cut = None if length is None or length >= part.end else length - part.start
        replicas = []
        for client, replica in self._clients_of(part):
            name = self._state.new_name(made.name, part.start)
            client.open_sequence(replica.name).fork(name, cut)
            replicas.append(Replica(replica.node, name))
        return dataclasses.replace(part, replicas=tuple(replicas))

    def _held(self, known: SequenceMap, part: Range) -> list[tuple[int, ...]]:
        """Keys of each layer, at each replica."""
        return [
            client._run(_sequence_calls.describe(replica.name), None, None).lengths
            for client, replica in self._clients_of(part)
        ]

    def _check_length(self, known: SequenceMap, length: int | None) -> None:
        if length is None:
            return
        held = [self._held(known, part) for part in known.ranges]
        first = [counts[0] if counts else None for counts in held]
        shortest = min(lengths(known.form.layers, known.ranges, first))
        if not 0 <= length <= shortest:
            raise OutOfRangeError(
                f"length: {length} (expected 0 to {shortest}, which every layer has)"
            )

    def _check_not_lost(self, known: SequenceMap) -> None:
        missing = tuple((p.start, p.end) for p in known.ranges if not p.replicas)
        if missing:
            raise KeysLostError(
                f"the sequence {known.name!r} has lost its keys at positions "
                f"{shown(missing)}",
                missing,
            )

    def _delete(self, replicas: Sequence[Replica]) -> None:
        for replica in replicas:
            # What is gone with its server is gone.
            with contextlib.suppress(*_LOST):
                self._client(replica.node).delete_sequences([replica.name])

    def _rehome(
        self, known: SequenceMap, part: Range, onto: Sequence[Replica | Node]
    ) -> SequenceMap:
        """Has a range at these nodes alone, under its sequence's lock.

        Replicas that stay where they are keep their keys, unless the range has room:
        then its keys are closed to appends, and copied to where appends go on.
        """
        if not part.replicas:
            return self._state.replace_range(known.name, part)
        known = self._state.put(dataclasses.replace(known, moving=part.start))
        counts, is_open = moving.close(self._clients_of(part), known, part)
        names = [one.node if isinstance(one, Replica) else one.name for one in onto]
        kept = [r for r in part.replicas if r.node in names and not is_open]
        staying = {replica.node for replica in kept}
        nodes = [self._state.node(name) for name in names if name not in staying]
        new = self._new_range(known, part.start, part.capacity, nodes).replicas
        try:
            for replica in new:
                moving.copy(
                    [(self._state.node(r.node).actor, r.name) for r in part.replicas],
                    counts,
                    self._state.node(replica.node).target,
                    replica.name,
                )
        except BaseException:
            self._delete(new)
            raise
        known = self._state.replace_range(
            known.name, dataclasses.replace(part, replicas=(*kept, *new))
        )
        self._delete([one for one in part.replicas if one not in kept])
        return known

    def _move_from(self, name: str, node: str) -> None:
        """All ranges that a node has of a sequence."""
        with contextlib.suppress(NotFoundError):
            while True:
                with self._changing(name) as known:
                    part = next(
                        (p for p in known.ranges if _at(p, node)),
                        None,
                    )
                    if part is None:
                        return
                    others = {r.node for r in part.replicas if r.node != node}
                    free = self._state.places(known, 1, others | {node}, at_least=0)
                    stay: list[Any] = [r for r in part.replicas if r.node != node]
                    if not stay and not free:
                        raise ResourceExhaustedError(
                            f"no node can take the keys of {node!r} (expected another "
                            "one: add_nodes() first)"
                        )
                    self._rehome(known, part, [*stay, *free])

    def _rebalance(self, name: str) -> int:
        moved = 0
        with contextlib.suppress(NotFoundError):
            while True:
                with self._changing(name) as known:
                    step = self._state.better(known)
                    if step is None:
                        return moved
                    part, source, target = step
                    stay: list[Any] = [r for r in part.replicas if r.node != source]
                    self._rehome(known, part, [*stay, self._state.node(target)])
                    moved += 1
        return moved

    # What goes on by itself.

    def _report(self, actor: str, timeout: float = _REPORT) -> NodeReport:
        report: NodeReport = moving.ask(actor, "report", timeout=timeout)
        return report

    def _reports(self) -> list[tuple[Node, NodeReport | None]]:
        def one(node: Node) -> NodeReport | None:
            try:
                return self._report(node.actor)
            except (AttentionError, OSError, RuntimeError) as error:
                _logger.warning("%s: %s", node.name, error)
                return None

        nodes = self._state.nodes()
        return list(zip(nodes, self._pool.map(one, nodes), strict=True))

    def _check(self, name: str) -> bool:
        """Forgets a node whose server is gone; whether it was."""
        with contextlib.suppress(NotFoundError):
            node = self._state.node(name)
            if not answers(node.target, moving.plain(self._connect)):
                self._lose(node)
                return True
        return False

    def _lose(self, node: Node) -> None:
        _logger.warning("node %s is lost", node.name)
        if self._state.lose(node.name):
            self._rebuilding.set()
            self._start(lambda: self._revive(node))

    def _revive(self, node: Node) -> None:
        """A new server in its place, where the actor is still there."""
        while moving.is_alive(node.actor):
            try:
                self.add_node(node.actor, _REPORT)
                return
            except (AttentionError, OSError, RuntimeError) as error:
                _logger.warning("%s: %s", node.actor, error)
            if self._ended.wait(_CHECK):
                return

    def _watch(self) -> None:
        """Finds servers that are gone or started anew, and nodes that Ray drains."""
        while not self._ended.wait(_CHECK):
            for node, report in self._reports():
                if self._ended.is_set():
                    return
                self._look_at(node, report)

    def _look_at(self, node: Node, report: NodeReport | None) -> None:
        if report is None:
            if not moving.is_alive(node.actor):
                self._lose(node)
        elif report.node != node.name:
            self._lose(node)
        elif not node.is_draining and node.ray_node in moving.draining():
            self._start(lambda: self.drain(node.name))

    def _start(self, work: Callable[[], object]) -> None:
        def logged() -> None:
            try:
                work()
            except Exception:
                _logger.exception("background work failed")

        threading.Thread(target=logged, daemon=True).start()

    def _rebuild(self) -> None:
        """Gives ranges that have lost a replica another one."""
        while not self._ended.is_set():
            self._rebuilding.wait()
            self._rebuilding.clear()
            for known in self._state.sequences():
                try:
                    self._rebuild_sequence(known.name)
                except (AttentionError, OSError):
                    if not self._ended.is_set():
                        _logger.exception("sequence %s is not rebuilt", known.name)

    def _rebuild_sequence(self, name: str) -> None:
        with contextlib.suppress(NotFoundError):
            while not self._ended.is_set():
                with self._changing(name) as known:
                    step = self._state.thin(known)
                    if step is None:
                        return
                    part, nodes = step
                    self._rehome(known, part, [*part.replicas, *nodes])


def _at(part: Range, node: str) -> bool:
    return any(replica.node == node for replica in part.replicas)
