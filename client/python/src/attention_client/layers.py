"""Attention layers for PyTorch as textbooks have them, computed by the service.

Their names, arguments and parameters are those of "Dive into Deep Learning": layers
and saved parameters of its chapter on attention scoring functions fit.
"""

from __future__ import annotations

import torch
from torch import nn

from attention_client._torch_gradients import Call
from attention_client.client import Client
from attention_client.torch import default_client, new_seed


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
        client: Client | None = None,
        gradients: bool = True,
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.client = client
        self.gradients = gradients
        self.attention_weights = None

    def _attend(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        valid_lens: torch.Tensor | None,
        **parameters: torch.Tensor,
    ) -> torch.Tensor:
        dropping = self.training and self.dropout > 0
        call = Call(
            self.client or default_client(),
            valid_lens=valid_lens,
            dropout_p=self.dropout if dropping else 0.0,
            seed=new_seed() if dropping else 0,
            # As the book's masked_softmax: a row without keys takes them all.
            empty_rows="uniform",
            weights=True,
            gradients=self.gradients and torch.is_grad_enabled(),
        )
        output, self.attention_weights = call(
            query=queries, key=keys, value=values, **parameters
        )
        return output

    def extra_repr(self) -> str:
        return f"dropout={self.dropout}"


class DotProductAttention(_Attention):
    """Scaled dot products as scores.

    layer = DotProductAttention(dropout=0.5)
    output = layer(queries, keys, values, valid_lens)
    """

    def forward(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        valid_lens: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """(B, Lq, D), (B, Lk, D), (B, Lk, Dv) and (B) or (B, Lq) to (B, Lq, Dv).

        With heads as well: (B, H, Lq, D) and so on.
        """
        return self._attend(queries, keys, values, valid_lens)


class AdditiveAttention(_Attention):
    """w_v . tanh(W_q q + W_k k) as scores, with num_hiddens hidden units.

    The widths of queries and keys are those of the first call.
    """

    def __init__(
        self,
        num_hiddens: int,
        dropout: float = 0.0,
        *,
        client: Client | None = None,
        gradients: bool = True,
    ) -> None:
        super().__init__(dropout, client=client, gradients=gradients)
        self.W_k = nn.LazyLinear(num_hiddens, bias=False)
        self.W_q = nn.LazyLinear(num_hiddens, bias=False)
        self.w_v = nn.Linear(num_hiddens, 1, bias=False)

    def forward(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        valid_lens: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """(B, Lq, Dq), (B, Lk, Dk), (B, Lk, Dv) and (B) or (B, Lq) to (B, Lq, Dv)."""
        for layer, width in ((self.W_q, queries.shape[-1]), (self.W_k, keys.shape[-1])):
            if isinstance(layer, nn.LazyLinear):
                layer(queries.new_empty(0, width))  # makes its weight
        return self._attend(
            queries,
            keys,
            values,
            valid_lens,
            w_q=self.W_q.weight.T,
            w_k=self.W_k.weight.T,
            w_v=self.w_v.weight.flatten(),
        )
