"""Which targets are this machine."""

import sys

import pytest

from attention_client import Client
from attention_client._shared_memory import is_local


@pytest.mark.parametrize(
    "target, local",
    [
        ("unix:/run/socket", True),
        ("127.0.0.1:8001", True),
        ("127.1.2.3:1", True),
        ("localhost", True),
        ("dns:///localhost:8001", True),
        ("[::1]:8001", True),
        ("ipv4:127.0.0.1:8001", True),
        ("ipv4:127.0.0.1:8001,127.0.0.2:8001", True),
        ("ipv4:127.0.0.1:8001,10.0.0.7:8001", False),
        ("localhost.example.org:8001", False),
        ("10.0.0.1:8001", False),
        ("example.org:8001", False),
        ("127.0.0.1.example.org:8001", False),
    ],
)
def test_what_is_local(target, local):
    assert is_local(target) == local


def test_a_token_stays_on_this_machine_on_every_system(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with Client("127.0.0.1:8001", token="s3cret") as client:
        assert client._pool is None  # shared memory is Linux's
