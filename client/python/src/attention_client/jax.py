"""jax.nn.dot_product_attention, computed by the service."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attention_client._arrays import Array
from attention_client._request import Options
from attention_client.client import Client


def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: Any = None,
    key_value_seq_lengths: Any = None,
    local_window_size: int | tuple[int, int] | None = None,
    client: Client,
    gradients: bool = False,
) -> Any:
    """jax.nn.dot_product_attention with its meaning: (B, T, N, H) or (T, N, H).

    Works below jax.jit as well, as a callback to the host. With gradients, JAX computes
    the call again on the way back, in its own memory; without, jax.grad gives a
    ValueError. jax.vmap makes one call after the other.
    """
    query, key, value = (jnp.asarray(array) for array in (query, key, value))
    bias = None if bias is None else jnp.asarray(bias)
    if isinstance(local_window_size, int):
        local_window_size = (local_window_size, local_window_size)
    call = _Call(client, scale, is_causal, local_window_size, gradients)
    lengths = query_seq_lengths, key_value_seq_lengths
    return _attention(call, (query, key, value), bias, mask, lengths)


@dataclass(frozen=True, eq=False)
class _Call:
    """What of a call is no array."""

    client: Client
    scale: float | None
    is_causal: bool
    window: tuple[int, int] | None
    gradients: bool


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(
    call: _Call, tensors: Any, bias: Any, mask: Any, lengths: tuple[Any, Any]
) -> Any:
    return _compute(call, tensors, bias, mask, lengths)[0]


def _compute(
    call: _Call, tensors: Any, bias: Any, mask: Any, lengths: tuple[Any, Any]
) -> Any:
    """The output; and, of a call with gradients, which queries no key takes part for.

    The latter is (B, N, T).
    """
    query, _, value = tensors
    batch, length, heads, _ = _four(query.shape)
    return jax.pure_callback(
        _attend(call),
        (
            jax.ShapeDtypeStruct((*query.shape[:-1], value.shape[-1]), query.dtype),
            jax.ShapeDtypeStruct((batch, heads, length), bool),
        ),
        tensors,
        {"bias": bias, "attend_mask": mask},
        lengths,
        vmap_method="sequential",
    )


def _forward(
    call: _Call, tensors: Any, bias: Any, mask: Any, lengths: tuple[Any, Any]
) -> Any:
    if not call.gradients:
        raise ValueError(
            "dot_product_attention: asked for gradients, which the service does not "
            "compute (expected gradients=True, for JAX to compute the call again)"
        )
    output, empty = _compute(call, tensors, bias, mask, lengths)
    return output, (tensors, bias, mask, lengths, empty)


def _backward(call: _Call, kept: Any, gradient: Any) -> Any:
    tensors, bias, mask, (of_queries, of_keys), empty = kept

    def again(tensors: Any, bias: Any) -> Any:
        if bias is not None:
            # A row of nothing but -inf has neither a softmax nor gradients.
            bias = jnp.where(empty[..., jnp.newaxis], 0, bias)
        return jax.nn.dot_product_attention(
            *tensors,
            bias,
            mask,
            scale=call.scale,
            is_causal=call.is_causal,
            query_seq_lengths=of_queries,
            key_value_seq_lengths=of_keys,
            local_window_size=call.window,
        )

    _, pull_back = jax.vjp(again, tensors, bias)
    # Where no key takes part JAX has a mean of the values, the service has zeros.
    rows = empty.swapaxes(-1, -2).reshape(*gradient.shape[:-1], 1)
    of_tensors, of_bias = pull_back(jnp.where(rows, 0, gradient))
    return of_tensors, of_bias, None, None


_attention.defvjp(_forward, _backward)


def _attend(call: _Call) -> Callable[..., tuple[Array, Array]]:
    def attend(
        tensors: Any, masks: dict[str, Any], lengths: tuple[Any, Any]
    ) -> tuple[Array, Array]:
        arrays = [_heads_first(array) for array in tensors]
        given: Options = {
            "scale": call.scale,
            "causal": call.is_causal,
            "window": call.window,
            "lse": call.gradients,
        }
        for name in ("bias", "attend_mask"):
            if masks[name] is not None:
                mask = np.asarray(masks[name])
                # (B, N, T, S); with fewer dimensions it broadcasts as it is.
                given[name] = mask if mask.ndim < 3 else mask.reshape(_four(mask.shape))
        given["valid_lens"] = _valid_lens(*lengths, arrays[0], arrays[1])
        result = call.client.attend(*arrays, **given)
        output: Array = result.output.swapaxes(-2, -3)
        output = output.reshape(*tensors[0].shape[:-1], output.shape[-1])
        empty: Array = (
            np.isneginf(result.lse)
            if call.gradients
            else np.zeros(arrays[0].shape[:3], bool)
        )
        return output.astype(tensors[0].dtype, copy=False), empty

    return attend


def _four(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (1,) * (4 - len(shape)) + shape


def _heads_first(array: Any) -> Array:
    """(B, T, N, H) or (T, N, H) as (B, N, T, H)."""
    found: Array = np.asarray(array)
    swapped: Array = found.reshape(_four(found.shape)).swapaxes(1, 2)
    return swapped


def _valid_lens(
    of_queries: Any, of_keys: Any, query: Array, key: Array
) -> Array | None:
    """Both lengths as the service has them: a query beyond its own sees no key."""
    if of_queries is None and of_keys is None:
        return None
    batch, _, queries, _ = query.shape
    keys = np.full(batch, key.shape[2]) if of_keys is None else np.asarray(of_keys)
    if of_queries is None:
        return np.asarray(keys, np.int32)
    rows = np.arange(queries) < np.asarray(of_queries)[:, np.newaxis]
    found: Array = np.where(rows, keys[:, np.newaxis], 0).astype(np.int32)
    return found
