"""Clients, and what holds one, in another process."""

import asyncio
import copy
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor

import grpc
import numpy as np
import pytest
from certificates import P256, openssl

from attention_client import (
    AsyncClient,
    AttentionBackend,
    Client,
    InvalidArgumentError,
    ResourceExhaustedError,
    Tls,
)
from attention_client._channel import CLIENTS

ONES = [np.ones((2, 2), np.float32)] * 3


class Layer:
    """Holds a client, as a layer or a data set does."""

    def __init__(self, client):
        self.client = client

    def __call__(self, *tensors):
        return self.client.attend(*tensors).output


def call(layer, *tensors):
    return layer(*tensors)


def lengths(sequence):
    return sequence.describe().lengths


@pytest.fixture(scope="module")
def elsewhere():
    """Runs a function in a process that spawn has started."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        yield lambda *call: pool.submit(*call).result(timeout=120)


def test_what_holds_a_client_works_in_a_spawned_process(client, elsewhere, normal):
    query, key, value = normal(2, 3, 4), normal(2, 5, 4), normal(2, 5, 4)
    np.testing.assert_array_equal(
        elsewhere(call, Layer(client), query, key, value),
        client.attend(query, key, value).output,
    )


def test_a_sequence_is_the_same_one_in_a_spawned_process(client, elsewhere, normal):
    with client.sequence(heads=2, width=4) as sequence:
        sequence.append(normal(2, 5, 4), normal(2, 5, 4))
        assert elsewhere(lengths, sequence) == (5,)


def test_a_copy_has_the_settings_and_a_channel_of_its_own(server):
    options = [("grpc.max_reconnect_backoff_ms", 700)]
    client = Client(
        server.target, timeout=7, token="s3cret", shared_memory=False, options=options
    )
    copies = pickle.loads(pickle.dumps(client)), copy.deepcopy(client)
    client.close()
    for one in copies:
        assert repr(one) == (
            f"Client({server.target!r}, timeout=7, token='...', shared_memory=False, "
            "options=[('grpc.max_reconnect_backoff_ms', 700)])"
        )
        assert one._metadata == client._metadata
        assert one._pool is None
        with one:
            assert one.attend(*ONES).output.shape == (2, 2)


def test_an_async_client_is_copied_too(server):
    async def main():
        async with (
            AsyncClient(server.target, timeout=7) as client,
            pickle.loads(pickle.dumps(client)) as copied,
        ):
            assert copied.timeout == 7
            return (await copied.attend(*ONES)).output.shape

    assert asyncio.run(main()) == (2, 2)


def test_a_copy_reads_the_files_of_tls_again(tmp_path):
    authority = tmp_path / "ca.pem"
    new = ("req", "-x509", "-newkey", *P256, "-nodes", "-subj", "/CN=ca")
    openssl(tmp_path, *new, "-keyout", "ca.key", "-out", authority)
    data = pickle.dumps(Client("127.0.0.1:1", tls=Tls(ca=str(authority))))
    assert str(authority).encode() in data
    authority.unlink()
    with pytest.raises(FileNotFoundError, match=r"ca\.pem"):
        pickle.loads(data)


def test_credentials_of_grpc_are_not_copied():
    credentials = grpc.ssl_channel_credentials()
    with (
        Client("127.0.0.1:1", credentials=credentials) as client,
        pytest.raises(TypeError, match="expected tls=Tls"),
    ):
        pickle.dumps(client)


def test_a_client_shows_its_settings_without_secrets():
    client = Client("127.0.0.1:1", timeout=7, token="s3cret", tls=Tls(key=None))
    client.close()
    assert repr(client) == (
        "Client('127.0.0.1:1', timeout=7, tls=Tls(ca=None, certificate=None), "
        "token='...', closed)"
    )


def test_an_error_comes_back_whole():
    error = ResourceExhaustedError("full", retry_after=1.5)
    copied = pickle.loads(pickle.dumps(error))
    assert type(copied) is ResourceExhaustedError
    assert (copied.message, copied.retry_after) == ("full", 1.5)
    assert pickle.loads(pickle.dumps(InvalidArgumentError("key: wrong"))).field == "key"


def new_number(target):
    """That of a client, or an engine, that has gone again."""
    with AttentionBackend(target) as made:
        (number,) = (number for number, one in CLIENTS.items() if one is made)
    return number


@pytest.mark.parametrize("where", ["server", "local"])
def test_a_number_is_never_another_clients(server, elsewhere, where):
    target = server.target if where == "server" else where
    numbers = {new_number(target) for _ in range(20)}
    numbers.add(elsewhere(new_number, target))
    assert len(numbers) == 21
