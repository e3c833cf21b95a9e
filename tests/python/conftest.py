"""A server, a client and an engine for the tests of a module."""

import numpy as np
import pytest
from keys import HEADS, WIDTH

from attention_client import Client, LocalServer
from attention_engine import Engine


@pytest.fixture(scope="session")
def server():
    with LocalServer() as running:
        yield running


@pytest.fixture
def client(server):
    with Client(server.target) as made:
        yield made


@pytest.fixture(scope="session")
def engine():
    return Engine(threads=2)


@pytest.fixture(params=["client", "engine"])
def computing(request):
    """What attends: a client of a server, and an engine in this process."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def normal():
    """normal(shape...): random numbers, the same in every run."""
    random = np.random.default_rng(seed=1)
    return lambda *shape: random.normal(size=shape).astype(np.float32)


@pytest.fixture
def rows(normal):
    """rows(n): n keys and values."""
    return lambda n: (normal(HEADS, n, WIDTH), normal(HEADS, n, WIDTH))


@pytest.fixture
def sequence(computing):
    """One of two layers, on a server and in an engine."""
    with computing.sequence(heads=HEADS, width=WIDTH, layers=2) as made:
        yield made


@pytest.fixture(scope="module")
def sharing():
    """A server that takes shared memory."""
    with LocalServer(allow_shared_memory=True) as running:
        yield running


@pytest.fixture
def both(sharing):
    """A client over the wire, and one through shared memory."""
    with (
        Client(sharing.target, shared_memory=False) as wire,
        Client(sharing.target) as shared,
    ):
        yield wire, shared


@pytest.fixture
def large(normal):
    """Query, key and value, large enough for shared memory."""
    return [normal(2, 4, 96, 64), normal(2, 4, 160, 64), normal(2, 4, 160, 48)]
