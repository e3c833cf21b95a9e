"""A sequence whose keys are at several servers."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from typing_extensions import Unpack

from attention_client import _channel, _sequence_calls
from attention_client._arrays import Array, like, to_numpy
from attention_client._handle import EndsWithBlock
from attention_client._known import Known, pair, with_extents
from attention_client._reply import Result
from attention_client._request import Options
from attention_client.errors import InvalidArgumentError
from attention_client.info import SequenceForm
from attention_client.ray import fanout
from attention_client.ray.outcomes import Outdated, lost, raise_first
from attention_client.ray.ranges import Range, Replica, SequenceMap, joined
from attention_client.ray.results import ShardedDescription, ShardedResult

if TYPE_CHECKING:
    from attention_client.ray.cluster import AttentionCluster

Returned = TypeVar("Returned")

_AT_ONCE = 16  # attempts; each follows a change of the map


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
        rows, position = self._rows(key, value, layer, position)
        end = position + rows["key"].shape[-2]
        left = self._left(timeout)

        def attempt(known: SequenceMap) -> int:
            calls = [
                call
                for part in known.ranges
                if part.start < end and position < part.end
                for call in self._appends(part, part.replicas, rows, layer, position)
            ]
            fanout.run(self._cluster._threads, calls, left, metadata)
            raise_first(calls)
            self._lengths[layer] = max(self._lengths[layer], end)
            return self._lengths[layer]

        return self._until_up_to_date(attempt, end, left)

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
        self._known().check_layer(layer)
        array = to_numpy(query, "query")
        wide = with_extents(array, 4, "query")
        length, rows = self._lengths[layer], None
        if append is not None:
            rows, position = self._rows(
                *pair(append, "append", "key, value"), layer, position
            )
            length = max(length, position + rows["key"].shape[-2])
        elif position is not None:
            raise InvalidArgumentError("position: given without keys to append")
        question = fanout.Question.of(wide, length, options)
        left = self._left(timeout)
        own = wide.ndim - array.ndim
        wants_lse = bool(options.get("lse"))
        as_given = like(query)

        def attempt(known: SequenceMap) -> ShardedResult:
            merged, missing, servers = self._ask(
                known, question, layer, rows, position, left, metadata, partial
            )
            self._lengths[layer] = max(self._lengths[layer], length)
            fields = {
                field.name: getattr(merged, field.name)
                for field in dataclasses.fields(Result)
            }
            fields["output"] = as_given(
                merged.output.reshape(merged.output.shape[own:])
            )
            lse = merged.lse.reshape(merged.lse.shape[own:])
            fields["lse"] = as_given(lse) if wants_lse else None
            return ShardedResult(**fields, missing=missing, servers=servers)

        return self._until_up_to_date(attempt, length if rows else 0, left)

    def fork(
        self,
        name: str | None = None,
        length: int | None = None,
        *,
        timeout: float | None = None,
    ) -> ShardedSequence:
        """One that has the same keys, and goes its own way; they share memory.

        length: the first keys of every layer, in place of all.
        """
        made, lengths = self._cluster._ask(
            "fork", self.name, name, length, timeout=timeout
        )
        return ShardedSequence(self._cluster, made, lengths)

    def truncate(self, length: int, *, timeout: float | None = None) -> None:
        """Keeps the first keys of every layer."""
        self._map = self._cluster._ask("truncate", self.name, length, timeout=timeout)
        self._lengths[:] = [length] * len(self._lengths)

    def describe(self, *, timeout: float | None = None) -> ShardedDescription:
        """What the servers have; lengths and len() are of it from then on."""
        self._map, lengths = self._cluster._ask("describe", self.name, timeout=timeout)
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

    def export(self, folder: str, *, timeout: float | None = None) -> int:
        """Writes a checkpoint into a folder that all nodes see; its bytes.

        One safetensors file for each range, and sequence.json, in place of those of an
        earlier one.
        """
        size: int = self._cluster._ask("export", self.name, folder, timeout=timeout)
        return size

    def delete(self, *, timeout: float | None = None) -> None:
        """Ends it. Safe to call twice."""
        self._cluster._ask("delete", self.name, timeout=timeout)

    def _known(self) -> Known:
        return fanout.known(self.form, Replica("", self.name))

    def _left(self, timeout: float | None) -> Callable[[], float]:
        end = time.monotonic() + (self._cluster.timeout if timeout is None else timeout)
        return lambda: end - time.monotonic()

    def _rows(
        self, key: Any, value: Any, layer: int, position: int | None
    ) -> tuple[dict[str, Array], int]:
        known = self._known()
        known.check_layer(layer)
        rows = known.rows(key, value)
        return rows, self._lengths[layer] if position is None else position

    def _appends(
        self,
        part: Range,
        replicas: tuple[Replica, ...],
        rows: dict[str, Array],
        layer: int,
        position: int,
    ) -> list[fanout.Call]:
        """Of the rows that belong to a range."""
        if not part.replicas:
            raise lost(self.name, [(part.start, part.end)])
        key, value, start = cut(rows, part, position)
        return [
            fanout.Call(
                self._cluster._client(replica.node),
                (replica,),
                _sequence_calls.append(
                    fanout.known(self.form, replica), key, value, layer, start
                ),
            )
            for replica in replicas
        ]

    def _ask(
        self,
        known: SequenceMap,
        question: fanout.Question,
        layer: int,
        rows: dict[str, Array] | None,
        position: int | None,
        left: Callable[[], float],
        metadata: _channel.Metadata | None,
        partial: bool,
    ) -> tuple[Result, tuple[tuple[int, int], ...], int]:
        """The merged result, missing positions, and how many servers answered."""
        parts = [part for part in known.ranges if question.sees(part)]
        appends: list[fanout.Call] = []
        tail: Range | None = None
        if rows is not None and position is not None:
            end = position + rows["key"].shape[-2]
            taking = [p for p in known.ranges if p.start < end and position < p.end]
            if len(taking) == 1 and taking[0].replicas:
                tail = taking[0]
                appends = self._appends(tail, tail.replicas[1:], rows, layer, position)
            else:
                # They go to several servers: first there, then all are asked.
                for part in taking:
                    appends += self._appends(part, part.replicas, rows, layer, position)
                fanout.run(self._cluster._threads, appends, left, metadata)
                raise_first(appends)
                appends = []
        missing = joined(
            (part.start, part.start + part.count(question.length))
            for part in parts
            if not part.replicas
        )
        if missing and not partial:
            raise lost(self.name, missing)
        calls = self._questions(known, parts, question, layer, tail)
        if tail is not None and rows is not None and position is not None:
            key, value, start = cut(rows, tail, position)
            steps = fanout.attend_appended(
                question,
                self.form,
                (tail, tail.replicas[0]),
                layer,
                (key, value),
                start,
                has_sinks=not calls,
            )
            client = self._cluster._client(tail.replicas[0].node)
            calls.append(fanout.Call(client, (tail.replicas[0],), steps))
        fanout.run(self._cluster._threads, calls + appends, left, metadata)
        raise_first(calls + appends)
        nodes = {replica.node for call in calls for replica in call.replicas}
        return fanout.merge([call.outcome for call in calls]), missing, len(nodes)

    def _questions(
        self,
        known: SequenceMap,
        parts: list[Range],
        question: fanout.Question,
        layer: int,
        tail: Range | None,
    ) -> list[fanout.Call]:
        """A call for each server that has some of the ranges, the tail apart."""
        live = [part for part in parts if part.replicas and part is not tail]
        if not live and tail is None:
            # No row sees a key: one server says what that gives.
            live = [part for part in known.ranges if part.replicas][:1]
            if not live:
                raise lost(self.name, [(0, known.end)])
        load: dict[str, int] = {}
        if tail is not None:
            load[tail.replicas[0].node] = tail.count(question.length)
        batches: dict[tuple[str, int], list[tuple[Range, Replica]]] = {}
        for part in live:
            replica = min(part.replicas, key=lambda one: load.get(one.node, 0))
            load[replica.node] = load.get(replica.node, 0) + part.capacity
            # Masks and biases fit one range.
            batch = part.start if question.by_key else 0
            batches.setdefault((replica.node, batch), []).append((part, replica))
        return [
            fanout.Call(
                self._cluster._client(node),
                tuple(replica for _, replica in batch),
                fanout.attend(question, self.form, batch, layer, has_sinks=number == 0),
            )
            for number, ((node, _), batch) in enumerate(batches.items())
        ]

    def _until_up_to_date(
        self,
        attempt: Callable[[SequenceMap], Returned],
        end: int,
        left: Callable[[], float],
    ) -> Returned:
        """Tries again where the map was out of date; end: how far it must reach."""
        for _ in range(_AT_ONCE):
            known = self._map
            if end > known.end:
                known = self._cluster._ask("extend", known.name, end, timeout=left())
                self._map = known
            try:
                return attempt(known)
            except Outdated as failed:
                error = failed.error
                suspects = failed.nodes
            self._map = self._cluster._ask(
                "refresh", known.name, known.version, suspects, timeout=left()
            )
            if self._map.version == known.version:
                raise error
        raise error


def cut(rows: dict[str, Array], part: Range, position: int) -> tuple[Any, Any, int]:
    """Keys and values that belong to a range, and where they go in it."""
    first = max(part.start - position, 0)
    last = part.end - position

    def of(name: str) -> Any:
        elements = rows[name][..., first:last, :]
        scale = rows.get(f"{name}_scale")
        return elements if scale is None else (elements, scale[..., first:last])

    return of("key"), of("value"), position + first - part.start
