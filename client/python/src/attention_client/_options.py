"""A request's options, and the bytes of those that are no tensors."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from typing_extensions import Required, TypedDict

from attention_client import _messages, scoring
from attention_client.errors import InvalidArgumentError


class Options(TypedDict, total=False):
    """What `attend` takes beside query, key and value.

    All may be left out, and None is as good as left out. Tensors may be arrays of
    numpy, PyTorch, JAX, MLX or TensorFlow, or nested lists. The API's definition,
    proto/attention/v1/attention.proto, is the reference of what they mean.
    """

    # Keys at positions from this on take no part: (B) or (B, Lq).
    valid_lens: Any
    # True where the key takes part: broadcast to (B, Hq, Lq, Lk).
    attend_mask: Any
    # Added to the scores; likewise.
    bias: Any
    # ALiBi: (Hq) or (B, Hq).
    alibi_slopes: Any
    # Attention sinks: (Hq) or (B, Hq).
    sinks: Any
    # Row i sees keys up to i (True, "top_left"), or the last row sees all keys
    # ("bottom_right"). False and "none" win over a parameter set's default.
    causal: bool | Literal["none", "top_left", "bottom_right"] | None
    # Where queries and keys stand in a longer sequence; one for all, or (B).
    query_offset: int | None
    query_offsets: Any
    # A packed batch: where each entry starts and the last one ends, (B + 1). query is
    # (T, Hq, D) then, key (S, Hkv, D); weights come in one dimension.
    query_starts: Any
    key_starts: Any
    # Of keys and values of int8 or float8_e4m3fn, where both are needed: what each
    # row's elements are multiplied by, (B, Hkv, Lk). quantize() makes them.
    key_scale: Any
    value_scale: Any
    key_offset: int | None
    # How many keys to the left and right of a query's position take part; None: all.
    window: tuple[int | None, int | None] | None
    # Scales the dot product: short for scoring=ScaledDotProduct(scale).
    scale: float | None
    scoring: scoring.Scoring | None
    # c * tanh(score / c).
    softcap: float | None
    # Dropout happens only in training.
    training: bool | None
    dropout_p: float | None
    seed: int | None
    weights_after_dropout: bool | None
    # What a row gives in which no key takes part.
    empty_rows: Literal["zero", "uniform"] | None
    # Whether to return the weights, and the log-sum-exp.
    weights: bool | None
    lse: bool | None
    # How many of each row's largest weights to return, with their keys' positions.
    top_k: int | None
    # Whether to return the sum of the weights that each key receives.
    key_weights: bool | None
    # Whether to return the scores: as the scoring function gives them, after the
    # softcap, or after bias and masks.
    scores: Literal["none", "scaled", "capped", "masked"] | None
    # The request's name in the server's log.
    id: str | None


class Request(Options, total=False):
    """A whole request, for attend_many: dict(query=q, key=k, value=v, causal=True)."""

    query: Required[Any]
    key: Required[Any]
    value: Required[Any]


KNOWN = frozenset(Options.__annotations__)
_AttendRequest = _messages.message("attention.v1.AttendRequest")

# Options of the API's own names, in the wire's order.
SCALARS = (
    "id",
    "softcap",
    "query_offset",
    "key_offset",
    "training",
    "dropout_p",
    "seed",
    "weights_after_dropout",
    "top_k",
)
RENAMED = {
    "weights": "return_weights",
    "lse": "return_lse",
    "key_weights": "return_key_weights",
}
CHOICES = {
    "causal": "attention.v1.Causal",
    "empty_rows": "attention.v1.EmptyRows",
    "scores": "attention.v1.Scores",
}

_VALUES = {
    option: {name.lower(): number for name, number in _messages.enum(enum).items()}
    for option, enum in CHOICES.items()
}


def set_field(message: Any, name: str, value: Any, shown: str) -> None:
    try:
        setattr(message, name, value)
    except (TypeError, ValueError, OverflowError):
        expected = _expected(message.DESCRIPTOR.fields_by_name[name], value)
        raise InvalidArgumentError(
            f"{shown}: {value!r} (expected {expected})"
        ) from None


def _expected(field: Any, value: Any) -> str:
    if field.cpp_type == field.CPPTYPE_STRING:
        if isinstance(value, str):
            return "text that UTF-8 can write"
        return f"text, such as {str(value)!r}" if np.isscalar(value) else "text"
    if field.cpp_type == field.CPPTYPE_BOOL:
        return "True or False"
    if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        is_beyond = isinstance(value, int)
        return "a number in the range of float64" if is_beyond else "a number"
    wide = field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64)
    if field.cpp_type in (field.CPPTYPE_UINT32, field.CPPTYPE_UINT64):
        return f"an integer from 0 to {2 ** (64 if wide else 32) - 1}"
    most = 2 ** (63 if wide else 31)
    return f"an integer from {-most} to {most - 1}"


def scalars(given: dict[str, Any]) -> bytes:
    message = _AttendRequest()
    for name in SCALARS:
        if name in given:
            set_field(message, name, given[name], name)
    for name, field in RENAMED.items():
        if given.get(name):
            setattr(message, field, True)
    for name, values in _VALUES.items():
        if name in given:
            setattr(message, name, values[choice(name, given[name])])
    if "window" in given:
        for name, size in window_sides(given["window"]).items():
            set_field(message, name, size, name)
    data: bytes = message.SerializeToString()
    return data


def choice(name: str, value: Any) -> str:
    """The API's word for a choice that was made."""
    if name == "causal" and isinstance(value, (bool, np.bool_)):
        value = "top_left" if value else "none"
    if not isinstance(value, str) or value not in _VALUES[name]:
        expected = ", ".join(_VALUES[name])
        if name == "causal":
            expected = f"True, False, {expected}"
        raise InvalidArgumentError(f"{name}: {value!r} (expected one of {expected})")
    return str(value)


def is_wanted(name: str, value: Any) -> bool:
    """Whether a result is asked for: other things than these are a mistake."""
    if isinstance(value, (bool, int, np.integer, np.bool_)):
        return bool(value)
    raise InvalidArgumentError(f"{name}: {value!r} (expected True or False)")


def window_sides(window: Any) -> dict[str, Any]:
    """The API's two fields of a window, without those that are unbounded."""
    try:
        left, right = window
    except (TypeError, ValueError):
        raise InvalidArgumentError(
            f"window: {window!r} (expected a pair: keys to the left, to the right)"
        ) from None
    sides = {"window_left": left, "window_right": right}
    return {name: size for name, size in sides.items() if size is not None}
