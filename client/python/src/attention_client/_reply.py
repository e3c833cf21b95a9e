"""What a call answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from attention_client import _messages
from attention_client._arrays import Array
from attention_client._summary import summary
from attention_client._wire import (
    LARGE,
    as_array,
    fields,
    keep_memory,
    read_tensor,
    view_of,
)
from attention_client.errors import AttentionError, from_streamed


@dataclass(frozen=True, eq=False)
class Result:
    """A reply. Arrays are of the query's kind, and the caller's to write to."""

    id: str
    # The query's rank and datatype (float32 for float64): (B, Hq, Lq, Dv).
    output: Any
    # float32, None unless asked for: (B, Hq, Lq, Lk) and (B, Hq, Lq).
    weights: Any
    lse: Any
    # None unless asked for: the largest weights of each row, falling, and the positions
    # of their keys, int64 and float32, (B, Hq, Lq, k); -1 where there are fewer.
    top_k_indices: Any
    top_k_weights: Any
    # float32, None unless asked for: (B, Hq, Lk) and (B, Hq, Lq, Lk).
    key_weights: Any
    scores: Any
    # What computed it.
    backend: str
    kernel: str
    # Nanoseconds: until computing began, and computing.
    queue_ns: int
    compute_ns: int

    __repr__ = summary


_RESULT = {
    n: name for name, n in _messages.numbers("attention.v1.AttendResponse").items()
}
_AttendResponse = _messages.message("attention.v1.AttendResponse")
_STREAM = _messages.numbers("attention.v1.AttendStreamResponse")
_AttendStreamResponse = _messages.message("attention.v1.AttendStreamResponse")
_Error = _messages.message("attention.v1.Error")
TENSORS = (
    "output",
    "weights",
    "lse",
    "top_k_indices",
    "top_k_weights",
    "key_weights",
    "scores",
)
_TEXTS = ("id", "backend", "kernel")
_SMALL = 128 << 10  # bytes of a reply: so few are read faster than they are taken apart


def decode(data: bytes, like_query: Callable[[Any], Any]) -> Result:
    """The Result of an AttendResponse's bytes."""
    if len(data) <= _SMALL:
        return _read(_AttendResponse.FromString(data), like_query)
    if len(data) >= LARGE:
        keep_memory()
    return _take_apart(memoryview(data), like_query)


@dataclass
class Piece:
    """A shard's reply; arrays may be views of its bytes."""

    output: Array
    lse: Array
    backend: str
    kernel: str
    queue_ns: int
    compute_ns: int


def decode_piece(data: bytes) -> Piece:
    """Of an AttendResponse's bytes, with lse."""
    if len(data) > _SMALL:
        whole = decode(data, lambda array: array)
        facts = whole.backend, whole.kernel, whole.queue_ns, whole.compute_ns
        return Piece(whole.output, whole.lse, *facts)
    reply = _AttendResponse.FromString(data)
    return Piece(
        view_of(reply.output),
        view_of(reply.lse),
        reply.backend,
        reply.kernel,
        reply.queue_ns,
        reply.compute_ns,
    )


def _take_apart(data: memoryview, like_query: Callable[[Any], Any]) -> Result:
    found: dict[str, Any] = {
        "id": "",
        **dict.fromkeys(TENSORS),
        "backend": "",
        "kernel": "",
        "queue_ns": 0,
        "compute_ns": 0,
    }
    for number, value in fields(data):
        name = _RESULT.get(number)
        if name is None:
            continue
        if isinstance(value, int):
            found[name] = value
        elif name in TENSORS:
            found[name] = like_query(read_tensor(value))
        elif name in _TEXTS:
            found[name] = str(value, "utf-8")
    return Result(**found)


def _read(message: Any, like_query: Callable[[Any], Any]) -> Result:
    found: dict[str, Any] = {
        name: like_query(as_array(getattr(message, name)))
        if message.HasField(name)
        else None
        for name in TENSORS
    }
    return Result(
        id=message.id,
        **found,
        backend=message.backend,
        kernel=message.kernel,
        queue_ns=message.queue_ns,
        compute_ns=message.compute_ns,
    )


Streamed: TypeAlias = Callable[[Callable[[Any], Any]], Result]


def decode_streamed(data: bytes) -> tuple[str, Streamed | AttentionError]:
    """The id of a stream's reply, and its error or what makes its Result."""
    if len(data) <= _SMALL:
        message = _AttendStreamResponse.FromString(data)
        if message.HasField("error"):
            return message.id, from_streamed(message.error)
        return message.id, partial(_read, message.result)
    name = ""
    outcome: Streamed | AttentionError = partial(_take_apart, memoryview(b""))
    for number, value in fields(memoryview(data)):
        if isinstance(value, int):
            continue
        if number == _STREAM["id"]:
            name = str(value, "utf-8")
        elif number == _STREAM["result"]:
            outcome = partial(_take_apart, value)
        elif number == _STREAM["error"]:
            outcome = from_streamed(_Error.FromString(bytes(value)))
    return name, outcome
