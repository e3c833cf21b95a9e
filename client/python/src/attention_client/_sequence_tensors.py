"""Append and Attend of sequences, step by step, for both clients; as in _calls."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from attention_client import _channel, _messages
from attention_client._arrays import Array, like, to_numpy
from attention_client._calls import Steps
from attention_client._known import Known, pair, with_extents
from attention_client._options import Options, set_field
from attention_client._reply import TENSORS, Result, decode
from attention_client._request import encode, prepare
from attention_client._wire import Message, sendable
from attention_client.errors import InvalidArgumentError

_APPEND = _messages.numbers("attention.v1.AppendRequest")


@dataclasses.dataclass(eq=False)
class Append:
    """A request of Append: fields beside tensors, and those."""

    message: Any
    arrays: dict[str, Array]  # as a sequence has them

    def __bytes__(self) -> bytes:
        message = Message()
        message.add_bytes(self.message.SerializeToString())
        for name, array in self.arrays.items():
            message.add_tensor(_APPEND[name], array)
        return message.join()


def append(
    known: Known, key: Any, value: Any, layer: int, position: int | None
) -> Steps[int]:
    """The layer's length then."""
    layer = known.checked_layer(layer)
    arrays = {
        name: sendable(array, name) for name, array in known.rows(key, value).items()
    }
    message = _messages.own("AppendRequest")(name=known.name, layer=layer)
    position = known.lengths[layer] if position is None else position
    set_field(message, "position", position, "position")
    data = yield _channel.APPEND, Append(message, arrays)
    length: int = _messages.own("AppendResponse").FromString(data).length
    known.lengths[layer] = length
    return length


def attend(
    known: Known,
    query: Any,
    layer: int,
    append: tuple[Any, Any] | None,
    position: int | None,
    options: Options,
) -> Steps[Result]:
    """Of one sequence: a query and results without the batch's extent."""
    array = to_numpy(query, "query")
    wide = with_extents(array, 4, "query")
    own = wide.ndim - array.ndim
    as_given = like(query)

    def back(result: Array) -> Any:
        return as_given(result.reshape(result.shape[own:]))

    rows = None
    if append is not None:
        rows = known.rows(*pair(append, "append", "key, value"))
    positions = None if position is None else [position]
    return (yield from _attend([known], wide, back, rows, layer, positions, options))


def attend_all(
    known: Sequence[Known],
    query: Any,
    layer: int,
    append: tuple[Any, Any] | None,
    options: Options,
) -> Steps[Result]:
    """Of one sequence for each entry."""
    if not known:
        raise InvalidArgumentError("sequences: none (expected one for each entry)")
    rows = None
    if append is not None:
        rows = known[0].converted(*pair(append, "append", "key, value"))
    array = to_numpy(query, "query")
    return (yield from _attend(known, array, like(query), rows, layer, None, options))


@dataclasses.dataclass(eq=False)
class Attend:
    """A request of Attend to sequences."""

    query: Array
    rows: dict[str, Array]  # what is appended: key, value and their scales, or none
    options: Options
    entries: tuple[Any, ...]  # SequenceLayer messages

    def arguments(self) -> tuple[Any, Any, Any, Options]:
        """query, key, value and options, as attend takes them."""
        own = {**self.rows}
        key, value = own.pop("key", None), own.pop("value", None)
        given: Any = {**self.options, **own}
        return self.query, key, value, given

    def __bytes__(self) -> bytes:
        return encode(prepare(*self.arguments(), self.entries))


def _attend(
    known: Sequence[Known],
    query: Array,
    back: Callable[[Any], Any],
    rows: dict[str, Array] | None,
    layer: int,
    positions: list[int] | None,
    options: Options,
) -> Steps[Result]:
    for one in known:
        layer = one.checked_layer(layer)
    entries = [
        _messages.own("SequenceLayer")(name=one.name, layer=layer) for one in known
    ]
    if rows is None and positions is not None:
        raise InvalidArgumentError("position: given without keys to append")
    if rows is not None:
        positions = positions or [one.lengths[layer] for one in known]
        for entry, position in zip(entries, positions, strict=True):
            set_field(entry, "position", position, "position")
    request = Attend(query, rows or {}, options, tuple(entries))
    answer = yield _channel.ATTEND, request
    if rows is not None and positions is not None:
        counts = _appended(rows, options, len(known))
        for one, position, count in zip(known, positions, counts, strict=True):
            one.has_appended(layer, position + count)
    if isinstance(answer, Result):  # of an engine
        found = {name: getattr(answer, name) for name in TENSORS}
        arrays = {n: back(array) for n, array in found.items() if array is not None}
        return dataclasses.replace(answer, **arrays)
    return decode(answer, back)


def _appended(rows: dict[str, Array], options: Options, entries: int) -> list[int]:
    """How many keys each entry has appended."""
    starts = options.get("query_starts")
    if starts is not None:
        return [int(count) for count in np.diff(to_numpy(starts, "query_starts"))]
    return [rows["key"].shape[-2]] * entries
