"""What the extension asks of Python: arrays of other libraries, and rare options.

The client's own functions wherever it has them, so that both say the same.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any, NoReturn

import numpy as np

from attention_client import _channel, _messages, _request
from attention_client._arrays import (
    BFLOAT16,
    FLOAT8,
    Array,
    is_causal_bias,
    is_tensor,
    like,
    to_numpy,
    torch_elements,
)
from attention_client._options import Options, is_wanted, set_field, window_sides
from attention_client._reply import Result
from attention_client._request import fitting
from attention_client._wire import DATATYPES, sendable
from attention_client.errors import (
    InvalidArgumentError,
    NotFoundError,
    from_number,
)

__all__ = [
    "BFLOAT16",
    "FLOAT8",
    "Result",
    "from_number",
    "is_wanted",
    "like",
    "option",
    "refuse_option",
    "scoring_fields",
    "seconds",
    "share_memory",
    "to_array",
    "to_writable",
    "window_sides",
]

_AttendRequest = _messages.message("attention.v1.AttendRequest")
seconds = _channel._checked_timeout


def to_array(value: Any, name: str) -> Array:
    """An array that the extension reads: where the value is, if that will do."""
    if _is_plain_tensor(value):
        array = _elements(value.resolve_neg())
    else:
        array = to_numpy(value, name)
    array = fitting(array, name)
    if type(array) is np.ndarray and array.dtype in DATATYPES:
        return array
    return sendable(array, name)


def to_writable(value: Any, name: str) -> Array:
    """The value's own memory as an array."""
    if isinstance(value, np.ndarray):
        array: Array = np.asarray(value)  # of a subclass, such as memmap
        if type(value) is not np.ndarray and array.dtype in DATATYPES:
            return array
        raise InvalidArgumentError(
            f"{name}: an array of {value.dtype} (expected the output's datatype)"
        )
    if not _is_plain_tensor(value) or value.device.type != "cpu":
        raise InvalidArgumentError(
            f"{name}: {type(value).__name__} (expected an array of numpy, or a PyTorch "
            "tensor in host memory that needs no gradients)"
        )
    if value.is_neg():
        raise InvalidArgumentError(
            f"{name}: a tensor that is the negative of its memory (expected one that "
            "is not, such as resolve_neg() gives)"
        )
    array = _elements(value)
    if array.dtype not in DATATYPES:
        raise InvalidArgumentError(
            f"{name}: a tensor of {value.dtype} (expected the output's datatype)"
        )
    return array


def _is_plain_tensor(value: Any) -> bool:
    """A PyTorch tensor that is what it holds, and needs no gradients.

    Of others the client has words: CausalBias is a tensor without elements of its own.
    """
    if not is_tensor(value) or is_causal_bias(value):
        return False
    return not (value.requires_grad and sys.modules["torch"].is_grad_enabled())


def _elements(tensor: Any) -> Array:
    return torch_elements(tensor.detach().cpu())  # itself, in host memory


def share_memory(one: Array, other: Array) -> bool:
    """Whether they have an element in common; True where that takes long to say."""
    try:
        return np.shares_memory(one, other, max_work=10_000)  # type: ignore[arg-type]
    except getattr(np, "exceptions", np).TooHardError:  # numpy 1.24 has it itself
        return True


def scoring_fields(scoring: Any, scale: Any) -> tuple[str, dict[str, Any]]:
    """The name of a chosen scoring function, and what it has."""
    given = {"scoring": scoring} | ({} if scale is None else {"scale": scale})
    chosen = _request._chosen_scoring(given)
    assert chosen is not None
    name = _request.SCORINGS[type(chosen)]
    if name == "parameter_set":
        raise NotFoundError(
            f"parameter_set: {chosen.name!r} (an engine has none: expected a scoring "  # type: ignore[union-attr]
            "function with its tensors, or the Client of a server that has the set)"
        )
    fields = {one.name: getattr(chosen, one.name) for one in dataclasses.fields(chosen)}
    return name, {name: value for name, value in fields.items() if value is not None}


def option(name: str, value: Any) -> Any:
    """A number, or True or False, as a client sends it.

    name: as errors have it, such as "softcap" or "gaussian.sigma".
    """
    scoring, _, field = name.rpartition(".")
    message = _AttendRequest()
    if scoring:
        message = getattr(message, scoring)
    set_field(message, field, value, name)
    return getattr(message, field)


def refuse_option(name: str) -> NoReturn:
    """Says which options there are."""
    known = ", ".join(sorted(Options.__annotations__))
    raise TypeError(f"attend() has no option {name} (expected one of {known})")
