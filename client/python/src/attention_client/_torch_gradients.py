"""The output of a call by PyTorch itself, for its gradients."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

Tensors = dict[str, Tensor | None]


def recompute(tensors: Tensors, settings: Any, kept: Any) -> Tensor:
    """The output, in the query's datatype; computed in float32 or float64.

    tensors, settings: of _torch_operator. kept: which weights dropout keeps, for
    weights of a shape; called where there is dropout.
    """
    query = tensors["query"]
    assert query is not None
    with torch.autocast(query.device.type, enabled=False):
        return _recompute(query, tensors, settings, kept)


def _recompute(query: Tensor, tensors: Tensors, settings: Any, kept: Any) -> Tensor:
    kind = query.dtype
    exact = torch.promote_types(kind, torch.float32)
    wide = {
        name: tensor.to(exact)
        if tensor is not None and tensor.is_floating_point()
        else tensor
        for name, tensor in tensors.items()
    }
    query, key, value = (wide[name] for name in ("query", "key", "value"))
    assert query is not None and key is not None and value is not None
    if query.dim() == 4 and query.shape[1] != key.shape[1]:
        group = query.shape[1] // key.shape[1]
        key, value = (t.repeat_interleave(group, 1) for t in (key, value))
    scores = _scores(query, key, wide, settings.scale)
    if settings.softcap:
        scores = settings.softcap * torch.tanh(scores / settings.softcap)
    if (bias := wide["bias"]) is not None:
        scores = scores + bias
    scores = scores.masked_fill(~_allowed(wide, settings, scores), -torch.inf)
    weights = _softmax(scores, wide["sinks"], settings.empty_rows)
    if settings.dropout_p > 0:
        weights = weights * kept(weights.shape) / (1 - settings.dropout_p)
    return (weights @ value).to(kind)


def _scores(query: Tensor, key: Tensor, wide: Tensors, scale: float | None) -> Tensor:
    if (w_q := wide["w_q"]) is not None:
        w_k, w_v = wide["w_k"], wide["w_v"]
        assert w_k is not None and w_v is not None
        hidden = (query @ w_q).unsqueeze(-2) + (key @ w_k).unsqueeze(-3)
        return torch.tanh(hidden) @ w_v.flatten()
    if (sigma := wide["sigma"]) is not None:
        # Of the differences, as norms and products lose far points' digits.
        squares = (query.unsqueeze(-2) - key.unsqueeze(-3)).square().sum(-1)
        return -squares / (2 * sigma.reshape(()).square())
    if (m := wide["m"]) is not None:
        return (1.0 if scale is None else scale) * (query @ m @ key.mT)
    if scale is None:
        scale = 1 / math.sqrt(query.shape[-1])
    return scale * (query @ key.mT)


def _softmax(scores: Tensor, sinks: Tensor | None, empty_rows: str) -> Tensor:
    empty = (scores == -torch.inf).all(-1, keepdim=True)
    # A row of nothing but -inf has neither a softmax nor gradients.
    scores = scores.masked_fill(empty, 0)
    if sinks is None:
        weights = scores.softmax(-1)
    else:
        sink = sinks[..., None, None].expand(*scores.shape[:-1], 1)
        weights = torch.cat([scores, sink], -1).softmax(-1)[..., :-1]
    return weights if empty_rows == "uniform" else weights.masked_fill(empty, 0)


def _allowed(tensors: Tensors, settings: Any, scores: Tensor) -> Tensor:
    """Which keys take part, of the shape of the scores or broadcast to it."""
    queries, keys = scores.shape[-2:]
    allowed = scores.new_ones(queries, keys, dtype=torch.bool)
    if settings.causal != "none":
        last = keys - queries if settings.causal == "bottom_right" else 0
        allowed = allowed.tril(last)
    if (mask := tensors["attend_mask"]) is not None:
        allowed = allowed & mask.bool()
    if (lengths := tensors["valid_lens"]) is not None:
        lengths = lengths.to(scores.device)
        if lengths.dim() == 1:
            lengths = lengths.unsqueeze(-1)
        lengths = lengths.unsqueeze(-1)  # (B, 1 or Lq, 1)
        within = torch.arange(keys, device=scores.device) < lengths
        allowed = allowed & (within.unsqueeze(1) if scores.dim() == 4 else within)
    return allowed
