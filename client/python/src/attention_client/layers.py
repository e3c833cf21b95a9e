"""Attention layers for PyTorch as textbooks have them, computed by the service.

Their names, arguments and parameters are those of "Dive into Deep Learning": layers
and saved parameters of its chapter on attention scoring functions fit. key_size,
query_size and value_size are of the book's earlier edition; without them, widths are
those of the first call.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from attention_client._torch_call import Call

__all__ = [
    "AdditiveAttention",
    "BilinearAttention",
    "DotProductAttention",
    "GaussianAttention",
    "MultiHeadAttention",
    "masked_softmax",
]


def masked_softmax(
    scores: torch.Tensor, valid_lens: torch.Tensor | None = None
) -> torch.Tensor:
    """The weights of scores, (B, Lq, Lk), of which valid_lens take part.

    valid_lens: (B) or (B, Lq), from 0 to Lk; a row of length 0 takes them all. PyTorch
    computes it: scores that are here already are not worth a call.
    """
    if valid_lens is None:
        return scores.softmax(-1)
    lengths = valid_lens.unsqueeze(-1) if valid_lens.dim() == 1 else valid_lens
    taking_part = torch.arange(
        scores.shape[-1], device=scores.device
    ) < lengths.unsqueeze(-1)
    lowest = max(-1e6, torch.finfo(scores.dtype).min)  # float16 has no -1e6
    return scores.masked_fill(~taking_part, lowest).softmax(-1)


class _Attention(nn.Module):  # type: ignore[misc]
    """What the layers share.

    dropout: of the weights, between 0 and 1; it happens in training. client: None
    means attention_client.torch's default. gradients: PyTorch recomputes the call on
    the way back; without it, the layer works under torch.no_grad() alone.

    attention_weights: those of the last call, before dropout.
    """

    attention_weights: torch.Tensor | None

    def __init__(
        self,
        dropout: float = 0.0,
        *,
        client: Any = None,
        gradients: bool = True,
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.client = client
        self.gradients = gradients
        self.attention_weights = None

    def forward(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        valid_lens: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """(B, Lq, Dq), (B, Lk, Dk), (B, Lk, Dv) and (B) or (B, Lq) to (B, Lq, Dv).

        With heads as well: (B, H, Lq, Dq) and so on.
        """
        call = Call(
            client=self.client,
            valid_lens=valid_lens,
            dropout_p=self.dropout if self.training else 0.0,
            # As the book's masked_softmax: a row without keys takes them all.
            empty_rows="uniform",
            weights=True,
            gradients=self.gradients and torch.is_grad_enabled(),
        )
        output, self.attention_weights = call(
            query=queries, key=keys, value=values, **self._parameters_of(queries, keys)
        )
        return output

    def _parameters_of(
        self, queries: torch.Tensor, keys: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """The scoring function's, under the names of the service."""
        return {}

    def extra_repr(self) -> str:
        return f"dropout={self.dropout}"


class DotProductAttention(_Attention):
    """Scaled dot products as scores.

    layer = DotProductAttention(dropout=0.5)
    output = layer(queries, keys, values, valid_lens)
    """


class AdditiveAttention(_Attention):
    """w_v . tanh(W_q q + W_k k) as scores, with num_hiddens hidden units."""

    def __init__(
        self,
        num_hiddens: int,
        dropout: float = 0.0,
        *,
        key_size: int | None = None,
        query_size: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(dropout, **options)
        self.W_k = _linear(key_size, num_hiddens)
        self.W_q = _linear(query_size, num_hiddens)
        self.w_v = nn.Linear(num_hiddens, 1, bias=False)

    def _parameters_of(
        self, queries: torch.Tensor, keys: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        for layer, inputs in ((self.W_q, queries), (self.W_k, keys)):
            if isinstance(layer, nn.LazyLinear):
                layer(inputs.new_empty(0, inputs.shape[-1]))  # makes its weight
        return {
            "w_q": self.W_q.weight.T,
            "w_k": self.W_k.weight.T,
            "w_v": self.w_v.weight.flatten(),
        }


class GaussianAttention(_Attention):
    """-|q - k|^2 / (2 sigma^2) as scores: parametric Nadaraya-Watson regression.

    sigma: of the kernel at the start, 1e-19 or more in magnitude; it is a parameter,
    which learns unless requires_grad_(False) is said. The book's w is 1 / sigma.
    """

    def __init__(
        self, sigma: float = 1.0, dropout: float = 0.0, **options: Any
    ) -> None:
        super().__init__(dropout, **options)
        self.sigma = nn.Parameter(torch.tensor(float(sigma)))

    def _parameters_of(
        self, queries: torch.Tensor, keys: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        return {"sigma": self.sigma}


class BilinearAttention(_Attention):
    """q W k as scores (Luong's "general"); W is (query_size, key_size)."""

    def __init__(
        self, query_size: int, key_size: int, dropout: float = 0.0, **options: Any
    ) -> None:
        super().__init__(dropout, **options)
        self.W = nn.Parameter(torch.empty(query_size, key_size))
        nn.init.xavier_uniform_(self.W)

    def _parameters_of(
        self, queries: torch.Tensor, keys: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        return {"m": self.W}


class MultiHeadAttention(nn.Module):  # type: ignore[misc]
    """Heads of scaled dot products between linear projections to num_hiddens.

    attention: the DotProductAttention of the heads, whose attention_weights are
    (B, num_heads, Lq, Lk).
    """

    def __init__(
        self,
        num_hiddens: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = False,
        *,
        key_size: int | None = None,
        query_size: int | None = None,
        value_size: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        if num_heads < 1 or num_hiddens % num_heads:
            raise ValueError(
                f"num_heads: {num_heads} (expected a divisor of num_hiddens, "
                f"{num_hiddens})"
            )
        self.num_heads = num_heads
        self.attention = DotProductAttention(dropout, **options)
        self.W_q = _linear(query_size, num_hiddens, bias)
        self.W_k = _linear(key_size, num_hiddens, bias)
        self.W_v = _linear(value_size, num_hiddens, bias)
        self.W_o = nn.Linear(num_hiddens, num_hiddens, bias)

    def forward(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        valid_lens: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """(B, Lq, Dq), (B, Lk, Dk), (B, Lk, Dv) and (B) or (B, Lq) to (B, Lq, h)."""
        projected = self.W_q(queries), self.W_k(keys), self.W_v(values)
        heads = (
            t.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for t in projected
        )
        output = self.attention(*heads, valid_lens)
        return self.W_o(output.transpose(1, 2).flatten(-2))


def _linear(width: int | None, num_hiddens: int, bias: bool = False) -> Any:
    if width is None:
        return nn.LazyLinear(num_hiddens, bias)
    return nn.Linear(width, num_hiddens, bias)
