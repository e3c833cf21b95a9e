"""Which positions of a sequence are where."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from attention_client.info import SequenceForm

PAGE = 64  # keys, of the servers' memory
# Ranges of the newest size that each node would have: of one for each, the newest one
# alone is so large that the busiest of 8 nodes has 1.4 times its share. More of them
# are more entries in each call: benchmarks/sharded says what one costs.
_AT_EACH = 8


@dataclasses.dataclass(frozen=True)
class Replica:
    """A range's keys at one server."""

    node: str
    name: str  # of the sequence at that server


@dataclasses.dataclass(frozen=True)
class Range:
    """Positions from start on, up to capacity of them, in every layer."""

    start: int
    capacity: int  # whole pages
    replicas: tuple[Replica, ...]  # none: its keys are lost

    @property
    def end(self) -> int:
        return self.start + self.capacity

    def count(self, length: int) -> int:
        """How many of its positions a layer of so many keys has."""
        return max(0, min(self.capacity, length - self.start))


@dataclasses.dataclass(frozen=True)
class SequenceMap:
    """Where a sequence's keys are. A change makes a new one, of a higher version."""

    name: str
    form: SequenceForm
    replicas: int  # that each range is to have
    range_keys: int  # the least capacity of a range
    version: int
    ranges: tuple[Range, ...]  # by position, without gaps
    # Start of the range that is closed to appends while it moves.
    moving: int | None = None

    @property
    def end(self) -> int:
        """Positions that have a place."""
        return self.ranges[-1].end if self.ranges else 0

    def changed(self, ranges: Iterable[Range]) -> SequenceMap:
        return dataclasses.replace(self, ranges=tuple(ranges), version=self.version + 1)

    def nodes(self) -> set[str]:
        return {replica.node for part in self.ranges for replica in part.replicas}

    def load(self) -> Counter[str]:
        """Positions that have a place at each node."""
        result: Counter[str] = Counter()
        for part in self.ranges:
            for replica in part.replicas:
                result[replica.node] += part.capacity
        return result


@dataclasses.dataclass(frozen=True)
class Rows:
    """What rows of queries see: first stands at the first row's position."""

    first: int
    count: int
    causal: bool
    left: int | None  # of the window; None: unbounded
    right: int | None

    def sees(self, start: int, count: int) -> bool:
        """Whether some row sees one of count keys from position start on."""
        if count == 0 or self.count == 0:
            return False
        last = self.first + self.count - 1
        if self.causal and start > last:
            return False
        if self.right is not None and start > last + self.right:
            return False
        return self.left is None or start + count - 1 >= self.first - self.left


def capacity(wanted: SequenceMap, end: int, nodes: int) -> int:
    """Of the next range, where positions up to end are wanted.

    It grows with the sequence, so that there are few ranges, and about as many keys at
    each node: a call has an entry for each range. One node has nothing to balance.
    """
    parts = _AT_EACH * nodes if nodes > 1 else 1
    keys = max(wanted.range_keys, -(-end // parts))
    return -(-keys // PAGE) * PAGE


def in_order(known: SequenceMap, size: int, room: Mapping[str, int]) -> list[str]:
    """Nodes in the order in which they take a range of so many keys.

    First those that have room for it: with the fewest keys of the sequence, of equal
    ones that with the most room. Then the others, that with the most room first. room:
    keys, of each node.
    """
    load = known.load()

    def place(node: str) -> tuple[bool, int, int]:
        fits = room[node] >= size
        return not fits, load[node] if fits else 0, -room[node]

    return sorted(room, key=place)


def joined(positions: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Ranges from start to before end, those beside each other as one."""
    result: list[tuple[int, int]] = []
    for start, end in sorted(positions):
        if result and result[-1][1] >= start:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return tuple(result)


def shown(positions: Iterable[tuple[int, int]]) -> str:
    """For messages: "0 to 4095, 8192 to 8200"."""
    return ", ".join(f"{start} to {end - 1}" for start, end in positions)


def lengths(
    layers: int, ranges: Sequence[Range], held: Sequence[Sequence[int] | None]
) -> list[int]:
    """Keys of each layer, from what each range holds of it; None: it is lost.

    A lost range counts as full, so that its keys are missed and not forgotten.
    """
    result = [0] * layers
    for part, keys in zip(ranges, held, strict=True):
        for layer in range(layers):
            count = part.capacity if keys is None else keys[layer]
            if count > 0:
                result[layer] = part.start + count
    return result
