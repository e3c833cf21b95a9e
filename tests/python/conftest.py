"""A server and a client for the tests of a module."""

import numpy as np
import pytest

from attention_client import Client, LocalServer


@pytest.fixture(scope="session")
def server():
    with LocalServer() as running:
        yield running


@pytest.fixture
def client(server):
    with Client(server.target) as made:
        yield made


@pytest.fixture
def normal():
    """normal(shape...): random numbers, the same in every run."""
    random = np.random.default_rng(seed=1)
    return lambda *shape: random.normal(size=shape).astype(np.float32)
