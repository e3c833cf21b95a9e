"""The wire form of messages with large tensors.

protobuf's own classes copy a tensor three times on its way out and twice on its way
in. Here the bytes of a message are joined once from the arrays' memory, and a reply's
tensors are copied once, into arrays of their own, which one may write to.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, lru_cache
from math import prod
from typing import Any

import numpy as np

from attention_client import _messages
from attention_client._arrays import BFLOAT16, FLOAT8, Array
from attention_client.errors import InvalidArgumentError, ResourceExhaustedError

DATATYPES: dict[np.dtype[Any], int] = {
    np.dtype(kind): _messages.enum("attention.v1.DataType")[name]
    for kind, name in (
        ("<f4", "FP32"),
        ("<f2", "FP16"),
        (BFLOAT16, "BF16"),
        ("<i4", "INT32"),
        ("<i8", "INT64"),
        ("?", "BOOL"),
        ("u1", "UINT8"),
        ("i1", "INT8"),
        (FLOAT8, "FP8"),
    )
}
_TYPES = {number: kind for kind, number in DATATYPES.items()}
_TENSOR = _messages.numbers("attention.v1.Tensor")
_TensorMessage = _messages.message("attention.v1.Tensor")

# Bytes of a message from which on its memory is worth keeping.
LARGE = 1 << 20
MOST = (1 << 32) - 1  # bytes of a message: gRPC counts them in 32 bits

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types


@cache
def keep_memory() -> None:
    """Lets the allocator keep the memory of large messages for the next ones.

    glibc gives blocks of 128 KiB and more back to the system when they are freed, and
    every call would have to fetch its pages anew, which takes longer than the rest of
    it. It learns from what is freed: having seen a block of 32 MiB, the largest that it
    learns from, it keeps up to 64 MiB. The block costs nothing, as nobody touches it.
    """
    np.empty((32 << 20) - (64 << 10), np.uint8)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


@lru_cache(maxsize=1024)
def _bytes_header(number: int, size: int) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(size)


@lru_cache(maxsize=1024)
def _tensor_header(
    number: int, kind: np.dtype[Any], shape: tuple[int, ...]
) -> tuple[bytes, int]:
    """What precedes a tensor's elements in a message, and the size of all of it."""
    size = prod(shape) * kind.itemsize
    head: bytes = _TensorMessage(
        datatype=DATATYPES[kind], shape=shape
    ).SerializeToString()
    head += _bytes_header(_TENSOR["data"], size)
    head = _bytes_header(number, len(head) + size) + head
    return head, len(head) + size


class Message:
    """The parts of a message on its way out; the arrays are not copied."""

    def __init__(self) -> None:
        self.parts: list[Any] = []  # bytes and arrays
        self.size = 0

    def add_bytes(self, data: bytes) -> None:
        """Fields that are serialized already."""
        self.parts.append(data)
        self.size += len(data)

    def add_tensor(self, number: int, array: Array) -> None:
        head, size = _tensor_header(number, array.dtype, array.shape)
        # Types of ml_dtypes have no buffers of their own.
        bare = array.dtype in (BFLOAT16, FLOAT8)
        self.parts += head, array.reshape(-1).view(np.uint8) if bare else array
        self.size += size

    def add_message(self, number: int, message: Message) -> None:
        head = _bytes_header(number, message.size)
        self.parts.append(head)
        self.parts.extend(message.parts)
        self.size += len(head) + message.size

    def join(self) -> bytes:
        if self.size > MOST:
            raise ResourceExhaustedError(
                f"a request of {self.size} bytes (at most {MOST} in one message of "
                "gRPC; expected fewer entries, heads or queries in each call)"
            )
        if self.size >= LARGE:
            keep_memory()
        return b"".join(self.parts)


def sendable(array: Array, name: str) -> Array:
    """The array as the wire has it: row-major, little-endian, FP64 as FP32."""
    kind = array.dtype
    if type(array) is np.ndarray and kind in DATATYPES and array.flags.c_contiguous:
        return array
    if kind.kind == "f" and kind.itemsize == 8:
        kind = np.dtype("<f4")
    elif kind.byteorder == ">" or kind not in DATATYPES:
        kind = kind.newbyteorder("<")
    if kind not in DATATYPES:
        expected = (
            "float32, float16, bfloat16, float8_e4m3fn, float64, int8, int32, int64, "
            "bool or uint8"
        )
        raise InvalidArgumentError(
            f"{name}: datatype {array.dtype} (expected {expected})"
        )
    # A number beyond float32's range is an infinity there. Unlike
    # np.ascontiguousarray, asarray leaves an array without extents one.
    with np.errstate(over="ignore"):
        return np.asarray(array, dtype=kind, order="C")


def _read_varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """The fields of a message in order: (number, value).

    A message that ends too early is a ValueError or IndexError.
    """
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        wire_type = key & 7
        if wire_type == _VARINT:
            value, at = _read_varint(data, at)
            yield key >> 3, value
            continue
        if wire_type == _BYTES:
            size, at = _read_varint(data, at)
        elif wire_type in (_FIXED32, _FIXED64):
            size = 4 if wire_type == _FIXED32 else 8
        else:
            raise ValueError(
                f"wire type {wire_type} in a reply (expected 0, 1, 2 or 5)"
            )
        if at + size > len(data):
            raise ValueError(f"a field of {size} bytes where {len(data) - at} are left")
        yield key >> 3, data[at : at + size]
        at += size


def name_of(datatype: int) -> str:
    """numpy's name of a DataType, such as "bfloat16"."""
    return str(_TYPES[datatype].name)


def view_of(tensor: Any) -> Array:
    """A Tensor message as an array that one may not write to."""
    view: Array = np.ndarray(tuple(tensor.shape), _TYPES[tensor.datatype], tensor.data)
    return view


def as_array(tensor: Any) -> Array:
    """A Tensor message as an array of its own."""
    array: Array = view_of(tensor).copy()
    return array


def read_tensor(data: memoryview) -> Array:
    """A tensor as an array of its own."""
    elements = memoryview(b"")
    head = bytearray()
    for number, value in fields(data):
        if number == _TENSOR["data"] and isinstance(value, memoryview):
            elements = value
        elif isinstance(value, int):
            head += _varint(number << 3 | _VARINT) + _varint(value)
        else:
            head += _bytes_header(number, len(value)) + value
    message = _TensorMessage.FromString(bytes(head))
    view: Array = np.frombuffer(elements, dtype=_TYPES[message.datatype])
    array: Array = view.reshape(tuple(message.shape)).copy()
    return array
