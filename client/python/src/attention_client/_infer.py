"""A request in the Open Inference Protocol: the one whose tensors may be elsewhere."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from attention_client import _messages, scoring
from attention_client._options import CHOICES, choice, set_field, window_sides
from attention_client._reply import TENSORS
from attention_client._request import SCORINGS, Prepared
from attention_client._wire import DATATYPES

# What kind of parameter an option is.
PARAMETERS = {
    "softcap": "double_param",
    "query_offset": "int64_param",
    "key_offset": "int64_param",
    "window_left": "int64_param",
    "window_right": "int64_param",
    "training": "bool_param",
    "dropout_p": "double_param",
    "seed": "uint64_param",
    "weights_after_dropout": "bool_param",
    "causal": "string_param",
    "empty_rows": "string_param",
    "top_k": "int64_param",
    "scores": "string_param",
    "scale": "double_param",
    "sigma": "double_param",
}

_NAMES = {
    number: name for name, number in _messages.enum("attention.v1.DataType").items()
}
_NAME_OF = {kind: _NAMES[number] for kind, number in DATATYPES.items()}
_KIND_OF = {name: kind for kind, name in _NAME_OF.items()}
_ModelInferRequest = _messages.message("inference.ModelInferRequest")
_ModelInferResponse = _messages.message("inference.ModelInferResponse")


@dataclasses.dataclass(frozen=True)
class Place:
    """Bytes of a region that the server knows."""

    region: str
    offset: int
    size: int


def wanted_results(request: Prepared) -> dict[str, int]:
    """The bytes that each result takes; none where the shapes do not fit together."""
    query, key, value = (request.tensors[n] for n in ("query", "key", "value"))
    if not 2 <= query.ndim == key.ndim == value.ndim <= 4:
        return {}
    given = request.given
    matrices = [name for name in ("weights", "scores") if _asks_for(name, given)]
    packed = "query_starts" in request.tensors
    if packed and matrices:  # their size follows from the starts
        return {}
    length = 0 if packed else -2  # the dimension of rows
    keys = key.shape[length]
    rows = query.size // max(query.shape[-1], 1)
    sizes = {"output": rows * value.shape[-1] * query.itemsize}
    sizes |= {name: rows * keys * 4 for name in matrices}
    if given.get("lse"):
        sizes["lse"] = rows * 4
    if "top_k" in given:
        k = given["top_k"]
        if not isinstance(k, (int, np.integer)) or not 1 <= k <= keys:
            return {}  # the server says so
        sizes |= {
            "top_k_indices": rows * int(k) * 8,
            "top_k_weights": rows * int(k) * 4,
        }
    if given.get("key_weights"):
        heads = rows // max(query.shape[length], 1)
        sizes["key_weights"] = heads * keys * 4
    return sizes


def _asks_for(name: str, given: Mapping[str, Any]) -> bool:
    return bool(given.get(name)) and given[name] != "none"


def encode(request: Prepared, places: Mapping[str, Place]) -> bytes:
    """A ModelInferRequest whose tensors and results are in these places."""
    chosen = request.scoring or scoring.ScaledDotProduct()
    function = SCORINGS[type(chosen)]
    message = _ModelInferRequest(model_name=f"{function}_attention")
    if isinstance(chosen, scoring.ParameterSet):
        set_field(message, "model_name", chosen.name, f"{function}.name")
    if "id" in request.given:
        set_field(message, "id", request.given["id"], "id")
    for name, value in _parameters(request.given):
        set_field(message.parameters[name], PARAMETERS[name], value, name)
    for field in dataclasses.fields(chosen):
        value = getattr(chosen, field.name)
        if field.name in PARAMETERS and value is not None:
            parameter = message.parameters[field.name]
            shown = f"{function}.{field.name}"
            set_field(parameter, PARAMETERS[field.name], value, shown)
    for name, array in request.tensors.items():
        tensor = message.inputs.add(
            name=name.rpartition(".")[2],
            datatype=_NAME_OF[array.dtype],
            shape=array.shape,
        )
        _put(tensor, places[name])
    for name in TENSORS:
        if name in places:
            _put(message.outputs.add(name=name), places[name])
    data: bytes = message.SerializeToString()
    return data


def _parameters(given: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    for name, value in given.items():
        if name in CHOICES:
            yield name, choice(name, value)
        elif name == "window":
            yield from window_sides(value).items()
        elif name in PARAMETERS and name != "scale":  # which is of the scoring function
            yield name, value


def _put(tensor: Any, place: Place) -> None:
    parameters = tensor.parameters
    parameters["shared_memory_region"].string_param = place.region
    parameters["shared_memory_offset"].int64_param = place.offset
    parameters["shared_memory_byte_size"].int64_param = place.size


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a ModelInferResponse says; the elements are in the regions."""

    id: str
    results: dict[str, tuple[np.dtype[Any], tuple[int, ...]]]  # datatype, shape
    facts: dict[str, Any]  # backend, kernel, queue_ns, compute_ns


def decode(data: bytes) -> Answer:
    message = _ModelInferResponse.FromString(data)
    results = {
        output.name: (_KIND_OF[output.datatype], tuple(output.shape))
        for output in message.outputs
    }
    parameters = message.parameters
    facts = {
        "backend": parameters["backend"].string_param,
        "kernel": parameters["kernel"].string_param,
        "queue_ns": parameters["queue_ns"].uint64_param,
        "compute_ns": parameters["compute_ns"].uint64_param,
    }
    return Answer(message.id, results, facts)
