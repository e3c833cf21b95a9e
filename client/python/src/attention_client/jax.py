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
from attention_client._default import default_client, set_client
from attention_client._options import Options
from attention_client.errors import InvalidArgumentError

__all__ = ["default_client", "dot_product_attention", "set_client"]


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
    client: Any = None,
    gradients: bool = False,
) -> Any:
    """jax.nn.dot_product_attention with its meaning: (B, T, N, H) or (T, N, H).

    A query for which no key takes part gives the mean of all values, as JAX's does.
    Works below jax.jit as well, as a callback to the host. With gradients, JAX computes
    the call again on the way back, in its own memory; without, jax.grad gives a
    ValueError. jax.vmap makes one call after the other.

    client: None means what set_client has set, else the server at $ATTENTION_SERVER or
    127.0.0.1:8001. Shapes that do not fit are an InvalidArgumentError, where a call is
    traced already. What the server says is an AttentionError, and below jax.jit in the
    text of jax.errors.JaxRuntimeError.
    """
    query, key, value = (jnp.asarray(array) for array in (query, key, value))
    bias, mask = (None if a is None else jnp.asarray(a) for a in (bias, mask))
    _check_tensors(query, key, value)
    scores = (*_four(query.shape)[:1], query.shape[-2], query.shape[-3], key.shape[-3])
    for name, array in (("bias", bias), ("mask", mask)):
        _check_broadcast(name, array, scores)
    for name, array in (
        ("query_seq_lengths", query_seq_lengths),
        ("key_value_seq_lengths", key_value_seq_lengths),
    ):
        if array is not None and np.shape(array) != scores[:1]:
            raise InvalidArgumentError(
                f"{name}: shape {np.shape(array)} (expected {scores[:1]}: one for each "
                "batch entry)"
            )
    if isinstance(local_window_size, int):
        local_window_size = (local_window_size, local_window_size)
    call = _Call(client, scale, is_causal, local_window_size, gradients)
    lengths = query_seq_lengths, key_value_seq_lengths
    tensors = query, key, value
    if not any(
        isinstance(a, jax.core.Tracer)
        for a in jax.tree.leaves((tensors, bias, mask, lengths))
    ):
        # No callback: JAX would hide what a call fails with.
        return jnp.asarray(
            _attend(call)(tensors, {"bias": bias, "attend_mask": mask}, lengths)[0]
        )
    return _attention(call, tensors, bias, mask, lengths)


def _check_tensors(query: Any, key: Any, value: Any) -> None:
    if query.ndim not in (3, 4):
        raise InvalidArgumentError(
            f"query: shape {query.shape} (expected (B, T, N, H) or (T, N, H))"
        )
    if not jnp.issubdtype(query.dtype, jnp.floating):
        # The output would be cut to integers.
        raise InvalidArgumentError(f"query: {query.dtype} (expected floating point)")
    *batch, _, heads, width = query.shape
    keys = key.shape[-3:-2]
    for name, array, wanted in (
        ("key", key, (*batch, *keys, None, width)),
        ("value", value, (*batch, *keys, *key.shape[-2:-1], None)),
    ):
        fits = array.ndim == len(wanted) and all(
            size in (None, own) for own, size in zip(array.shape, wanted, strict=True)
        )
        if not fits:
            shown = ", ".join("any" if size is None else str(size) for size in wanted)
            raise InvalidArgumentError(
                f"{name}: shape {array.shape} (expected ({shown}), as query's "
                f"{query.shape} and key's {key.shape} say)"
            )
        if array.dtype != query.dtype:
            raise InvalidArgumentError(
                f"{name}: {array.dtype} (expected {query.dtype}, as query has)"
            )
    if key.shape[-2] == 0 or heads % key.shape[-2]:
        raise InvalidArgumentError(
            f"key: {key.shape[-2]} heads (expected a divisor of query's {heads})"
        )


def _check_broadcast(name: str, array: Any, scores: tuple[int, ...]) -> None:
    if array is None:
        return
    fits = array.ndim <= 4 and all(
        own in (1, size)
        for own, size in zip(array.shape[::-1], scores[::-1], strict=False)
    )
    if not fits:
        raise InvalidArgumentError(
            f"{name}: shape {array.shape} (expected one that broadcasts to "
            f"(B, N, T, S), {scores})"
        )


@dataclass(frozen=True, eq=False)
class _Call:
    """What of a call is no array."""

    client: Any
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

    *_, width = tensors[0].shape
    *_, of_values = tensors[2].shape

    def wide(array: Any) -> Any:
        missing = max(width, of_values) - array.shape[-1]
        return jnp.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, missing)])

    def again(tensors: Any, bias: Any) -> Any:
        allowed = None if mask is None else mask.astype(bool)
        if bias is not None:
            # Of a row of nothing but -inf JAX makes NaN, the service a mean.
            rows = empty[..., jnp.newaxis]
            bias = jnp.where(rows, 0, bias)
            allowed = ~rows if allowed is None else allowed & ~rows
        # JAX takes values as wide as keys alone. Zeros change no score, and only their
        # own part of the output.
        output = jax.nn.dot_product_attention(
            *(wide(array) for array in tensors),
            bias,
            allowed,
            scale=width**-0.5 if call.scale is None else call.scale,
            is_causal=call.is_causal,
            query_seq_lengths=of_queries,
            key_value_seq_lengths=of_keys,
            local_window_size=call.window,
        )
        return output[..., :of_values]

    _, pull_back = jax.vjp(again, tensors, bias)
    of_tensors, of_bias = pull_back(gradient)
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
            "empty_rows": "uniform",
        }
        for name in ("bias", "attend_mask"):
            if masks[name] is not None:
                mask = np.asarray(masks[name])
                # (B, N, T, S); with fewer dimensions it broadcasts as it is.
                given[name] = mask if mask.ndim < 3 else mask.reshape(_four(mask.shape))
        given["valid_lens"] = _valid_lens(*lengths, arrays[0], arrays[1])
        result = (call.client or default_client()).attend(*arrays, **given)
        output: Array = result.output.swapaxes(-2, -3)
        if lengths[0] is not None:
            # What is behind a query's length is 0 in JAX.
            rows = np.arange(output.shape[1]) < np.asarray(lengths[0])[:, np.newaxis]
            output = np.where(rows[..., np.newaxis, np.newaxis], output, 0)
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
