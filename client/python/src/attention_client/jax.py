"""jax.nn.dot_product_attention, computed by the service."""

from __future__ import annotations

from collections.abc import Callable
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
) -> Any:
    """jax.nn.dot_product_attention with its meaning: (B, T, N, H) or (T, N, H).

    Works below jax.jit as well, as a callback to the host. Without gradients: jax.grad
    is an error.
    """
    query, key, value = (jnp.asarray(array) for array in (query, key, value))
    shape = (*query.shape[:-1], value.shape[-1])
    if isinstance(local_window_size, int):
        local_window_size = (local_window_size, local_window_size)
    options: Options = {
        "scale": scale,
        "causal": is_causal,
        "window": local_window_size,
    }
    result = jax.pure_callback(
        _attend(client, options),
        jax.ShapeDtypeStruct(shape, query.dtype),
        (query, key, value),
        {"bias": bias, "attend_mask": mask},
        (query_seq_lengths, key_value_seq_lengths),
    )
    return result


def _attend(client: Client, options: Options) -> Callable[..., Array]:
    def attend(tensors: Any, masks: dict[str, Any], lengths: tuple[Any, Any]) -> Array:
        arrays = [_heads_first(array) for array in tensors]
        given: Options = {**options}
        for name in ("bias", "attend_mask"):
            if masks[name] is not None:
                mask = np.asarray(masks[name])
                # (B, N, T, S); with fewer dimensions it broadcasts as it is.
                given[name] = mask if mask.ndim < 3 else mask.reshape(_four(mask.shape))
        given["valid_lens"] = _valid_lens(*lengths, arrays[0], arrays[1])
        output = client.attend(*arrays, **given).output.swapaxes(-2, -3)
        result: Array = output.reshape(*tensors[0].shape[:-1], output.shape[-1])
        return result.astype(tensors[0].dtype, copy=False)

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
