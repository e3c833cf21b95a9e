"""Keys and values in a byte for each element."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from attention_client._arrays import FLOAT8, Array, like, to_numpy
from attention_client.errors import InvalidArgumentError

_LARGEST: dict[np.dtype[Any], float] = {np.dtype(np.int8): 127.0, FLOAT8: 448.0}
_BY_NAME = {kind.name: kind for kind in _LARGEST}


def quantize(array: Any, dtype: Any = "int8") -> tuple[Any, Any]:
    """Rows of keys or values in int8 or float8_e4m3fn: (elements, scales).

        key, key_scale = quantize(key)
        value, value_scale = quantize(value)
        client.attend(query, key, value, key_scale=key_scale, value_scale=value_scale)

    A row is the last dimension: scales have the others, in float32. A row's scale is
    its largest magnitude / 127, or / 448 for float8_e4m3fn; 0 for a row of zeros. An
    element is x / scale, rounded to nearest, ties to even, so that elements * scale is
    within scale / 2 of an int8 row, within abs(x) / 16 + scale / 1024 of a float8 row.

    dtype: "int8" or "float8_e4m3fn", numpy's, ml_dtypes' or PyTorch's. Both results are
    arrays of the array's kind. InvalidArgumentError names the first row with NaN or an
    infinity.
    """
    elements, scales = quantized(to_numpy(array, "array"), _kind(dtype), "array")
    returned = like(array)
    return returned(elements), returned(scales)


def quantized(array: Array, kind: np.dtype[Any], name: str) -> tuple[Array, Array]:
    """quantize() of an array that errors call `name`."""
    # A number beyond float32's range is an infinity there.
    with np.errstate(over="ignore"):
        rows = np.asarray(array, np.float32)
    if rows.ndim == 0:
        raise InvalidArgumentError(f"{name}: no dimensions (expected 1 or more)")
    _check_finite(rows, name)
    largest = np.max(np.abs(rows), axis=-1, initial=0)
    scales = (largest / np.float32(_LARGEST[kind])).astype(np.float32)
    exact = rows.astype(np.float64)
    divisors = np.where(scales == 0, 1, scales).astype(np.float64)[..., np.newaxis]
    # A scale below float32's normal numbers is rounded much, and some of its row may
    # then be beyond the largest element.
    elements = np.clip(exact / divisors, -_LARGEST[kind], _LARGEST[kind])
    elements = np.where((scales == 0)[..., np.newaxis], 0, elements)
    rounded = (_to_eighths(elements) if kind == FLOAT8 else np.rint(elements)).astype(
        kind
    )
    return rounded, scales


def _kind(dtype: Any) -> np.dtype[Any]:
    name = str(dtype).removeprefix("torch.")  # PyTorch's, which numpy does not know
    if name not in _BY_NAME:
        with contextlib.suppress(TypeError):
            name = np.dtype(dtype).name
    if name not in _BY_NAME:
        raise InvalidArgumentError(f"dtype: {dtype} (expected {' or '.join(_BY_NAME)})")
    return _BY_NAME[name]


def _check_finite(rows: Array, name: str) -> None:
    wrong = ~np.isfinite(rows).all(axis=-1)
    if wrong.any():
        row = [int(n) for n in np.argwhere(wrong)[0]]
        raise InvalidArgumentError(
            f"{name}: row {row} holds NaN or an infinity (expected finite numbers)"
        )


def _to_eighths(numbers: Array) -> Array:
    """The nearest numbers that float8_e4m3fn has.

    ml_dtypes rounds float64 to float32 first, and so twice.
    """
    exponents = np.maximum(np.frexp(np.abs(numbers))[1] - 1, -6)
    units = np.ldexp(1.0, exponents - 3)
    nearest: Array = np.rint(numbers / units) * units
    return nearest
