"""A sequence whose keys are at several servers."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from typing_extensions import Unpack

from attention_client import _channel
from attention_client._arrays import Array, like, to_numpy
from attention_client._handle import EndsWithBlock
from attention_client._known import Known, pair, with_extents
from attention_client._options import Options, is_wanted
from attention_client._reply import TENSORS, Result
from attention_client.errors import InvalidArgumentError, UnavailableError
from attention_client.info import SequenceForm
from attention_client.ray import fanout
from attention_client.ray.asking import Asking
from attention_client.ray.attempts import NewKeys, RefusedError, StaleError
from attention_client.ray.ranges import Range, Replica, SequenceMap, joined
from attention_client.ray.tree import LateError

if TYPE_CHECKING:
    from attention_client.ray.cluster import AttentionCluster

Returned = TypeVar("Returned")

_AT_ONCE = 16  # attempts; each follows a change of the map


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


class ShardedSequence(EndsWithBlock):
    """Keys and values by position at several servers, one list for each layer.

    AttentionCluster.sequence() makes one, open_sequence() and import_sequence() too.
    Calls are those of attention_client.Sequence, and so is what they mean, but for
    this: an append that crosses the end of a range goes in as one append for each
    range; a call sees the keys that this object knows of, whatever others append
    (describe() learns of those); results are output and lse.

    It may be used by several threads: appends to one layer one after the other, and
    describe(), truncate() beside no append.
    """

    def __init__(
        self,
        cluster: AttentionCluster,
        known: SequenceMap,
        lengths: list[int],
        *,
        is_own: bool = True,
    ) -> None:
        self._cluster = cluster
        self._map = known
        self._lengths = lengths
        self._is_own = is_own

    @property
    def name(self) -> str:
        return self._map.name

    @property
    def form(self) -> SequenceForm:
        return self._map.form

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(self._lengths)

    def __len__(self) -> int:
        return min(self._lengths)

    def __bool__(self) -> bool:
        return True  # also without keys

    def __repr__(self) -> str:
        return (
            f"ShardedSequence({self.name!r}, lengths={self._lengths}, "
            f"ranges={len(self._map.ranges)})"
        )

    def append(
        self,
        key: Any,
        value: Any,
        layer: int = 0,
        position: int | None = None,
        *,
        timeout: float | None = None,
        metadata: _channel.Metadata | None = None,
    ) -> int:
        """Puts keys and values behind those of a layer; its length then.

        As Sequence.append. Every replica has them then. Raises KeysLostError where
        the range that they belong to is lost.
        """
        layer = self._known().checked_layer(layer)
        rows = self._rows(key, value, layer, position)

        def attempt(asking: Asking) -> int:
            asking.append(rows)
            self._lengths[layer] = max(self._lengths[layer], rows.end)
            return self._lengths[layer]

        left = self._left(timeout)
        return self._until_up_to_date(attempt, layer, rows, left, metadata)

    def attend(
        self,
        query: Any,
        layer: int = 0,
        append: tuple[Any, Any] | None = None,
        position: int | None = None,
        *,
        partial: bool = False,
        timeout: float | None = None,
        metadata: _channel.Metadata | None = None,
        **options: Unpack[Options],
    ) -> ShardedResult:
        """Attention of the queries to the keys of a layer.

        As Sequence.attend. partial: where keys are lost, answers without them, and
        result.missing says which; else that is a KeysLostError. Options are those of
        Client.attend but for weights, top_k, key_weights, scores, dropout,
        empty_rows="uniform", packed batches and ParameterSet, which are an
        InvalidArgumentError.
        """
        layer = self._known().checked_layer(layer)
        array = to_numpy(query, "query")
        wide = with_extents(array, 4, "query")
        length, rows = self._lengths[layer], None
        if append is not None:
            rows = self._rows(*pair(append, "append", "key, value"), layer, position)
            length = rows.end  # also where there are more: an answer that was lost
        elif position is not None:
            raise InvalidArgumentError("position: given without keys to append")
        question = fanout.Question.of(wide, length, options)
        own = wide.ndim - array.ndim
        asked = options.get("lse")
        wants_lse = asked is not None and is_wanted("lse", asked)
        as_given = like(query)

        def back(array: Array) -> Any:
            # Of one answer it may be a view of what gRPC has brought.
            whole = array if array.flags.writeable else array.copy()
            return as_given(whole.reshape(whole.shape[own:]))

        def attempt(asking: Asking) -> ShardedResult:
            answer = asking.attend(question, rows, partial)
            if rows is not None:  # a read says nothing new
                self._lengths[layer] = max(self._lengths[layer], rows.end)
            merged = answer.result
            nothing: dict[str, Any] = dict.fromkeys(TENSORS)
            output = back(merged.output)
            lse = back(merged.lse) if wants_lse else None
            return ShardedResult(
                **{**nothing, "output": output, "lse": lse},
                id=options.get("id") or "",
                backend=merged.backend,
                kernel=merged.kernel,
                queue_ns=merged.queue_ns,
                compute_ns=merged.compute_ns,
                missing=answer.missing,
                servers=answer.servers,
            )

        left = self._left(timeout)
        return self._until_up_to_date(attempt, layer, rows, left, metadata)

    def fork(
        self,
        name: str | None = None,
        length: int | None = None,
        *,
        timeout: float | None = None,
        metadata: _channel.Metadata | None = None,
    ) -> ShardedSequence:
        """One that has the same keys, and goes its own way; they share memory.

        length: the first keys of every layer, in place of all. metadata: here, and in
        the methods below, of the calls that the map makes of the servers.
        """
        self._cluster._check_open()
        if length is not None:
            length = fanout.integer(length, "length")
        seconds = self._seconds(timeout)
        with self._cluster._making(name) as new:
            made, lengths = self._cluster._ask(
                "fork", self.name, new, length, timeout=seconds, metadata=metadata
            )
            return ShardedSequence(self._cluster, made, lengths)

    def truncate(
        self,
        length: int,
        *,
        timeout: float | None = None,
        metadata: _channel.Metadata | None = None,
    ) -> None:
        """Keeps the first keys of every layer."""
        self._cluster._check_open()
        length = fanout.integer(length, "length")
        self._map = self._cluster._ask(
            "truncate",
            self.name,
            length,
            timeout=self._seconds(timeout),
            metadata=metadata,
        )
        self._lengths[:] = [length] * len(self._lengths)

    def describe(
        self,
        *,
        timeout: float | None = None,
        metadata: _channel.Metadata | None = None,
    ) -> ShardedDescription:
        """What all replicas have; lengths and len() are of it from then on."""
        self._cluster._check_open()
        self._map, lengths = self._cluster._ask(
            "describe", self.name, timeout=self._seconds(timeout), metadata=metadata
        )
        self._lengths[:] = lengths
        missing = joined(
            (part.start, part.end) for part in self._map.ranges if not part.replicas
        )
        return ShardedDescription(
            self.name,
            self.form,
            self.lengths,
            self._map.ranges,
            missing,
            self._map.version,
        )

    def export(
        self,
        folder: str | os.PathLike[str],
        *,
        timeout: float | None = None,
        metadata: _channel.Metadata | None = None,
    ) -> int:
        """Writes a checkpoint into a folder that all nodes see; its bytes.

        One safetensors file for each range, and sequence.json, in place of those of an
        earlier one, which is whole until then. A relative folder is this program's.
        timeout: seconds; None: as long as it takes.
        """
        self._cluster._check_open()
        path = os.path.abspath(folder)  # nodes' own folders are others
        size: int = self._cluster._copy(
            "export", self.name, path, timeout=timeout, metadata=metadata
        )
        return size

    def delete(
        self,
        *,
        timeout: float | None = None,
        metadata: _channel.Metadata | None = None,
    ) -> None:
        """Ends it. Safe to call twice."""
        self._cluster._ask(
            "delete", self.name, timeout=self._seconds(timeout), metadata=metadata
        )

    def _known(self) -> Known:
        return fanout.known(self.form, Replica("", self.name))

    def _seconds(self, timeout: float | None) -> float:
        return self._cluster.timeout if timeout is None else timeout

    def _left(self, timeout: float | None) -> Callable[[], float]:
        end = time.monotonic() + self._seconds(timeout)
        return lambda: end - time.monotonic()

    def _rows(self, key: Any, value: Any, layer: int, position: int | None) -> NewKeys:
        known = self._known()
        if position is None:
            position = self._lengths[layer]
        position = fanout.integer(position, "position")
        if position < 0:  # of which no range would take a row
            raise InvalidArgumentError(f"position: {position} (expected 0 or more)")
        return NewKeys(known.rows(key, value), position)

    def _until_up_to_date(
        self,
        attempt: Callable[[Asking], Returned],
        layer: int,
        rows: NewKeys | None,
        left: Callable[[], float],
        metadata: _channel.Metadata | None,
    ) -> Returned:
        """Tries again where the map was out of date; rows: what needs a place there."""
        in_tree = True
        late: LateError | None = None
        for _ in range(_AT_ONCE):
            known = self._map
            asking = Asking(self._cluster, known, layer, left, metadata, in_tree)
            try:
                if rows is not None and rows.end > known.end:
                    self._cluster._check_open()
                    asking.check_no_gap(rows)
                    filled = list(self._lengths)
                    filled[layer] = rows.position
                    place = rows.position, rows.end, filled
                    known = self._cluster._ask(
                        "extend", known.name, *place, timeout=left()
                    )
                    self._map = known
                    asking = dataclasses.replace(asking, known=known)
                begin = time.monotonic()
                returned = attempt(asking)
                if late is not None:
                    # Where all have become slower, a tree is waited for as long as
                    # it takes without one.
                    self._cluster._recent.add([late.kind], time.monotonic() - begin)
                return returned
            except RefusedError as refused:
                error, in_tree = refused.error, False
                late = error if isinstance(error, LateError) else None
                self._cluster._trees.note(error)
                continue
            except StaleError as stale:
                error, told = stale.error, (stale.nodes, stale.is_refused)
                was_in_tree = stale.in_tree
            self._map = self._cluster._ask(
                "refresh", known.name, known.version, *told, timeout=left()
            )
            if self._map.version == known.version:
                if not was_in_tree:
                    raise error
                # They may not reach each other, where this program does.
                in_tree = False
                if isinstance(error, UnavailableError):
                    self._cluster._trees.note(error)
        raise error
