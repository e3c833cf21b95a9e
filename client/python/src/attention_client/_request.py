"""A request's bytes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from attention_client import _messages, scoring
from attention_client._arrays import Array, like, to_numpy
from attention_client._options import (
    KNOWN,
    RENAMED,
    Options,
    is_wanted,
    scalars,
    set_field,
)
from attention_client._wire import Message, sendable
from attention_client.errors import InvalidArgumentError

_AttendRequest = _messages.message("attention.v1.AttendRequest")
_NUMBERS = _messages.numbers("attention.v1.AttendRequest")
_KEY_VALUE = _messages.numbers("attention.v1.KeyValueTensors")
_SEQUENCES = _messages.numbers("attention.v1.Sequences")
_Sequences = _messages.message("attention.v1.Sequences")

# Options of the API's own names, in the wire's order.
TENSORS = (
    "valid_lens",
    "attend_mask",
    "bias",
    "alibi_slopes",
    "sinks",
    "query_offsets",
    "query_starts",
    "key_starts",
)
SCALES = ("key_scale", "value_scale")
# Those of integers.
_COUNTS = frozenset(("valid_lens", "query_offsets", "query_starts", "key_starts"))
SCORINGS: dict[type, str] = {
    scoring.ScaledDotProduct: "scaled_dot_product",
    scoring.Additive: "additive",
    scoring.Gaussian: "gaussian",
    scoring.Bilinear: "bilinear",
    scoring.ParameterSet: "parameter_set",
}

# Which of a scoring function's fields are tensors.
SCORING_TENSORS = {
    name: tuple(
        field.name
        for field in _AttendRequest.DESCRIPTOR.fields_by_name[name].message_type.fields
        if field.message_type is not None
    )
    for name in SCORINGS.values()
}

_MOST = np.iinfo(np.int64).max


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A request whose names are known and whose tensors can be sent."""

    given: dict[str, Any]  # the options that are not None
    # By the names that errors have for them: "query", "additive.w_q".
    tensors: dict[str, Array]
    scoring: scoring.Scoring | None
    # Makes a reply's arrays those of the query's kind.
    like_query: Callable[[Any], Any]
    # SequenceLayer messages: where keys and values are; the request's own are appended.
    sequences: tuple[Any, ...] = ()

    def byte_size(self) -> int:
        return sum(array.nbytes for array in self.tensors.values())


def prepare(
    query: Any,
    key: Any,
    value: Any,
    options: Options,
    sequences: tuple[Any, ...] = (),
) -> Prepared:
    """InvalidArgumentError for what cannot be sent; the server checks the rest.

    key and value may be None where there are sequences.
    """
    tensors = {"query": query, "key": key, "value": value}
    if sequences and key is value is None:
        del tensors["key"], tensors["value"]
    return _prepare(tensors, options, sequences)


def _prepare(
    tensors: dict[str, Any], options: Options, sequences: tuple[Any, ...]
) -> Prepared:
    given = {name: what for name, what in options.items() if what is not None}
    if given and not KNOWN.issuperset(given):
        unknown = ", ".join(sorted(set(given) - KNOWN))
        known = ", ".join(sorted(KNOWN))
        raise TypeError(f"attend() has no option {unknown} (expected one of {known})")
    as_query = like(tensors["query"])
    if given:
        given |= {n: is_wanted(n, given[n]) for n in RENAMED if n in given}
        tensors |= {name: given[name] for name in TENSORS + SCALES if name in given}
    chosen = _chosen_scoring(given)
    if chosen is not None:
        of = SCORINGS[type(chosen)]
        for name in SCORING_TENSORS[of]:
            if (tensor := getattr(chosen, name)) is not None:
                tensors[f"{of}.{name}"] = tensor
    arrays = {
        name: sendable(fitting(to_numpy(tensor, name), name), name)
        for name, tensor in tensors.items()
    }
    return Prepared(given, arrays, chosen, as_query, sequences)


def fitting(array: Array, name: str) -> Array:
    """Integers as the type that the tensor has: those of lists, and of any width."""
    if array.dtype.kind not in "iu":
        return array
    fitted = array
    if name in _COUNTS:
        if array.dtype not in (np.int32, np.int64):
            if array.dtype == np.uint64 and array.max(initial=0) > _MOST:
                raise InvalidArgumentError(f"{name}: {array.max()} (at most {_MOST})")
            fitted = array.astype(np.int64)
    elif name == "attend_mask":
        if array.dtype != np.uint8:
            fitted = array.astype(np.bool_)
            if (fitted != array).any():
                wrong = array[fitted != array].flat[0]
                raise InvalidArgumentError(
                    f"attend_mask: {wrong} (expected True or 1 where a key takes part, "
                    "False or 0 where not; what is added to the scores is bias)"
                )
    elif array.dtype != np.int8 or name not in ("key", "value"):
        fitted = array.astype(np.float32)
    return fitted


def _chosen_scoring(given: dict[str, Any]) -> scoring.Scoring | None:
    chosen: scoring.Scoring | None = given.get("scoring")
    if "scale" in given:
        if chosen is not None:
            raise InvalidArgumentError(
                f"scale: given beside scoring (expected one of them: {chosen!r} "
                "takes its scale itself, where it has one)"
            )
        chosen = scoring.ScaledDotProduct(given["scale"])
    if chosen is not None and type(chosen) not in SCORINGS:
        expected = ", ".join(kind.__name__ for kind in SCORINGS)
        raise InvalidArgumentError(f"scoring: {chosen!r} (expected {expected})")
    return chosen


def encode(request: Prepared) -> bytes:
    """The bytes of an AttendRequest."""
    tensors = request.tensors
    message = Message()
    message.add_tensor(_NUMBERS["query"], tensors["query"])
    key_value = _key_value(tensors)
    if request.sequences:
        sequences = Message()
        sequences.add_bytes(_Sequences(entries=request.sequences).SerializeToString())
        if key_value.parts:
            sequences.add_message(_SEQUENCES["append"], key_value)
        message.add_message(_NUMBERS["sequences"], sequences)
    else:
        message.add_message(_NUMBERS["key_value"], key_value)
    _add_options(message, request)
    return message.join()


def _key_value(tensors: Mapping[str, Array]) -> Message:
    message = Message()
    for name in ("key", "value", *SCALES):
        if name in tensors:
            message.add_tensor(_KEY_VALUE[name], sendable(tensors[name], name))
    return message


def encode_common(query: Array, options: Options) -> bytes:
    """What AttendRequests have in common that are about other keys each.

    Fields that encode_own() gives, behind these bytes, make such a request.
    """
    message = Message()
    request = _prepare({"query": query}, options, ())
    message.add_tensor(_NUMBERS["query"], request.tensors["query"])
    _add_options(message, request)
    return message.join()


def encode_own(
    entries: bytes,
    tensors: Mapping[str, Array],
    rows: Mapping[str, Array] | None = None,
) -> bytes:
    """entries: of a Sequences message; tensors: options by their names.

    rows: key, value and their scales, which are appended.
    """
    message = Message()
    inner = Message()
    inner.add_bytes(entries)
    if rows:
        inner.add_message(_SEQUENCES["append"], _key_value(rows))
    message.add_message(_NUMBERS["sequences"], inner)
    for name, array in tensors.items():
        message.add_tensor(_NUMBERS[name], sendable(fitting(array, name), name))
    return message.join()


def _add_options(message: Message, request: Prepared) -> None:
    if request.scoring is not None:
        _add_scoring(message, request.scoring, request.tensors)
    for name in TENSORS:
        if name in request.tensors:
            message.add_tensor(_NUMBERS[name], request.tensors[name])
    if request.given:
        message.add_bytes(scalars(request.given))


def _add_scoring(
    message: Message, chosen: scoring.Scoring, tensors: dict[str, Array]
) -> None:
    name = SCORINGS[type(chosen)]
    descriptor = _AttendRequest.DESCRIPTOR.fields_by_name[name].message_type
    plain = _messages.message(descriptor.full_name)()
    inner = Message()
    for field in dataclasses.fields(chosen):
        shown = f"{name}.{field.name}"
        value = getattr(chosen, field.name)
        if shown in tensors:
            number = descriptor.fields_by_name[field.name].number
            inner.add_tensor(number, tensors[shown])
        elif value is not None:
            set_field(plain, field.name, value, shown)
    inner.add_bytes(plain.SerializeToString())
    message.add_message(_NUMBERS[name], inner)
