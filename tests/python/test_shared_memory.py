"""Tensors through shared memory: the same answers."""

import asyncio
import errno
import os
import threading

import ml_dtypes
import numpy as np
import pytest
from regions import files, regions

from attention_client import (
    Additive,
    AsyncClient,
    Bilinear,
    Client,
    Gaussian,
    InvalidArgumentError,
    LocalServer,
    NotFoundError,
    ParameterSet,
    ScaledDotProduct,
)


def normals(*shape):
    return np.random.default_rng(seed=2).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"id": "mine", "weights": True, "lse": True, "causal": True},
        {"causal": "bottom_right", "window": (20, None), "softcap": 3.0, "lse": True},
        {"valid_lens": [0, 100], "empty_rows": "uniform", "weights": True},
        {"bias": normals(96, 160), "attend_mask": normals(4, 96, 160) > 0},
        {"causal": True, "query_offset": 3, "key_offset": 1},
        {"causal": True, "query_offsets": [3, 60], "sinks": normals(4)},
        {"alibi_slopes": normals(4), "scale": 0.1},
        {
            "training": True,
            "dropout_p": 0.5,
            "seed": 2**64 - 1,
            "weights_after_dropout": True,
            "weights": True,
        },
        {"scoring": ScaledDotProduct(0.5)},
        {"scoring": Gaussian(2.0)},
        {"scoring": Bilinear(normals(64, 64), scale=0.1)},
        {"scoring": Additive(normals(64, 8), normals(64, 8), normals(8))},
    ],
)
def test_every_option_means_what_it_means_over_the_wire(both, large, options):
    expected, result = (client.attend(*large, **options) for client in both)
    np.testing.assert_array_equal(result.output, expected.output)
    for name in ("weights", "lse"):
        if options.get(name):
            np.testing.assert_array_equal(
                getattr(result, name), getattr(expected, name)
            )
        else:
            assert getattr(result, name) is None
    assert result.id == expected.id
    assert (result.backend, result.kernel) == (expected.backend, expected.kernel)
    assert result.compute_ns > 0
    assert both[1]._pool.names()
    assert not both[0]._pool


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_datatypes_come_back_as_over_the_wire(both, large, kind):
    expected, result = (
        client.attend(*(array.astype(kind) for array in large)) for client in both
    )
    assert result.output.dtype == expected.output.dtype
    np.testing.assert_array_equal(result.output, expected.output)


@pytest.mark.parametrize(
    "options, kind, field",
    [
        ({"dropout_p": 2.0, "training": True}, InvalidArgumentError, "dropout_p"),
        ({"valid_lens": [1, 999]}, InvalidArgumentError, "valid_lens"),
        ({"scoring": ParameterSet("unknown")}, NotFoundError, None),
        ({"seed": -1}, InvalidArgumentError, "seed"),
        ({"causal": "sideways"}, InvalidArgumentError, "causal"),
    ],
)
def test_mistakes_are_named_as_over_the_wire(both, large, options, kind, field):
    for client in both:
        with pytest.raises(kind) as caught:
            client.attend(*large, **options)
        assert field in (None, caught.value.field)
        client.attend(*large)


@pytest.mark.parametrize("k", [0, 161, 10**10, 10**30])
def test_no_memory_is_taken_for_more_of_the_largest_than_keys(both, large, k):
    _, client = both
    with pytest.raises(InvalidArgumentError) as caught:
        client.attend(*large, top_k=k)
    assert caught.value.field == "top_k"
    assert not client._pool.names()
    assert client._pool.is_on()
    assert client.attend(*large, top_k=160).top_k_weights.shape == (2, 4, 96, 160)
    assert client._pool.names()


def test_shapes_that_do_not_fit_are_named(both, large):
    for query in (large[0][0], large[0][..., 1:], np.ones((0, 4, 96, 64), np.float32)):
        with pytest.raises(InvalidArgumentError):
            both[1].attend(query, *large[1:])


def test_results_are_the_callers_own(both, large):
    _, client = both
    queries = [large[0] * factor for factor in (1, 2, 3)]
    results = [client.attend(query, *large[1:]).output for query in queries]
    expected = [both[0].attend(query, *large[1:]).output for query in queries]
    for result, same in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, same)
        result[...] = 0  # which the next ones must not see
    client.close()
    np.testing.assert_array_equal(results[1], 0)


def test_memory_is_used_again(both, large):
    _, client = both
    for _ in range(50):
        client.attend(*large, weights=True)
    assert len(client._pool.names()) <= 3  # a result lives until the next one is there


def test_results_that_are_kept_do_not_take_all_regions(both, large):
    _, client = both
    kept = [client.attend(*large, weights=True) for _ in range(80)]
    assert len(client._pool.names()) <= 70
    for result in kept:
        np.testing.assert_array_equal(result.weights, kept[0].weights)


def test_threads_share_a_client(both, large):
    wire, client = both
    queries = [large[0] * factor for factor in range(1, 5)]
    expected = [wire.attend(query, *large[1:]).output for query in queries]
    differences = []

    def work(query, same):
        for _ in range(10):
            output = client.attend(query, *large[1:]).output
            differences.append(np.abs(output - same).max())

    threads = [
        threading.Thread(target=work, args=both)
        for both in zip(queries, expected, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert differences == [0] * 40


def test_asyncio_has_it_as_well(sharing, both, large):
    async def calls():
        async with AsyncClient(sharing.target) as client:
            found = await asyncio.gather(*(client.attend(*large) for _ in range(4)))
            assert client._pool.names()
            return found

    expected = both[0].attend(*large).output
    for result in asyncio.run(calls()):
        np.testing.assert_array_equal(result.output, expected)
    assert not regions(sharing.target)


def test_clients_of_one_process_have_regions_of_their_own(sharing, both, large):
    wire, first = both

    def check(client, factor):
        tensors = [array * factor for array in large]
        output = client.attend(*tensors).output
        np.testing.assert_array_equal(output, wire.attend(*tensors).output)
        assert client._pool.is_on()
        names = set(client._pool.names())
        assert names and names <= regions(sharing.target)
        return names

    names = check(first, 1)
    with Client(sharing.target) as second:
        assert check(second, 2).isdisjoint(names)
        # Opened before, and called after the second one is closed.
        third = Client(sharing.target)
    with third:
        assert check(third, 3).isdisjoint(names)
        check(first, 4)
        check(third, 5)


def test_a_region_of_anothers_name_is_left_to_it(sharing, both, large):
    wire, client = both
    expected = wire.attend(*large).output
    with Client(sharing.target) as other:
        other._pool.word = client._pool.word
        client.attend(*large)
        np.testing.assert_array_equal(other.attend(*large).output, expected)
        assert not other._pool.names()
    assert set(client._pool.names()) <= regions(sharing.target)
    np.testing.assert_array_equal(client.attend(*large).output, expected)


def test_a_server_that_does_not_allow_it_is_called_over_the_wire(client, both, large):
    expected = both[0].attend(*large).output
    for _ in range(2):
        np.testing.assert_array_equal(client.attend(*large).output, expected)
    assert not client._pool.is_on()
    assert not files(client)


def test_a_server_started_anew_is_told_again(tmp_path, large):
    options = dict(allow_shared_memory=True, grpc_unix_socket=tmp_path / "socket")
    with Client(f"unix:{tmp_path}/socket") as client:
        for _ in range(2):
            with LocalServer(**options):
                outputs = [client.attend(*large).output for _ in range(3)]
                np.testing.assert_array_equal(outputs[0], outputs[2])
                assert regions(client.target) & set(client._pool.names())


def test_without_room_it_goes_over_the_wire(both, large, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    expected, result = (client.attend(*large).output for client in both)
    np.testing.assert_array_equal(result, expected)
    assert not both[1]._pool.is_on()
    assert not files(both[1])
