"""TensorFlow and PyTorch's compiler, Triton, each bring an LLVM.

In one process they live side by side only if Triton's is loaded first; the other way
round LLVM ends the process.
"""

import pytest
import torch
import triton  # noqa: F401

from attention_client.torch import set_client


@pytest.fixture
def default(client):
    """The client is the adapters' default; PyTorch's random numbers are the same."""
    set_client(client)
    torch.manual_seed(1)
    yield
    set_client(None)
