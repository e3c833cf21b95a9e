"""Attention layers for Flax (linen) as textbooks have them, computed by the service.

Their names, arguments, parameters and results are those of "Dive into Deep Learning" in
its edition for JAX: a layer gives the output and the weights before dropout. Gradients
are recomputed by JAX.
"""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from attention_client._default import default_client, set_client
from attention_client._jax_layers import Call, attend, masked_softmax

__all__ = [
    "AdditiveAttention",
    "BilinearAttention",
    "DotProductAttention",
    "GaussianAttention",
    "MultiHeadAttention",
    "default_client",
    "masked_softmax",
    "set_client",
]


def _attend(
    layer: Any,
    scoring: Any,
    tensors: dict[str, Any],
    valid_lens: Any,
    training: bool,
) -> tuple[Any, Any]:
    """What every layer does with its scoring function's parameters."""
    dropout = layer.dropout if training else 0.0
    tensors = {name: jnp.asarray(tensor) for name, tensor in tensors.items()}
    seed = jax.random.bits(layer.make_rng("dropout")) if dropout > 0 else None
    call = Call(layer.client, scoring, dropout)
    output, weights = attend(call, tensors, valid_lens, seed)
    return output, weights


class DotProductAttention(nn.Module):  # type: ignore[misc]
    """Scaled dot products as scores.

    dropout: of the weights, between 0 and 1; with training=True, by the random numbers
    of "dropout". client: None means attention_client.jax's default.

        layer = DotProductAttention(dropout=0.5)
        output, weights = layer.apply({}, queries, keys, values, valid_lens)
    """

    dropout: float = 0.0
    client: Any = None

    def __call__(
        self,
        queries: Any,
        keys: Any,
        values: Any,
        valid_lens: Any = None,
        training: bool = False,
    ) -> tuple[Any, Any]:
        """(B, Lq, Dq), (B, Lk, Dk), (B, Lk, Dv) and (B) or (B, Lq) to (B, Lq, Dv).

        With heads as well: (B, H, Lq, Dq) and so on.
        """
        tensors = {"query": queries, "key": keys, "value": values}
        return _attend(self, "dot_product", tensors, valid_lens, training)


class AdditiveAttention(nn.Module):  # type: ignore[misc]
    """w_v . tanh(W_q q + W_k k) as scores, with num_hiddens hidden units."""

    num_hiddens: int
    dropout: float = 0.0
    client: Any = None

    def setup(self) -> None:
        self.W_k = nn.Dense(self.num_hiddens, use_bias=False)
        self.W_q = nn.Dense(self.num_hiddens, use_bias=False)
        self.w_v = nn.Dense(1, use_bias=False)

    def __call__(
        self,
        queries: Any,
        keys: Any,
        values: Any,
        valid_lens: Any = None,
        training: bool = False,
    ) -> tuple[Any, Any]:
        tensors = {
            "query": queries,
            "key": keys,
            "value": values,
            "w_q": _kernel(self.W_q, queries.shape[-1]),
            "w_k": _kernel(self.W_k, keys.shape[-1]),
            "w_v": _kernel(self.w_v, self.num_hiddens)[:, 0],
        }
        return _attend(self, "additive", tensors, valid_lens, training)


class GaussianAttention(nn.Module):  # type: ignore[misc]
    """-|q - k|^2 / (2 sigma^2) as scores: parametric Nadaraya-Watson regression.

    sigma: of the kernel at the start, 1e-19 or more in magnitude; it is a parameter.
    The book's w is 1 / sigma.
    """

    sigma: float = 1.0
    dropout: float = 0.0
    client: Any = None

    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(
        self,
        queries: Any,
        keys: Any,
        values: Any,
        valid_lens: Any = None,
        training: bool = False,
    ) -> tuple[Any, Any]:
        sigma = self.param("sigma", lambda _: jnp.float32(self.sigma))
        tensors = {"query": queries, "key": keys, "value": values, "sigma": sigma}
        return _attend(self, "gaussian", tensors, valid_lens, training)


class BilinearAttention(nn.Module):  # type: ignore[misc]
    """q W k as scores (Luong's "general"); W is (query width, key width)."""

    dropout: float = 0.0
    client: Any = None

    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(
        self,
        queries: Any,
        keys: Any,
        values: Any,
        valid_lens: Any = None,
        training: bool = False,
    ) -> tuple[Any, Any]:
        shape = queries.shape[-1], keys.shape[-1]
        m = self.param("W", nn.initializers.xavier_uniform(), shape)
        tensors = {"query": queries, "key": keys, "value": values, "m": m}
        return _attend(self, "bilinear", tensors, valid_lens, training)


class MultiHeadAttention(nn.Module):  # type: ignore[misc]
    """Heads of scaled dot products between linear projections to num_hiddens.

    num_heads: a divisor of num_hiddens. Weights are (B, num_heads, Lq, Lk).
    """

    num_hiddens: int
    num_heads: int
    dropout: float = 0.0
    bias: bool = False
    client: Any = None

    def setup(self) -> None:
        if self.num_heads < 1 or self.num_hiddens % self.num_heads:
            raise ValueError(
                f"num_heads: {self.num_heads} (expected a divisor of num_hiddens, "
                f"{self.num_hiddens})"
            )
        self.attention = DotProductAttention(self.dropout, self.client)
        self.W_q = nn.Dense(self.num_hiddens, use_bias=self.bias)
        self.W_k = nn.Dense(self.num_hiddens, use_bias=self.bias)
        self.W_v = nn.Dense(self.num_hiddens, use_bias=self.bias)
        self.W_o = nn.Dense(self.num_hiddens, use_bias=self.bias)

    def __call__(
        self,
        queries: Any,
        keys: Any,
        values: Any,
        valid_lens: Any = None,
        training: bool = False,
    ) -> tuple[Any, Any]:
        """(B, Lq, Dq), (B, Lk, Dk), (B, Lk, Dv) and (B) or (B, Lq) to (B, Lq, h)."""
        projected = self.W_q(queries), self.W_k(keys), self.W_v(values)
        query, key, value = (
            x.reshape(*x.shape[:2], self.num_heads, -1).swapaxes(1, 2)
            for x in projected
        )
        output, weights = self.attention(query, key, value, valid_lens, training)
        joined = output.swapaxes(1, 2).reshape(*queries.shape[:2], self.num_hiddens)
        return self.W_o(joined), weights


def _kernel(layer: Any, width: int) -> Any:
    """A linear layer's matrix, (width, units), made where it is not there yet."""
    layer(jnp.empty((0, width), jnp.float32))
    return layer.variables["params"]["kernel"]
