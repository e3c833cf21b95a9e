"""What a client knows of a sequence, and the rows that it may be given."""

from __future__ import annotations

import contextlib
import dataclasses
import operator
import re
from typing import Any

import numpy as np

from attention_client import _messages
from attention_client._arrays import BFLOAT16, FLOAT8, Array, to_numpy
from attention_client._options import set_field
from attention_client._quantize import quantized
from attention_client._request import fitting
from attention_client._wire import DATATYPES
from attention_client.errors import InvalidArgumentError
from attention_client.info import SequenceForm

# What a sequence may hold, and what is converted to it.
_NUMBERS = (np.dtype("<f4"), np.dtype("<f2"), BFLOAT16)
_SCALED = (np.dtype(np.int8), FLOAT8)  # with a scale for each row
_HELD = {kind.name: kind for kind in _NUMBERS + _SCALED}
_CONVERTED = frozenset(_NUMBERS) | {np.dtype("<f8")}
_ROUTE = re.compile(r"([a-zA-Z0-9._:+=@-]{1,256})(?:/|\Z)")


@dataclasses.dataclass(eq=False)
class Known:
    """What a client knows of a sequence."""

    name: str
    form: SequenceForm
    # Keys of each layer, as the last answer has it.
    lengths: list[int]
    incarnation: int
    # That of the sequence of which it is a fork, whatever its own name.
    route: str = ""

    def __post_init__(self) -> None:
        self.route = self.route or route(self.name)

    def checked_layer(self, layer: Any) -> int:
        """layer, which may be an array or a tensor of one integer."""
        with contextlib.suppress(TypeError):
            index = operator.index(layer)
            if 0 <= index < self.form.layers:
                return index
        raise InvalidArgumentError(
            f"layer: {layer!r} (expected 0 to {self.form.layers - 1})"
        )

    def rows(self, key: Any, value: Any) -> dict[str, Array]:
        """What converted() gives, with a batch of one."""
        return {
            name: with_extents(array, 3 if name.endswith("_scale") else 4, name)
            for name, array in self.converted(key, value).items()
        }

    def converted(self, key: Any, value: Any) -> dict[str, Array]:
        """key and value of the sequence's datatype, key_scale and value_scale of int8
        and float8_e4m3fn."""
        arrays: dict[str, Array] = {}
        for name, tensor in (("key", key), ("value", value)):
            elements, scales = self._elements(tensor, name)
            arrays[name] = elements
            if scales is not None:
                arrays[f"{name}_scale"] = scales
        return arrays

    def _elements(self, tensor: Any, name: str) -> tuple[Array, Array | None]:
        kind = _HELD[self.form.datatype]
        if kind in _SCALED and isinstance(tensor, tuple):
            elements, scales = pair(tensor, name, "elements, scales")
            return to_numpy(elements, name), to_numpy(scales, f"{name}_scale")
        array = fitting(to_numpy(tensor, name), name)
        if array.dtype.newbyteorder("<") not in _CONVERTED:
            return array, None  # the server refuses what does not fit
        if kind in _SCALED:
            return quantized(array, kind, name)
        with np.errstate(over="ignore"):  # beyond its range are infinities
            converted: Array = array.astype(kind, copy=False)
        return converted, None

    def has_appended(self, layer: int, end: int) -> None:
        self.lengths[layer] = max(self.lengths[layer], end)


def with_extents(array: Array, extents: int, name: str) -> Array:
    """With those of a batch of one, and of one head, where they are missing."""
    if not extents - 2 <= array.ndim <= extents:
        expected = "heads, length, width" if extents == 4 else "heads, length"
        raise InvalidArgumentError(f"{name}: shape {array.shape} (expected {expected})")
    return array.reshape((1,) * (extents - array.ndim) + array.shape)


def route(name: str) -> str:
    """What forks have in common with the sequence that they were made of, by name."""
    # What is no name, which the server refuses, might be no header either.
    found = _ROUTE.match(name) if isinstance(name, str) else None
    return found[1] if found else ""


def form(
    heads: int, width: int, value_width: int | None, layers: int, dtype: Any
) -> Any:
    message = _messages.message("attention.v1.SequenceForm")()
    value_width = width if value_width is None else value_width
    for field, value in (
        ("heads", heads),
        ("key_width", width),
        ("value_width", value_width),
        ("layers", layers),
    ):
        set_field(message, field, value, field)
    message.datatype = DATATYPES[_datatype(dtype)]
    return message


def _datatype(dtype: Any) -> np.dtype[Any]:
    """Of a name, or a type of numpy or PyTorch."""
    name = str(dtype).removeprefix("torch.")
    if name not in _HELD:
        with contextlib.suppress(TypeError):
            name = np.dtype(dtype).name
    if name not in _HELD:
        expected = ", ".join(_HELD)
        raise InvalidArgumentError(f"dtype: {dtype!r} (expected one of {expected})")
    return _HELD[name]


def pair(given: Any, name: str, expected: str) -> tuple[Any, Any]:
    try:
        first, second = given
    except (TypeError, ValueError):
        raise InvalidArgumentError(f"{name}: no pair (expected {expected})") from None
    return first, second
