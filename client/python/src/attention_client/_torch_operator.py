"""Calls as an operator of PyTorch, attention_client::attend.

An operator is one node to torch.compile and torch.export, whatever it does. It has a
fake implementation, which says shapes alone. Its gradients are those of the same
computation by PyTorch. Clients are no tensors, so they go by number.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import forward_ad

from attention_client import _channel, _default
from attention_client._arrays import Array, torch_elements
from attention_client._options import Options
from attention_client._torch_gradients import Tensors, recompute
from attention_client.scoring import Additive, Bilinear, Gaussian

# What may take gradients, and what of a request does not, in the operator's order.
LEARNED = (
    *("query", "key", "value", "bias", "sinks"),
    *("w_q", "w_k", "w_v", "sigma", "m"),
)
_GIVEN = (*LEARNED, "attend_mask", "valid_lens", "seed")


@dataclasses.dataclass
class Facts:
    """What of a call is no tensor."""

    causal: bool | str = False
    scale: float | None = None
    softcap: float | None = None
    dropout_p: float = 0.0
    empty_rows: str = "zero"
    weights: bool = False
    dropped: bool = False  # whether weights are those after dropout


@dataclasses.dataclass
class Settings(Facts):
    """Facts as the operator takes them. causal: its word."""

    causal: bool | str = "none"
    client: int = 0  # its number, 0 for the default


# Tensors that are what they hold, and datatypes that an engine reads and writes.
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_READ = (torch.float32, torch.float16, torch.bfloat16)

# What of Facts is an option under its own name, and what it is without one.
_DEFAULTS = (
    ("causal", False),
    ("softcap", None),
    ("empty_rows", "zero"),
    ("weights", False),
)
_SETTINGS = ("client", *(field.name for field in dataclasses.fields(Facts)))
_SCHEMA = (
    "Tensor query, Tensor key, Tensor value, "
    + "".join(f"Tensor? {name}, " for name in _GIVEN[3:])
    + "int client, str causal, float? scale, float? softcap, float dropout_p, "
    "str empty_rows, bool weights, bool dropped"
)


_NOBODY = -1  # no client has this number


def number(client: Any) -> int:
    """What stands for a client in Settings: 0 for None."""
    if client is None:
        return 0
    if torch.compiler.is_compiling():
        # The compiler knows attributes, and no weak references.
        return getattr(client, "_number", _NOBODY)
    return _channel.number_of(client)


def attend(tensors: dict[str, Any], settings: Settings) -> tuple[Tensor, Tensor | None]:
    """By the operator: the output, and the weights before dropout, if wanted."""
    given = [tensors.get(name) for name in _GIVEN]
    plain = [getattr(settings, name) for name in _SETTINGS]
    output, weights = _called(*given, *plain)
    return output, weights if settings.weights else None


def is_watched(tensors: Iterable[Tensor | None]) -> bool:
    """Whether somebody has to see an operator, who records, traces or transforms.

    Others get along without PyTorch's dispatcher, which takes longer than a small call.
    """
    # The compiler sees no further than the first line.
    if (
        torch.compiler.is_compiling()
        or torch._C._is_tracing()
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
        or forward_ad._current_level >= 0
    ):
        return True
    records = torch.is_grad_enabled()
    for tensor in tensors:
        if tensor is not None and (
            type(tensor) not in _PLAIN or (records and tensor.requires_grad)
        ):
            return True
    return False


def compute(
    client: Any, tensors: dict[str, Any], facts: Facts
) -> tuple[Tensor, Tensor | None]:
    """What the operator gives, without it. client: None for the default.

    A model's weights drive out of the processor's caches what the last call has used,
    so that each step here takes several times what it takes in a loop: there are few.
    """
    if client is None:
        client = _default.default_client()
    query, key, value = tensors["query"], tensors["key"], tensors["value"]
    given = options(tensors, facts)
    if (
        getattr(client, "takes_out", False)
        and _is_read_where_it_is(query)
        and _is_read_where_it_is(key)
        and _is_read_where_it_is(value)
    ):
        # Heads behind rows, as whoever joins heads wants them.
        batch, heads, length, _ = query.shape
        output = query.new_empty(batch, length, heads, value.shape[-1])
        result = client.attend(
            _elements(query),
            _elements(key),
            _elements(value),
            out=_elements(output).swapaxes(1, 2),
            **given,
        )
        weights = result.weights
        if weights is not None:
            weights = torch.from_numpy(weights)
        return output.transpose(1, 2), weights
    with torch.no_grad():
        result = client.attend(query.detach(), key.detach(), value.detach(), **given)
    return result.output.to(query.dtype), result.weights


def _is_read_where_it_is(tensor: Tensor) -> bool:
    return (
        tensor.dim() == 4
        and tensor.is_cpu
        and tensor.dtype in _READ
        and not tensor.is_neg()
    )


def _elements(tensor: Tensor) -> Array:
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.dtype is torch.float32:
        array: Array = tensor.numpy()
        return array
    return torch_elements(tensor)


def options(tensors: dict[str, Any], facts: Facts) -> Options:
    """What the request has beside query, key and value, and is not so anyway."""
    found: dict[str, Any] = {}
    for name in ("attend_mask", "valid_lens", "bias", "sinks"):
        if tensors.get(name) is not None:
            found[name] = tensors[name]
    if "sinks" in found:
        found["sinks"] = found["sinks"].float()  # the service takes no other ones
    for name, default in _DEFAULTS:
        if (fact := getattr(facts, name)) != default:
            found[name] = fact
    if facts.dropped:
        found["weights_after_dropout"] = True
    if facts.dropout_p > 0:
        seed = int(tensors["seed"].item())
        found |= {"training": True, "dropout_p": facts.dropout_p, "seed": seed}
    if tensors.get("w_q") is not None:
        w_q, w_k, w_v = (tensors[name] for name in ("w_q", "w_k", "w_v"))
        found["scoring"] = Additive(w_q, w_k, w_v)
    elif tensors.get("sigma") is not None:
        found["scoring"] = Gaussian(abs(float(tensors["sigma"].item())))
    elif tensors.get("m") is not None:
        found["scoring"] = Bilinear(tensors["m"], facts.scale)
    elif facts.scale is not None:
        found["scale"] = facts.scale
    return cast(Options, found)


def _client(settings: Settings) -> Any:
    if settings.client == 0:
        return _default.default_client()
    client = _channel.CLIENTS.get(settings.client)
    if client is None:
        raise RuntimeError(
            "attention_client::attend: its client is gone, or was never used here "
            "(expected a call with it before the compiled one, or set_client(client))"
        )
    return client


def _taken(arguments: Any) -> tuple[Tensors, Settings]:
    tensors = dict(zip(_GIVEN, arguments, strict=False))
    return tensors, Settings(
        **dict(zip(_SETTINGS, arguments[len(_GIVEN) :], strict=True))
    )


@torch.library.custom_op(  # type: ignore[untyped-decorator]
    "attention_client::attend",
    mutates_args=(),
    schema=f"({_SCHEMA}) -> (Tensor, Tensor)",
)
def _attend(*arguments: Any) -> tuple[Tensor, Tensor]:
    tensors, settings = _taken(arguments)
    query: Any = tensors["query"]
    with torch.no_grad():
        result = _client(settings).attend(
            query, tensors["key"], tensors["value"], **options(tensors, settings)
        )
        weights = result.weights if settings.weights else query.new_empty(0)
        # float64 comes back as float32.
        return result.output.to(query.dtype), weights.float()


@_attend.register_fake  # type: ignore[untyped-decorator]
def _(*arguments: Any) -> tuple[Tensor, Tensor]:
    tensors, settings = _taken(arguments)
    query, key, value = (tensors[name] for name in ("query", "key", "value"))
    assert query is not None and key is not None and value is not None
    shape = (*query.shape[:-1], key.shape[-2]) if settings.weights else (0,)
    return (
        query.new_empty(*query.shape[:-1], value.shape[-1]),
        query.new_empty(shape, dtype=torch.float32),
    )


def _set_up(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs[: len(_GIVEN)])
    ctx.plain = inputs[len(_GIVEN) :]
    ctx.mark_non_differentiable(output[1])


def _backward(ctx: Any, gradient: Tensor, _: Any) -> Any:
    """PyTorch's own gradients of what it computes again: of any order."""
    tensors, settings = _taken([*ctx.saved_tensors, *ctx.plain])
    needed = ctx.needs_input_grad[: len(LEARNED)]
    wanted = [n for n, need in zip(LEARNED, needed, strict=True) if need]

    def again(*learned: Tensor) -> Tensor:
        given = tensors | dict(zip(wanted, learned, strict=True))
        return recompute(given, settings, lambda s: _kept(tensors, settings, s))

    _, pull_back = torch.func.vjp(again, *(tensors[name] for name in wanted))
    found = dict(zip(wanted, pull_back(gradient), strict=True))
    of_learned = [found.get(name) for name in LEARNED]
    return *of_learned, *[None] * (len(_GIVEN) - len(LEARNED) + len(_SETTINGS))


def _kept(tensors: Tensors, settings: Settings, shape: Any) -> Tensor:
    """Which weights dropout keeps: those of a call that has nothing else."""
    *leading, queries, keys = shape
    like: Any = tensors["query"]
    alone = {
        "query": like.new_zeros(*leading, queries, 1, dtype=torch.float32),
        "key": like.new_zeros(*leading, keys, 1, dtype=torch.float32),
        "value": like.new_zeros(*leading, keys, 0, dtype=torch.float32),
        "seed": tensors["seed"],
    }
    drops = Settings(
        dropout_p=settings.dropout_p, weights=True, dropped=True, client=settings.client
    )
    weights = attend(alone, drops)[1]
    assert weights is not None
    kept: Tensor = weights > 0
    return kept


torch.library.register_autograd(
    "attention_client::attend", _backward, setup_context=_set_up
)


def _one_by_one(info: Any, dimensions: Any, *arguments: Any) -> Any:
    """A call for each entry."""
    answers = [
        _called(
            *(
                argument if at is None else argument.select(at, entry)
                for argument, at in zip(arguments, dimensions, strict=True)
            )
        )
        for entry in range(info.batch_size)
    ]
    outputs, weights = zip(*answers, strict=True)
    return (torch.stack(outputs), torch.stack(weights)), (0, 0)


_attend.register_vmap(_one_by_one)


class _Functional(torch.autograd.Function):  # type: ignore[misc]
    """The operator for torch.func's transforms, which do not know its gradients."""

    setup_context = staticmethod(_set_up)
    backward = staticmethod(_backward)
    vmap = staticmethod(_one_by_one)

    @staticmethod
    def forward(*arguments: Any) -> Any:
        return torch.ops.attention_client.attend(*arguments)

    @staticmethod
    def jvp(*_: Any) -> Any:
        raise NotImplementedError(
            "attention_client: no derivatives in forward mode (expected "
            "torch.func.grad, vjp or jacrev, which go backward)"
        )


def _called(*arguments: Any) -> Any:
    if torch._C._are_functorch_transforms_active():
        return _Functional.apply(*arguments)
    return torch.ops.attention_client.attend(*arguments)
