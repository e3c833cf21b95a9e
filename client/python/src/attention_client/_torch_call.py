"""A call with PyTorch's tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attention_client import _torch_operator
from attention_client._arrays import gradients_are_refused
from attention_client._options import Options
from attention_client._torch_operator import LEARNED, Facts, Settings

_INPUTS = ("query", "key", "value")


def new_seed() -> Tensor:
    """A seed for dropout, of PyTorch's generator: torch.manual_seed() repeats it."""
    return torch.randint(2**63 - 1, ())


@dataclass
class Call(Facts):
    """What of a call takes no gradients."""

    client: Any = None  # None: the default, when the call is made
    attend_mask: Tensor | None = None
    valid_lens: Tensor | None = None
    # Whether gradients are recomputed; else a tensor that requires them is an error.
    gradients: bool = False

    def __call__(self, **tensors: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The output, and the weights before dropout if they are wanted.

        tensors: query, key, value, and what else of LEARNED there is. Under autocast
        they go in its datatype, as to PyTorch's own attention.
        """
        if not self.gradients and torch.is_grad_enabled():
            for name in LEARNED:
                tensor = tensors.get(name)
                if tensor is not None and tensor.requires_grad:
                    raise gradients_are_refused(name)
        given = self._given(tensors)
        if _torch_operator.is_watched(given.values()):
            return _torch_operator.attend(given, self._settings())
        return _torch_operator.compute(self.client, given, self)

    def options(self, tensors: dict[str, Any]) -> Options:
        """What the request has beside query, key and value."""
        return _torch_operator.options(self._given(tensors), self)

    def _given(self, tensors: dict[str, Any]) -> dict[str, Any]:
        given = _cast(tensors)
        given["attend_mask"] = self.attend_mask
        given["valid_lens"] = self.valid_lens
        given["seed"] = new_seed() if self.dropout_p > 0 else None
        return given

    def _settings(self) -> Settings:
        causal = self.causal
        if not isinstance(causal, str):
            # What compares a length is symbolic where lengths are: no bool.
            causal = "top_left" if causal else "none"
        return Settings(
            causal=causal,
            scale=self.scale,
            softcap=self.softcap,
            dropout_p=self.dropout_p,
            empty_rows=self.empty_rows,
            weights=self.weights,
            client=_torch_operator.number(self.client),
        )


def _cast(tensors: dict[str, Any]) -> dict[str, Any]:
    """With query, key and value in autocast's datatype, where that is on."""
    if not torch._C._is_any_autocast_enabled():
        return tensors
    query = tensors.get("query")
    if query is None or not torch.is_autocast_enabled(query.device.type):
        return tensors
    kind = torch.get_autocast_dtype(query.device.type)
    return {
        name: tensor.to(kind)
        if name in _INPUTS and tensor is not None and tensor.dtype != torch.float64
        else tensor
        for name, tensor in tensors.items()
    }
