"""What calls of sequences over several servers give."""

from __future__ import annotations

import dataclasses

from attention_client._reply import Result
from attention_client.info import SequenceForm
from attention_client.ray.ranges import Range


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ShardedResult(Result):
    """A result of several servers: times are those of the slowest one.

    missing: positions that took no part because their keys are lost, pairs of the first
    one and the one after the last; only with partial=True are there any. servers: how
    many have answered.
    """

    missing: tuple[tuple[int, int], ...] = ()
    servers: int = 0


@dataclasses.dataclass(frozen=True)
class ShardedDescription:
    """What a sequence is, and where."""

    name: str
    form: SequenceForm
    lengths: tuple[int, ...]  # keys of each layer; lost ranges count as full
    ranges: tuple[Range, ...]
    missing: tuple[tuple[int, int], ...]  # positions that are lost
    version: int  # of the map
