"""Hugging Face models whose attention the service computes.

attention_client.transformers.register(client)
model = AutoModel.from_pretrained(path, attn_implementation="attention_service")
with torch.no_grad():
    model(**inputs)

ServiceCache keeps a decoder's keys and values on the server.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AttentionInterface, PreTrainedModel
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from attention_client._default import checked as checked_client
from attention_client._service_cache import ServiceCache, Stored
from attention_client._torch_call import Call

__all__ = ["NAME", "ServiceCache", "register"]

NAME = "attention_service"

# What tests compare with PyTorch's own attention.
_TRIED = "BERT (MiniLM), Llama, Mistral, Gemma 2, Qwen 2, GPT-OSS"

_names: set[str] = set()


def register(client: Any = None, name: str = NAME, *, gradients: bool = False) -> None:
    """Lets models load with attn_implementation=name.

    A model whose attention is its own, and not transformers' AttentionInterface, such
    as Bloom or Falcon, is refused with a ValueError when it is made.

    client: None means attention_client.torch's default, at the time of each call.
    gradients: PyTorch recomputes the calls on the way back; without it, models work
    under torch.no_grad() alone.
    """

    checked_client(client)

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
        indices: torch.Tensor | None = None,
        block_indices: torch.Tensor | None = None,
        sinks: torch.Tensor | None = None,
        **_: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        _refuse(module, indices=indices, block_indices=block_indices, sinks=sinks)
        if is_causal is None:
            is_causal = getattr(module, "is_causal", True)
        bias, mask = position_bias, attention_mask
        if mask is not None and mask.dtype != torch.bool:
            bias, mask = mask if bias is None else mask + bias, None
        if output_attentions is None:
            output_attentions = getattr(module.config, "output_attentions", False)
        # Where there is a mask it says it all. A last query sees all keys of a cache;
        # else, as in transformers' own sdpa, a single query is the newest of them.
        causal: Any = is_causal and attention_mask is None
        if isinstance(key, Stored):
            causal = causal and "bottom_right"
        else:
            causal = causal and query.shape[2] > 1
        call = Call(
            client=client,
            attend_mask=mask,
            causal=causal,
            scale=scaling,
            softcap=softcap,
            dropout_p=dropout,
            weights=output_attentions,
            gradients=gradients and torch.is_grad_enabled(),
        )
        if isinstance(key, Stored):
            options = call.options({"bias": bias, "sinks": s_aux})
            result = key.store.attend(key, query, options)
            output, weights = result.output.to(query.dtype), result.weights
        else:
            output, weights = call(
                query=query, key=key, value=value, bias=bias, sinks=s_aux
            )
        return output.transpose(1, 2).contiguous(), weights

    AttentionInterface.register(name, forward)
    AttentionMaskInterface.register(name, sdpa_mask)
    _names.add(name)


def _refuse(module: torch.nn.Module, **others: torch.Tensor | None) -> None:
    """What changes the scores, each model in its way: keys that an indexer has chosen.

    transformers makes a mask of them for its own implementations alone. sinks are those
    of each query; a head's are s_aux.
    """
    for name, tensor in others.items():
        if tensor is not None:
            raise ValueError(
                f"{name}: {type(module).__name__} gives it to its attention (expected "
                f"a model without it; tried: {_TRIED})"
            )


def _refuse_other_models() -> None:
    """Has transformers, which takes any registered name for any model, ask here first.

    Bloom would compute something else in silence, Falcon end in a KeyError.
    """
    check = PreTrainedModel.get_correct_attn_implementation

    def checked(self: Any, requested_attention: Any, *more: Any, **others: Any) -> Any:
        if requested_attention in _names and not (
            self._supports_attention_backend or self._can_set_attn_implementation()
        ):
            raise ValueError(
                f"{type(self).__name__}: its attention is its own, not transformers' "
                f"AttentionInterface (expected a model that has that; tried: {_TRIED})"
            )
        return check(self, requested_attention, *more, **others)

    PreTrainedModel.get_correct_attn_implementation = checked


_refuse_other_models()
