"""What the map's actor knows, and keeps in Ray's key-value store."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import pickle
import threading
import weakref
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence

from attention_client.errors import (
    AlreadyExistsError,
    CancelledError,
    DeadlineExceededError,
    NotFoundError,
    UnavailableError,
)
from attention_client.ray.ranges import Range, SequenceMap, in_order
from attention_client.ray.rooms import Rooms

_MOST_REFUSED = 1000  # names, of calls that the map may not have begun yet
_SOON = 1.0  # seconds


@dataclasses.dataclass(frozen=True)
class Node:
    """A server, and the actor that has started it."""

    name: str
    actor: str  # Ray's name of it
    target: str
    ray_node: str
    is_draining: bool = False
    is_lost: bool = False
    is_leaving: bool = False


class State:
    """Nodes and sequences. Each change is kept before others see it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rooms = Rooms()
        self._nodes: dict[str, Node] = {}
        self._lost: dict[str, Node] = {}
        self._leaving: dict[str, Node] = {}
        self._sequences: dict[str, SequenceMap] = {}
        self._refused: deque[str] = deque(maxlen=_MOST_REFUSED)
        # Each for as long as somebody has it, or waits for it.
        self._locks: weakref.WeakValueDictionary[str, threading.RLock]
        self._locks = weakref.WeakValueDictionary()
        self._lock = threading.RLock()
        # Of names that are made by this process, and by none before a restart.
        self._life = os.urandom(4).hex()
        self._made = itertools.count()

    @classmethod
    def load(cls, name: str) -> State:
        """What was kept under this name, else nothing.

        A drain has ended with the actor that did it: it is begun again by who wants it.
        """
        state = cls(name)
        for key in _kv().list(state._key("")):
            kept = _kv().get(key)
            if isinstance(kept, Node):
                nodes = state._lost if kept.is_lost else state._nodes
                nodes = state._leaving if kept.is_leaving else nodes
                nodes[kept.name] = dataclasses.replace(kept, is_draining=False)
            elif isinstance(kept, SequenceMap):
                state._sequences[kept.name] = kept
        for known in state.sequences():
            if not known.nodes() <= state.node_names():  # it ended amid lose()
                state.put(known)
        return state

    def forget(self) -> None:
        with self._lock:
            for key in _kv().list(self._key("")):
                _kv().delete(key)
            self._nodes.clear()
            self._lost.clear()
            self._leaving.clear()
            self._sequences.clear()

    def lock(self, name: str) -> threading.RLock:
        """Held by whoever changes the sequence."""
        with self._lock:
            return self._locks.setdefault(name, threading.RLock())

    @contextlib.contextmanager
    def lock_soon(self, name: str) -> Iterator[None]:
        """lock(), or a DeadlineExceededError: who has others to do goes on to them."""
        lock = self.lock(name)
        if not lock.acquire(timeout=_SOON):
            raise DeadlineExceededError(f"name: {name!r} is being changed")
        try:
            yield
        finally:
            lock.release()

    # Nodes.

    def nodes(self) -> list[Node]:
        with self._lock:
            return list(self._nodes.values())

    def node_names(self) -> set[str]:
        return {node.name for node in self.nodes()}

    def usable(self) -> list[Node]:
        return [node for node in self.nodes() if not node.is_draining]

    def node(self, name: str) -> Node:
        with self._lock:
            if name not in self._nodes:
                known = ", ".join(self._nodes)
                raise NotFoundError(f"node: {name!r} (expected one of {known})")
            return self._nodes[name]

    def add_node(self, node: Node) -> None:
        with self._lock:
            _kv().put(self._key(f"node/{node.name}"), node)
            self._nodes[node.name] = node

    def set_draining(self, name: str, *, draining: bool = True) -> None:
        with self._lock:  # a node that is lost meanwhile stays lost
            self.add_node(dataclasses.replace(self.node(name), is_draining=draining))

    def remove_node(self, name: str) -> None:
        """Puts it among those leaving, whose actors are to be stopped.

        NotFoundError where it has been lost, or removed, meanwhile.
        """
        with self._lock:
            node = dataclasses.replace(self.node(name), is_leaving=True)
            _kv().put(self._key(f"node/{name}"), node)
            del self._nodes[name]
            self._leaving[name] = node
            self.rooms.forget(name)

    def leaving(self) -> list[Node]:
        with self._lock:
            return list(self._leaving.values())

    def forget_leaving(self, name: str) -> None:
        with self._lock:
            _kv().delete(self._key(f"node/{name}"))
            self._leaving.pop(name, None)

    def lost(self) -> list[Node]:
        """Nodes in whose place their actors are to start servers."""
        with self._lock:
            return list(self._lost.values())

    def all_nodes(self) -> list[Node]:
        """Those lost or leaving, too."""
        with self._lock:  # one that is revived or lost meanwhile is in one of them
            known = (self._nodes, self._lost, self._leaving)
            return [node for nodes in known for node in nodes.values()]

    def forget_lost(self, name: str) -> None:
        with self._lock:
            _kv().delete(self._key(f"node/{name}"))
            self._lost.pop(name, None)

    def lose(self, name: str) -> bool:
        """Puts a node among those lost, without its replicas; whether it was there."""
        with self._lock:
            if name not in self._nodes:
                return False
            node = dataclasses.replace(self._nodes.pop(name), is_lost=True)
            _kv().put(self._key(f"node/{name}"), node)
            self._lost[name] = node
            self.rooms.forget(name)
            for known in self.sequences():
                if name in known.nodes():
                    self.put(known)
            return True

    # Sequences.

    def sequences(self) -> list[SequenceMap]:
        with self._lock:
            return list(self._sequences.values())

    def get(self, name: str) -> SequenceMap:
        with self._lock:
            if name not in self._sequences:
                raise NotFoundError(f"name: there is no sequence {name!r}")
            return self._sequences[name]

    def add(self, made: SequenceMap) -> None:
        """Takes the name; it is kept from put() on."""
        with self._lock:
            if made.name in self._sequences:
                raise AlreadyExistsError(f"name: there is a sequence {made.name!r}")
            if made.name in self._refused:
                raise CancelledError(f"name: {made.name!r} was given up")
            self._sequences[made.name] = made

    def refuse(self, name: str) -> None:
        """add() does not take it any more."""
        with self._lock:
            self._refused.append(name)

    def put(self, known: SequenceMap) -> SequenceMap:
        """Replicas at nodes that were lost meanwhile are left out."""
        with self._lock:
            ranges = tuple(
                dataclasses.replace(
                    part,
                    replicas=tuple(r for r in part.replicas if r.node in self._nodes),
                )
                for part in known.ranges
            )
            before = self._sequences.get(known.name)
            version = known.version
            if before is not None:
                version = max(version, before.version + 1)
            known = dataclasses.replace(known, ranges=ranges, version=version)
            _kv().put(self._key(f"sequence/{known.name}"), known)
            self._sequences[known.name] = known
            return known

    def replace_range(self, name: str, part: Range) -> SequenceMap:
        """In place of the one with its start, whose move has ended.

        UnavailableError where all of its nodes were lost meanwhile.
        """
        with self._lock:
            nodes = {replica.node for replica in part.replicas}
            if nodes and nodes.isdisjoint(self._nodes):
                raise UnavailableError(f"nodes: {sorted(nodes)} have gone")
            known = self.get(name).changed(
                part if one.start == part.start else one
                for one in self.get(name).ranges
            )
            return self.put(dataclasses.replace(known, moving=None))

    def remove(self, name: str) -> None:
        with self._lock:
            _kv().delete(self._key(f"sequence/{name}"))
            self._sequences.pop(name, None)

    # Where keys go.

    def new_name(self, sequence: str, start: int) -> str:
        """Of a range at a server; never used before."""
        return f"{sequence}@{start}.{self._life}.{next(self._made):x}"

    def left_over(self, names: Iterable[str]) -> list[str]:
        """Those that this cluster's map has made before a restart, and no longer has.

        They do not come back. What has been made since is not among them: it may be
        on its way into the map, and whoever makes it deletes it where that fails.
        """
        return self.unnamed(name for name in names if f".{self._life}." not in name)

    def unnamed(self, names: Iterable[str]) -> list[str]:
        """Those of replicas that no sequence has now."""
        named = {
            replica.name
            for known in self.sequences()
            for part in known.ranges
            for replica in part.replicas
        }
        return [name for name in names if name not in named]

    def places(
        self,
        known: SequenceMap,
        size: int,
        others: Collection[str] = (),
        filled: Sequence[int] | None = None,
    ) -> list[tuple[Node, int]]:
        """Nodes for a range of so many keys, the best first, and their room in keys.

        others: nodes that are no choice. filled: as of Rooms.of().
        """
        nodes = {n.name: n for n in self.usable() if n.name not in others}
        room = self.rooms.of(known, nodes, self.sequences(), filled)
        return [(nodes[name], room[name]) for name in in_order(known, size, room)]

    def thin(
        self, known: SequenceMap, others: Collection[str] = ()
    ) -> tuple[Range, Node] | None:
        """A range with fewer replicas than it is to have, and a node for one more.

        others: nodes that are no choice.
        """
        for part in known.ranges:
            if not 0 < len(part.replicas) < known.replicas:
                continue
            has = {replica.node for replica in part.replicas}
            for node, _ in self.places(known, part.capacity, has.union(others)):
                return part, node
        return None

    def better(
        self, known: SequenceMap, full: Collection[str] = ()
    ) -> tuple[Range, str, str] | None:
        """A range, and the nodes from and to which its move makes loads more alike.

        full: nodes that none is moved to.
        """
        has = known.load()
        load = {node.name: has[node.name] for node in self.usable()}
        targets = [name for name in load if name not in full]
        if not targets:
            return None
        source = max(load, key=lambda name: load[name])
        target = min(targets, key=lambda name: load[name])
        for part in known.ranges:
            at = {replica.node for replica in part.replicas}
            if (
                source in at
                and target not in at
                and load[target] + part.capacity < load[source]
            ):
                return part, source, target
        return None

    def _key(self, rest: str) -> str:
        return f"attention/{self.name}/{rest}"


class _KeyValueStore:
    """Ray's own, at its head node, which Ray Serve uses for the same purpose."""

    def put(self, key: str, value: object) -> None:
        from ray.experimental import internal_kv

        internal_kv._internal_kv_put(key, pickle.dumps(value), overwrite=True)

    def get(self, key: str) -> object:
        from ray.experimental import internal_kv

        data = internal_kv._internal_kv_get(key)
        return None if data is None else pickle.loads(data)

    def list(self, prefix: str) -> list[str]:
        from ray.experimental import internal_kv

        return [key.decode() for key in internal_kv._internal_kv_list(prefix)]

    def delete(self, key: str) -> None:
        from ray.experimental import internal_kv

        with contextlib.suppress(KeyError):
            internal_kv._internal_kv_del(key)


def _kv() -> _KeyValueStore:
    return _KeyValueStore()
