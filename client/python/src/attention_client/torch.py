"""PyTorch's scaled_dot_product_attention, computed by the service."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.attention.bias import CausalBias, CausalVariant

from attention_client._default import default_client, set_client
from attention_client._torch_call import Call

__all__ = ["default_client", "scaled_dot_product_attention", "set_client"]


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    client: Any = None,
    gradients: bool = False,
) -> torch.Tensor:
    """torch.nn.functional.scaled_dot_product_attention with its meaning.

    Computed in FP32, also for float64. gradients: PyTorch recomputes the call on the
    way back, with memory for all weights. Without it, inputs that require gradients are
    an error, except under torch.no_grad(). As PyTorch's, it drops weights whenever
    dropout_p > 0; which ones follows from torch.manual_seed(), but they are not those
    that PyTorch drops. Under autocast it computes in autocast's datatype, as PyTorch's.

    torch.compile and torch.export keep it as one operator, attention_client::attend;
    torch.func.vmap makes one call for each entry.
    """
    if is_causal and attn_mask is not None:
        raise ValueError("attn_mask: given with is_causal (expected one of them)")
    if not 0 <= dropout_p < 1:
        raise ValueError(f"dropout_p: {dropout_p!r} (expected 0 <= p < 1)")
    query, key, value = _broadcast(query, key, value, enable_gqa)
    leading = query.shape[:-2]
    if enable_gqa and query.dim() == 3:  # heads, which a batch of the service is not
        query, key, value = (tensor.unsqueeze(0) for tensor in (query, key, value))
    bias = None
    causal: Any = is_causal
    if isinstance(attn_mask, CausalBias):
        lower_right = attn_mask.variant == CausalVariant.LOWER_RIGHT
        causal, attn_mask = "bottom_right" if lower_right else True, None
    if attn_mask is not None:
        attn_mask = _mask(attn_mask, query, key)
        if attn_mask.dtype != torch.bool:
            attn_mask, bias = None, attn_mask
    call = Call(
        client=client,
        attend_mask=attn_mask,
        causal=causal,
        scale=scale,
        dropout_p=dropout_p,
        gradients=gradients and torch.is_grad_enabled(),
    )
    output, _ = call(query=_flat(query), key=_flat(key), value=_flat(value), bias=bias)
    return output.reshape(*leading, query.shape[-2], value.shape[-1])


def _broadcast(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, enable_gqa: bool
) -> tuple[torch.Tensor, ...]:
    """The tensors with the same leading extents; heads may differ with enable_gqa."""
    own = 3 if enable_gqa else 2  # extents that are a tensor's own
    tensors = (query, key, value)
    for name, tensor in zip(("query", "key", "value"), tensors, strict=True):
        if tensor.dim() < own:
            shape = tuple(tensor.shape)
            raise ValueError(f"{name}: shape {shape} (expected {own} extents or more)")
        if not tensor.is_floating_point():  # the output would be cut to integers
            raise ValueError(f"{name}: {tensor.dtype} (expected floating point)")
    try:
        leading = torch.broadcast_shapes(*(tensor.shape[:-own] for tensor in tensors))
    except RuntimeError:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
        raise ValueError(
            f"query, key, value: shapes {shapes} (expected the same batch and heads; "
            "enable_gqa lets the heads of key and value be fewer)"
        ) from None
    return tuple(tensor.expand(*leading, *tensor.shape[-own:]) for tensor in tensors)


def _mask(mask: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    if query.dim() > 4:
        mask = mask.expand(*query.shape[:-1], key.shape[-2])
    return _flat(mask)


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """With one batch extent in place of many."""
    return tensor.flatten(0, -4) if tensor.dim() > 4 else tensor
