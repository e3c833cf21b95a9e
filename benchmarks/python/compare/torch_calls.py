"""What the peers that compute with PyTorch share."""

import contextlib
import math
from collections.abc import Callable
from typing import ContextManager

import ml_dtypes
import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from compare.measure import Peer
from compare.tensors import aligned_empty


def to_torch(array: np.ndarray) -> torch.Tensor:
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def zeros(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A peer's input in NumPy's memory: huge pages, as everybody's inputs have. From
    torch.zeros it would have none."""
    memory = aligned_empty((math.prod(shape) * dtype.itemsize,), np.dtype(np.uint8))
    memory.fill(0)
    return torch.from_numpy(memory).view(dtype).reshape(shape)


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    return tensor.float().numpy()


def returning(
    name: str,
    compute: Callable[[], torch.Tensor],
    backend: SDPBackend | None = None,
    mode: Callable[[], ContextManager] = torch.inference_mode,
) -> Peer:
    """A peer that allocates its output, as PyTorch's functions do."""
    last = [None]

    def call() -> None:
        last[0] = compute()

    @contextlib.contextmanager
    def around():
        with mode():
            with sdpa_kernel(backend) if backend else contextlib.nullcontext():
                yield

    return Peer(name, call, lambda: {"output": to_numpy(last[0])}, around)
