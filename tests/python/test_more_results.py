"""The largest weights of rows, what keys receive, and scores."""

import asyncio

import numpy as np
import pytest

from attention_client import AsyncClient, Client, InvalidArgumentError

B, HQ, HKV, LQ, LK, D = 2, 4, 2, 5, 9, 8


@pytest.fixture
def tensors():
    rng = np.random.default_rng(3)
    return tuple(
        rng.standard_normal(shape, dtype=np.float32)
        for shape in ((B, HQ, LQ, D), (B, HKV, LK, D), (B, HKV, LK, D))
    )


def test_top_k_are_the_weights_that_sorting_puts_first(computing, tensors):
    result = computing.attend(*tensors, weights=True, top_k=3, causal=True)
    assert result.top_k_indices.dtype == np.int64
    assert result.top_k_indices.shape == result.top_k_weights.shape == (B, HQ, LQ, 3)
    order = np.argsort(-result.weights, axis=-1, kind="stable")[..., :3]
    weights = np.take_along_axis(result.weights, order, axis=-1)
    order[weights == 0] = -1  # the first rows have one and two keys
    np.testing.assert_array_equal(result.top_k_indices, order)
    np.testing.assert_array_equal(result.top_k_weights, weights)


def test_key_weights_are_sums_over_the_rows(computing, tensors):
    result = computing.attend(*tensors, weights=True, key_weights=True)
    np.testing.assert_allclose(
        result.key_weights, result.weights.sum(axis=-2), atol=1e-6
    )
    assert result.top_k_indices is None and result.scores is None


def test_scores_come_at_every_stage(computing, tensors):
    query, key, _ = tensors
    products = query @ key.repeat(HQ // HKV, axis=1).swapaxes(-1, -2) / np.sqrt(D)
    given = {"softcap": 2.0, "causal": True}
    scaled = computing.attend(*tensors, **given, scores="scaled").scores
    np.testing.assert_allclose(scaled, products, atol=1e-5)
    capped = computing.attend(*tensors, **given, scores="capped").scores
    np.testing.assert_allclose(capped, 2 * np.tanh(products / 2), atol=1e-5)
    masked = computing.attend(*tensors, **given, scores="masked").scores
    seen = np.tril(np.ones((LQ, LK), bool))
    np.testing.assert_array_equal(
        np.isneginf(masked), ~np.broadcast_to(seen, masked.shape)
    )
    np.testing.assert_allclose(masked[..., seen], capped[..., seen], atol=1e-5)
    assert computing.attend(*tensors, scores="none").scores is None


def test_shared_memory_and_the_wire_give_the_same(server):
    rng = np.random.default_rng(4)
    tensors = [rng.standard_normal((1, 2, 512, 64), dtype=np.float32) for _ in range(3)]
    given = {"top_k": 5, "key_weights": True, "scores": "masked", "causal": True}
    with (
        Client(server.target) as shared,
        Client(server.target, shared_memory=False) as wire,
    ):
        a = shared.attend(*tensors, **given)
        b = wire.attend(*tensors, **given)
    for name in ("output", "top_k_indices", "top_k_weights", "key_weights", "scores"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


def test_asyncio_gives_the_same(server, client, tensors):
    async def call():
        async with AsyncClient(server.target) as caller:
            return await caller.attend(*tensors, top_k=2, key_weights=True)

    result = asyncio.run(call())
    expected = client.attend(*tensors, top_k=2, key_weights=True)
    np.testing.assert_array_equal(result.top_k_indices, expected.top_k_indices)
    np.testing.assert_array_equal(result.key_weights, expected.key_weights)


def test_packed_batches_have_their_own_shapes(computing):
    rng = np.random.default_rng(5)
    query = rng.standard_normal((4, 2, 8), dtype=np.float32)
    key, value = rng.standard_normal((2, 9, 2, 8), dtype=np.float32)
    result = computing.attend(
        query,
        key,
        value,
        query_starts=[0, 1, 4],
        key_starts=[0, 2, 9],
        top_k=3,
        key_weights=True,
        scores="masked",
    )
    assert result.top_k_indices.shape == (4, 2, 3)
    assert (result.top_k_indices[0, :, 2] == -1).all()  # of two keys
    assert result.top_k_indices[1:].max() < 7
    assert result.key_weights.shape == (2, 9)
    np.testing.assert_allclose(result.key_weights[:, :2].sum(axis=-1), 1, atol=1e-6)
    np.testing.assert_allclose(result.key_weights[:, 2:].sum(axis=-1), 3, atol=1e-6)
    assert result.scores.shape == (2 * (1 * 2 + 3 * 7),)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"top_k": 0}, r"top_k: 0 \(expected 1 to the number of keys\)"),
        ({"top_k": 10}, r"top_k: 10 \(expected 1 to 9, the number of keys\)"),
        ({"top_k": "many"}, "top_k: 'many'"),
        (
            {"scores": "raw"},
            r"scores: 'raw' .expected .*none.*scaled.*capped.*masked",
        ),
    ],
)
def test_what_is_wrong_is_named(computing, tensors, given, message):
    with pytest.raises(InvalidArgumentError, match=message):
        computing.attend(*tensors, **given)
