"""The scoring functions a(q, k). Arrays of any kind that Client.attend takes.

The fields' names are those of the API's messages, which say their shapes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from attention_client._summary import summary


@dataclass(frozen=True)
class ScaledDotProduct:
    """scale * q.k; scale is 1 / sqrt(width) unless given."""

    scale: float | None = None


@dataclass(frozen=True)
class Additive:
    """w_v . tanh(q w_q + k w_k) (Bahdanau): (Dq, h), (Dk, h) and (h).

    PyTorch's Linear stores its weight as (h, Dq): transpose it.
    """

    w_q: Any
    w_k: Any
    w_v: Any

    __repr__ = summary


@dataclass(frozen=True)
class Gaussian:
    """-|q - k|^2 / (2 sigma^2) (Nadaraya-Watson); sigma is 1 unless given."""

    sigma: float | None = None


@dataclass(frozen=True)
class Bilinear:
    """scale * q m k (Luong's "general"): m is (Dq, Dk); scale is 1 unless given."""

    m: Any
    scale: float | None = None

    __repr__ = summary


@dataclass(frozen=True)
class ParameterSet:
    """The scoring function that the server has under this name.

    scale and sigma replace the set's own, where its function has them.
    """

    name: str
    scale: float | None = None
    sigma: float | None = None


Scoring: TypeAlias = ScaledDotProduct | Additive | Gaussian | Bilinear | ParameterSet
