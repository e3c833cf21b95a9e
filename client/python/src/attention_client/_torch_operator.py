"""Calls as an operator of PyTorch, attention_client::attend.

An operator is one node to torch.compile and torch.export, whatever it does. It has a
fake implementation, which says shapes alone. Its gradients are those of the same
computation by PyTorch. Clients are no tensors, so they go by number.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from attention_client import _channel, _default
from attention_client._arrays import torch_elements
from attention_client._request import Options
from attention_client._torch_gradients import Tensors, recompute
from attention_client.scoring import Additive, Bilinear, Gaussian

# What may take gradients, and what of a request does not, in the operator's order.
LEARNED = (
    *("query", "key", "value", "bias", "sinks"),
    *("w_q", "w_k", "w_v", "sigma", "m"),
)
_GIVEN = (*LEARNED, "attend_mask", "valid_lens", "seed")


@dataclasses.dataclass(frozen=True)
class Settings:
    """What of a call is no tensor. client: its number, 0 for the default."""

    client: int = 0
    causal: str = "none"
    scale: float | None = None
    softcap: float | None = None
    dropout_p: float = 0.0
    empty_rows: str = "zero"
    weights: bool = False
    dropped: bool = False  # whether weights are those after dropout


# Tensors that are what they hold, and datatypes that an engine reads and writes.
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_READ = (torch.float32, torch.float16, torch.bfloat16)

_SETTINGS = tuple(field.name for field in dataclasses.fields(Settings))
_SCHEMA = (
    "Tensor query, Tensor key, Tensor value, "
    + "".join(f"Tensor? {name}, " for name in _GIVEN[3:])
    + "int client, str causal, float? scale, float? softcap, float dropout_p, "
    "str empty_rows, bool weights, bool dropped"
)


def number(client: Any) -> int:
    """What stands for a client in Settings: 0 for None."""
    if client is None:
        return 0
    if torch.compiler.is_compiling() or _channel.CLIENTS.get(id(client)) is client:
        return id(client)
    _channel.CLIENTS[id(client)] = client
    return id(client)


def attend(tensors: dict[str, Any], settings: Settings) -> tuple[Tensor, Tensor | None]:
    """The output; and the weights before dropout, if they are wanted."""
    given = [tensors.get(name) for name in _GIVEN]
    if not _is_watched(given):
        return _computed(tensors, settings)
    plain = [getattr(settings, name) for name in _SETTINGS]
    output, weights = _called(*given, *plain)
    return output, weights if settings.weights else None


def _is_watched(tensors: list[Tensor | None]) -> bool:
    """Whether somebody has to see an operator, who records, traces or transforms.

    Others get along without PyTorch's dispatcher, which takes longer than a small call.
    """
    # The compiler sees no further than the first line.
    if (
        torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
        or forward_ad._current_level >= 0
    ):
        return True
    records = torch.is_grad_enabled()
    return any(
        tensor is not None
        and (type(tensor) not in _PLAIN or (records and tensor.requires_grad))
        for tensor in tensors
    )


def _computed(
    tensors: dict[str, Any], settings: Settings
) -> tuple[Tensor, Tensor | None]:
    """What the operator gives, without it."""
    client = _client(settings)
    query, key, value = (tensors[name].detach() for name in ("query", "key", "value"))
    kind, given = query.dtype, options(tensors, settings)
    if getattr(client, "takes_out", False) and _is_read_where_it_is(query, key, value):
        # Heads behind rows, as whoever joins heads wants them.
        batch, heads, length, _ = query.shape
        output = query.new_empty(batch, length, heads, value.shape[-1]).transpose(1, 2)
        arrays = (torch_elements(tensor) for tensor in (query, key, value))
        result = client.attend(*arrays, out=torch_elements(output), **given)
        weights = result.weights
        return output, None if weights is None else torch.from_numpy(weights)
    with torch.no_grad():
        result = client.attend(query, key, value, **given)
    return result.output.to(kind), result.weights


def _is_read_where_it_is(*tensors: Tensor) -> bool:
    return all(
        tensor.dim() == 4 and tensor.device.type == "cpu" and tensor.dtype in _READ
        for tensor in tensors
    )


def options(tensors: dict[str, Any], settings: Settings) -> Options:
    """What the request has beside query, key and value."""
    seed = tensors.get("seed")
    found: Options = {
        "attend_mask": tensors.get("attend_mask"),
        "valid_lens": tensors.get("valid_lens"),
        "causal": settings.causal,  # type: ignore[typeddict-item]
        "softcap": settings.softcap,
        "empty_rows": settings.empty_rows,  # type: ignore[typeddict-item]
        "weights": settings.weights,
        "weights_after_dropout": settings.dropped,
        "bias": tensors.get("bias"),
        "sinks": tensors.get("sinks"),
        "training": settings.dropout_p > 0,
        "dropout_p": settings.dropout_p,
        "seed": 0 if seed is None else int(seed.item()),
    }
    if tensors.get("w_q") is not None:
        w_q, w_k, w_v = (tensors[name] for name in ("w_q", "w_k", "w_v"))
        found["scoring"] = Additive(w_q, w_k, w_v)
    elif tensors.get("sigma") is not None:
        found["scoring"] = Gaussian(abs(float(tensors["sigma"].item())))
    elif tensors.get("m") is not None:
        found["scoring"] = Bilinear(tensors["m"], settings.scale)
    else:
        found["scale"] = settings.scale
    return found


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
    return tensors, Settings(*arguments[len(_GIVEN) :])


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
        settings.client, dropout_p=settings.dropout_p, weights=True, dropped=True
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
