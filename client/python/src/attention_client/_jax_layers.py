"""Attention of JAX's arrays by any scoring function, with gradients."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from attention_client._arrays import Array
from attention_client._default import default_client
from attention_client._options import Options
from attention_client.scoring import Additive, Bilinear, Gaussian

# query, key, value, and the scoring function's parameters by the service's names.
Tensors: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Call:
    """What of a call is no array. client: None means the default."""

    client: Any = None
    scoring: Literal["dot_product", "additive", "gaussian", "bilinear"] = "dot_product"
    dropout: float = 0.0


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def attend(call: Call, tensors: Tensors, lengths: Any, seed: Any) -> tuple[Any, Any]:
    """The output, and the weights before dropout, in float32.

    lengths: (B) or (B, Lq), or None. seed: of the dropout. JAX computes the call again
    on the way back, in its own memory.
    """
    query, key, value = (tensors[name] for name in ("query", "key", "value"))
    inputs = tensors, lengths, seed
    if not any(isinstance(a, jax.core.Tracer) for a in jax.tree.leaves(inputs)):
        # No callback: JAX would hide what a call fails with.
        return tuple(jnp.asarray(array) for array in _compute(call, *inputs))
    output = jax.ShapeDtypeStruct(
        (*query.shape[:-1], value.shape[-1]), _kind_of_output(query)
    )
    weights = jax.ShapeDtypeStruct((*query.shape[:-1], key.shape[-2]), jnp.float32)
    found: tuple[Any, Any] = jax.pure_callback(
        partial(_compute, call), (output, weights), *inputs, vmap_method="sequential"
    )
    return found


def _forward(call: Call, tensors: Tensors, lengths: Any, seed: Any) -> Any:
    return attend(call, tensors, lengths, seed), (tensors, lengths, seed)


def _backward(call: Call, given: Any, gradients: Any) -> Any:
    tensors, lengths, seed = given
    kept = _kept(call, tensors, seed) if call.dropout > 0 else 1.0

    def again(tensors: Tensors) -> Any:
        # As the service computes, in float32 at least. But NaN or infinity in what a
        # mask hides gives gradients of NaN: a weight of 0 does not take it out.
        wide = {
            name: tensor.astype(jnp.promote_types(tensor.dtype, jnp.float32))
            for name, tensor in tensors.items()
        }
        weights = _weights(_scores(call, wide), lengths)
        output = (weights * kept) @ wide["value"]
        return (
            output.astype(_kind_of_output(tensors["query"])),
            weights.astype(jnp.float32),
        )

    _, pull_back = jax.vjp(again, tensors)
    return *pull_back(gradients), None, None


attend.defvjp(_forward, _backward)


def masked_softmax(scores: Any, valid_lens: Any = None) -> Any:
    """The weights of scores, (B, Lq, Lk), of which valid_lens take part.

    valid_lens: (B) or (B, Lq), from 0 to Lk; a row of length 0 takes them all. With
    heads as well, (B, H, Lq, Lk). JAX computes it: scores that are here already are not
    worth a call.
    """
    if valid_lens is None:
        return jax.nn.softmax(scores)
    lowest = max(-1e6, float(jnp.finfo(scores.dtype).min))  # float16 has no -1e6
    return jax.nn.softmax(jnp.where(_taking_part(scores, valid_lens), scores, lowest))


def _weights(scores: Any, valid_lens: Any) -> Any:
    """As masked_softmax, and exact: no score is as low as one that is masked."""
    if valid_lens is not None:
        scores = jnp.where(_taking_part(scores, valid_lens), scores, -jnp.inf)
    # A row of nothing but -inf has neither a softmax nor gradients.
    empty = (scores == -jnp.inf).all(-1, keepdims=True)
    return jax.nn.softmax(jnp.where(empty, 0, scores))


def _taking_part(scores: Any, valid_lens: Any) -> Any:
    lengths = jnp.asarray(valid_lens)
    heads = (1,) * (scores.ndim - 3)
    rows = lengths.shape[1:] or (1,)
    lengths = lengths.reshape(*lengths.shape[:1], *heads, *rows, 1)
    return jnp.arange(scores.shape[-1]) < lengths


def _kind_of_output(query: Any) -> Any:
    """The query's datatype; of integers, the one that they are sent in."""
    is_floating = jnp.issubdtype(query.dtype, jnp.floating)
    return query.dtype if is_floating else jnp.dtype(jnp.float32)


def _compute(call: Call, tensors: Any, lengths: Any, seed: Any) -> tuple[Array, Array]:
    given: Options = {
        "valid_lens": None if lengths is None else np.asarray(lengths),
        # As the book's masked_softmax: a row without keys takes them all.
        "empty_rows": "uniform",
        "weights": True,
        "training": call.dropout > 0,
        "dropout_p": call.dropout,
        "seed": 0 if seed is None else int(seed),
    }
    kind = _kind_of_output(tensors["query"])
    arrays = {name: np.asarray(array) for name, array in tensors.items()}
    inputs = [arrays.pop(name) for name in ("query", "key", "value")]
    if call.scoring == "additive":
        given["scoring"] = Additive(**arrays)
    elif call.scoring == "gaussian":
        given["scoring"] = Gaussian(abs(float(arrays["sigma"])))
    elif call.scoring == "bilinear":
        given["scoring"] = Bilinear(arrays["m"])
    result = (call.client or default_client()).attend(*inputs, **given)
    # float64 was sent as float32.
    return result.output.astype(kind, copy=False), result.weights


def _kept(call: Call, tensors: Tensors, seed: Any) -> Any:
    """What dropout multiplies weights by, which a call tells that has nothing else."""
    *leading, queries, _ = tensors["query"].shape
    keys = tensors["key"].shape[-2]

    def ask(seed: Any) -> Array:
        result = (call.client or default_client()).attend(
            np.zeros((*leading, queries, 1), np.float32),
            np.zeros((*leading, keys, 1), np.float32),
            np.zeros((*leading, keys, 0), np.float32),
            training=True,
            dropout_p=call.dropout,
            seed=int(seed),
            weights=True,
            weights_after_dropout=True,
        )
        kept: Array = np.where(result.weights > 0, 1 / (1 - call.dropout), 0)
        return kept.astype(np.float32)

    shape = jax.ShapeDtypeStruct((*leading, queries, keys), jnp.float32)
    return jax.pure_callback(ask, shape, seed, vmap_method="sequential")


def _scores(call: Call, tensors: Tensors) -> Any:
    query, key = tensors["query"], tensors["key"]
    if call.scoring == "dot_product":
        return query @ key.mT / query.shape[-1] ** 0.5
    if call.scoring == "additive":
        of_queries, of_keys = query @ tensors["w_q"], key @ tensors["w_k"]
        hidden = jnp.tanh(of_queries[..., :, None, :] + of_keys[..., None, :, :])
        return hidden @ tensors["w_v"]
    if call.scoring == "gaussian":
        apart = query[..., :, None, :] - key[..., None, :, :]
        return -(apart**2).sum(-1) / (2 * tensors["sigma"] ** 2)
    return query @ tensors["m"] @ key.mT
