"""AttentionBackend: where attention is computed."""

import sys

import numpy as np
import pytest

from attention_client import (
    AsyncClient,
    AttentionBackend,
    Client,
    InvalidArgumentError,
)
from attention_client._default import set_client
from attention_client.kernel_regression import kernel_regression
from attention_engine import Engine

SMALL = [np.ones((3, 4), np.float32)] * 3


def test_local_is_an_engine():
    with AttentionBackend("local", threads=1) as attention:
        assert isinstance(attention, Engine)
        assert attention.info().worker_threads == 1
        assert attention.attend(*SMALL).output.shape == (3, 4)


def test_a_target_is_a_client(server):
    with AttentionBackend(server.target, timeout=30) as attention:
        assert isinstance(attention, Client)
        assert attention.timeout == 30
        assert attention.attend(*SMALL).output.shape == (3, 4)


def test_the_environment_decides_where_nothing_is_said(server, monkeypatch):
    monkeypatch.setenv("ATTENTION_SERVER", "local")
    with AttentionBackend() as attention:
        assert isinstance(attention, Engine)
    monkeypatch.setenv("ATTENTION_SERVER", server.target)
    with AttentionBackend() as attention:
        assert attention.health() == "SERVING"


def test_a_package_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "attention_engine", None)
    with pytest.raises(ModuleNotFoundError, match=r"attention-engine.*make-wheels"):
        AttentionBackend("local")


def test_a_regression_takes_an_engine_for_a_client(client, engine, normal):
    x = normal(20)
    seen = [kernel_regression(one, x, x**2, at=x) for one in (client, engine)]
    np.testing.assert_array_equal(seen[0].estimates, seen[1].estimates)


@pytest.mark.parametrize("client", [Client, AsyncClient("127.0.0.1:1")])
def test_what_does_not_answer_a_call_is_no_default(client):
    with pytest.raises(InvalidArgumentError) as caught:
        set_client(client)
    assert str(caught.value).startswith(f"client: {client!r} (expected a client")
