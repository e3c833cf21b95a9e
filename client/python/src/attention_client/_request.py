"""A request's options, and its bytes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from typing_extensions import Required, TypedDict

from attention_client import _messages, scoring
from attention_client._arrays import like, to_numpy
from attention_client._wire import Message, sendable
from attention_client.errors import InvalidArgumentError


class Options(TypedDict, total=False):
    """What `attend` takes beside query, key and value.

    All may be left out, and None is as good as left out. Tensors may be arrays of
    numpy, PyTorch, JAX or MLX, or nested lists. The API's definition,
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
    # The request's name in the server's log.
    id: str | None


class Request(Options, total=False):
    """A whole request, for attend_many: dict(query=q, key=k, value=v, causal=True)."""

    query: Required[Any]
    key: Required[Any]
    value: Required[Any]


_AttendRequest = _messages.message("attention.v1.AttendRequest")
_NUMBERS = _messages.numbers("attention.v1.AttendRequest")
_KEY_VALUE = _messages.numbers("attention.v1.KeyValueTensors")

# Options of the API's own names, in the wire's order.
TENSORS = (
    "valid_lens",
    "attend_mask",
    "bias",
    "alibi_slopes",
    "sinks",
    "query_offsets",
)
SCALARS = (
    "id",
    "softcap",
    "query_offset",
    "key_offset",
    "training",
    "dropout_p",
    "seed",
    "weights_after_dropout",
)
RENAMED = {"weights": "return_weights", "lse": "return_lse"}
CHOICES = {"causal": "attention.v1.Causal", "empty_rows": "attention.v1.EmptyRows"}
SCORINGS: dict[type, str] = {
    scoring.ScaledDotProduct: "scaled_dot_product",
    scoring.Additive: "additive",
    scoring.Gaussian: "gaussian",
    scoring.Bilinear: "bilinear",
    scoring.ParameterSet: "parameter_set",
}

_VALUES = {
    option: {name.lower(): number for name, number in _messages.enum(enum).items()}
    for option, enum in CHOICES.items()
}
_KNOWN = frozenset(Options.__annotations__)


class Encoded:
    """A request's bytes, and what makes a reply's arrays those of its query's kind."""

    def __init__(self, data: bytes, like_query: Callable[[Any], Any]) -> None:
        self.data = data
        self.like_query = like_query


def encode(query: Any, key: Any, value: Any, options: Options) -> Encoded:
    """InvalidArgumentError for what cannot be sent; the server checks the rest."""
    given = {name: what for name, what in options.items() if what is not None}
    if not _KNOWN.issuperset(given):
        unknown = ", ".join(sorted(set(given) - _KNOWN))
        known = ", ".join(sorted(_KNOWN))
        raise TypeError(f"attend() has no option {unknown} (expected one of {known})")
    message = Message()
    _add_tensor(message, _NUMBERS["query"], "query", query)
    key_value = Message()
    _add_tensor(key_value, _KEY_VALUE["key"], "key", key)
    _add_tensor(key_value, _KEY_VALUE["value"], "value", value)
    message.add_message(_NUMBERS["key_value"], key_value)
    _add_scoring(message, given)
    for name in TENSORS:
        if name in given:
            _add_tensor(message, _NUMBERS[name], name, given[name])
    message.add_bytes(_scalars(given))
    return Encoded(message.join(), like(query))


def _add_tensor(message: Message, number: int, name: str, value: Any) -> None:
    array = to_numpy(value, name)
    message.add_tensor(number, sendable(array, name))


def _set(message: Any, name: str, value: Any, shown: str) -> None:
    try:
        setattr(message, name, value)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"{shown}: {value!r} ({error})") from None


def _scalars(given: dict[str, Any]) -> bytes:
    message = _AttendRequest()
    for name in SCALARS:
        if name in given:
            _set(message, name, given[name], name)
    for name, field in RENAMED.items():
        if given.get(name):
            _set(message, field, True, name)
    for name, values in _VALUES.items():
        if name in given:
            setattr(message, name, _choice(name, given[name], values))
    if "window" in given:
        _set_window(message, given["window"])
    data: bytes = message.SerializeToString()
    return data


def _choice(name: str, value: Any, values: dict[str, int]) -> int:
    if name == "causal" and isinstance(value, (bool, np.bool_)):
        value = "top_left" if value else "none"
    if value not in values:
        expected = ", ".join(values)
        raise InvalidArgumentError(f"{name}: {value!r} (expected one of {expected})")
    return values[value]


def _set_window(message: Any, window: Any) -> None:
    try:
        left, right = window
    except (TypeError, ValueError):
        raise InvalidArgumentError(
            f"window: {window!r} (expected a pair: keys to the left, to the right)"
        ) from None
    for name, size in (("window_left", left), ("window_right", right)):
        if size is not None:
            _set(message, name, size, name)


def _add_scoring(message: Message, given: dict[str, Any]) -> None:
    chosen = given.get("scoring")
    if "scale" in given:
        if chosen is not None:
            raise InvalidArgumentError(
                f"scale: given beside scoring (expected one of them: {chosen!r} "
                "takes its scale itself, where it has one)"
            )
        chosen = scoring.ScaledDotProduct(given["scale"])
    if chosen is None:
        return
    if type(chosen) not in SCORINGS:
        expected = ", ".join(kind.__name__ for kind in SCORINGS)
        raise InvalidArgumentError(f"scoring: {chosen!r} (expected {expected})")
    name = SCORINGS[type(chosen)]
    message.add_message(_NUMBERS[name], _scoring_message(name, chosen))


def _scoring_message(name: str, chosen: Any) -> Message:
    descriptor = _AttendRequest.DESCRIPTOR.fields_by_name[name].message_type
    plain = _messages.message(descriptor.full_name)()
    message = Message()
    for field in dataclasses.fields(chosen):
        value = getattr(chosen, field.name)
        if value is None:
            continue
        shown = f"{name}.{field.name}"
        number = descriptor.fields_by_name[field.name]
        if number.message_type is not None:
            _add_tensor(message, number.number, shown, value)
        else:
            _set(plain, field.name, value, shown)
    message.add_bytes(plain.SerializeToString())
    return message
