"""Hugging Face models whose attention the service computes.

attention_client.transformers.register(client)
model = AutoModel.from_pretrained(path, attn_implementation="attention_service")
with torch.no_grad():
    model(**inputs)
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from attention_client._request import Options
from attention_client.client import Client
from attention_client.torch import default_client, new_seed

NAME = "attention_service"


def register(client: Client | None = None, name: str = NAME) -> None:
    """Lets models load with attn_implementation=name.

    client: None means attention_client.torch's default, at the time of each call.
    """

    def forward(
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        dropout: float = 0.0,
        scaling: float | None = None,
        is_causal: bool | None = None,
        softcap: float | None = None,
        s_aux: torch.Tensor | None = None,
        position_bias: torch.Tensor | None = None,
        output_attentions: bool | None = None,
        **_: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        options: Options = {"scale": scaling, "softcap": softcap, "sinks": s_aux}
        if is_causal is None:
            is_causal = getattr(module, "is_causal", True)
        # As in transformers' own sdpa: a single query is the newest of them, and where
        # there is a mask it says it all.
        options["causal"] = is_causal and query.shape[2] > 1 and attention_mask is None
        options["bias"] = position_bias
        if attention_mask is not None and attention_mask.dtype == torch.bool:
            options["attend_mask"] = attention_mask
        elif attention_mask is not None:
            both = (
                attention_mask
                if position_bias is None
                else attention_mask + position_bias
            )
            options["bias"] = both
        if dropout > 0:
            options |= {"training": True, "dropout_p": dropout, "seed": new_seed()}
        if output_attentions is None:
            output_attentions = getattr(module.config, "output_attentions", False)
        options["weights"] = output_attentions
        result = (client or default_client()).attend(query, key, value, **options)
        return result.output.transpose(1, 2).contiguous(), result.weights

    AttentionInterface.register(name, forward)
    AttentionMaskInterface.register(name, sdpa_mask)
