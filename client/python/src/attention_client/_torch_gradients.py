"""Calls with PyTorch's tensors, and their gradients, recomputed by PyTorch itself."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from attention_client._request import Options
from attention_client.client import Client
from attention_client.scoring import Additive

# What may take gradients, in the order of Attend.apply's arguments.
NAMES = ("query", "key", "value", "bias", "sinks", "w_q", "w_k", "w_v")


@dataclass(frozen=True)
class Call:
    """A call's settings: what of a request takes no gradients."""

    client: Client
    attend_mask: Tensor | None = None
    valid_lens: Tensor | None = None
    causal: bool | Literal["bottom_right"] = False
    scale: float | None = None
    softcap: float | None = None
    dropout_p: float = 0.0
    seed: int = 0
    empty_rows: Literal["zero", "uniform"] = "zero"
    weights: bool = False
    # Whether gradients are recomputed; else a tensor that requires them is an error.
    gradients: bool = False

    def __call__(self, **tensors: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The output, and the weights before dropout if they are wanted."""
        if not self.gradients:
            return self.compute(tensors)
        given = [tensors.get(name) for name in NAMES]
        output, weights = _Attend.apply(self, *given)
        return output, weights

    def options(self, tensors: dict[str, Any]) -> Options:
        """What the request has beside query, key and value."""
        options: Options = {
            "attend_mask": self.attend_mask,
            "valid_lens": self.valid_lens,
            "causal": self.causal,
            "softcap": self.softcap,
            "empty_rows": self.empty_rows,
            "weights": self.weights,
            "bias": tensors.get("bias"),
            "sinks": tensors.get("sinks"),
            "training": self.dropout_p > 0,
            "dropout_p": self.dropout_p,
            "seed": self.seed,
        }
        if tensors.get("w_q") is not None:
            w_q, w_k, w_v = (tensors[name] for name in ("w_q", "w_k", "w_v"))
            options["scoring"] = Additive(w_q, w_k, w_v)
        else:
            options["scale"] = self.scale
        return options

    def compute(self, tensors: dict[str, Any]) -> tuple[Tensor, Tensor | None]:
        query, key, value = (tensors[name] for name in ("query", "key", "value"))
        options = self.options(tensors)
        result = self.client.attend(query, key, value, **options)
        # float64 comes back as float32.
        return result.output.to(query.dtype), result.weights

    def kept(self, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Which weights dropout keeps: those of a call that has nothing else."""
        *leading, queries, keys = shape
        result = self.client.attend(
            like.new_zeros(*leading, queries, 1),
            like.new_zeros(*leading, keys, 1),
            like.new_zeros(*leading, keys, 0),
            weights=True,
            weights_after_dropout=True,
            training=True,
            dropout_p=self.dropout_p,
            seed=self.seed,
        )
        kept: Tensor = result.weights > 0
        return kept


class _Attend(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, call: Call, *tensors: Tensor | None) -> Any:
        ctx.call = call
        ctx.save_for_backward(*tensors)
        output, weights = call.compute(dict(zip(NAMES, tensors, strict=True)))
        if weights is not None:
            ctx.mark_non_differentiable(weights)
        return output, weights

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: Tensor, _: Tensor | None) -> Any:
        needed = ctx.needs_input_grad[1:]
        tensors: dict[str, Any] = {}
        for name, tensor, need in zip(NAMES, ctx.saved_tensors, needed, strict=True):
            if tensor is not None:
                tensors[name] = tensor.detach().requires_grad_(need)
        wanted = [tensors[n] for n, need in zip(NAMES, needed, strict=True) if need]
        with torch.enable_grad():
            output = recompute(ctx.call, **tensors)
        found = iter(torch.autograd.grad(output, wanted, gradient, allow_unused=True))
        return None, *(next(found) if need else None for need in needed)


def recompute(
    call: Call,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None = None,
    sinks: Tensor | None = None,
    w_q: Tensor | None = None,
    w_k: Tensor | None = None,
    w_v: Tensor | None = None,
) -> Tensor:
    """The output of a call, by PyTorch, in float32 or float64."""
    kind = query.dtype
    exact = torch.promote_types(kind, torch.float32)
    query, key, value = (tensor.to(exact) for tensor in (query, key, value))
    if query.dim() == 4 and query.shape[1] != key.shape[1]:
        group = query.shape[1] // key.shape[1]
        key, value = (t.repeat_interleave(group, 1) for t in (key, value))
    if w_q is not None and w_k is not None and w_v is not None:
        hidden = (query @ w_q).unsqueeze(-2) + (key @ w_k).unsqueeze(-3)
        scores = torch.tanh(hidden) @ w_v.flatten()
    else:
        scale = 1 / math.sqrt(query.shape[-1]) if call.scale is None else call.scale
        scores = scale * (query @ key.mT)
    if call.softcap:
        scores = call.softcap * torch.tanh(scores / call.softcap)
    if bias is not None:
        scores = scores + bias.to(exact)
    scores = scores.masked_fill(~_allowed(call, scores), -torch.inf)
    weights = _softmax(call, scores, sinks)
    if call.dropout_p > 0:
        kept = call.kept(tuple(weights.shape), query)
        weights = weights * kept / (1 - call.dropout_p)
    return (weights @ value).to(kind)


def _softmax(call: Call, scores: Tensor, sinks: Tensor | None) -> Tensor:
    empty = (scores == -torch.inf).all(-1, keepdim=True)
    # A row of nothing but -inf has neither a softmax nor gradients.
    scores = scores.masked_fill(empty, 0)
    if sinks is None:
        weights = scores.softmax(-1)
    else:
        sink = sinks.to(scores.dtype)[..., None, None]
        sink = sink.expand(*scores.shape[:-1], 1)
        weights = torch.cat([scores, sink], -1).softmax(-1)[..., :-1]
    return weights if call.empty_rows == "uniform" else weights.masked_fill(empty, 0)


def _allowed(call: Call, scores: Tensor) -> Tensor:
    """Which keys take part, of the shape of the scores or broadcast to it."""
    queries, keys = scores.shape[-2:]
    allowed = scores.new_ones(queries, keys, dtype=torch.bool)
    if call.causal:
        allowed = allowed.tril()
    if call.attend_mask is not None:
        allowed = allowed & call.attend_mask.bool()
    if call.valid_lens is not None:
        lengths = call.valid_lens.to(scores.device)
        lengths = lengths.reshape(*lengths.shape[:1], -1, 1)  # (B, 1 or Lq, 1)
        within = torch.arange(keys, device=scores.device) < lengths
        allowed = allowed & (within.unsqueeze(1) if scores.dim() == 4 else within)
    return allowed
