"""JAX's function and the service's, beside each other."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attention_client.jax import dot_product_attention

LENGTHS = jnp.array([2, 5]), jnp.array([7, 3])
BOOLS = np.arange(35).reshape(5, 7) % 3 > 0


@pytest.fixture
def arrays(normal):
    return [jnp.asarray(normal(2, *shape)) for shape in [(5, 4, 8), *[(7, 2, 8)] * 2]]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": True},
        {"scale": 0.1},
        {"mask": BOOLS},
        {"mask": np.stack([BOOLS, ~BOOLS])[:, None]},
        {"bias": np.linspace(-2, 2, 140, dtype=np.float32).reshape(1, 4, 5, 7)},
        {"key_value_seq_lengths": LENGTHS[1]},
        {"query_seq_lengths": LENGTHS[0], "key_value_seq_lengths": LENGTHS[1]},
        {"local_window_size": 2},
        {"local_window_size": (3, 1)},
    ],
)
def test_an_option_means_the_same(client, arrays, options):
    expected = jax.nn.dot_product_attention(*arrays, **options)
    actual = dot_product_attention(*arrays, **options, client=client)
    assert actual.dtype == expected.dtype
    np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_one_batch_entry_and_bfloat16_will_do(client, arrays):
    one = [array[0].astype(jnp.bfloat16) for array in arrays]
    actual = dot_product_attention(*one, client=client)
    assert actual.dtype == jnp.bfloat16
    expected = jax.nn.dot_product_attention(*one)
    np.testing.assert_allclose(
        actual.astype(np.float32), expected.astype(np.float32), atol=3e-2
    )


def test_it_may_be_compiled(client, arrays):
    @jax.jit
    def both(*arrays):
        own = dot_product_attention(*arrays, is_causal=True, client=client)
        return own, jax.nn.dot_product_attention(*arrays, is_causal=True)

    np.testing.assert_allclose(*both(*arrays), atol=1e-5)


def test_it_may_be_mapped(client, arrays):
    def both(query):
        own = dot_product_attention(query, *arrays[1:], client=client)
        return own, jax.nn.dot_product_attention(query, *arrays[1:])

    queries = jnp.stack([arrays[0], -arrays[0], 2 * arrays[0]])
    np.testing.assert_allclose(*jax.vmap(both)(queries), atol=1e-5)


def test_gradients_are_an_error_unless_asked_for(client, arrays):
    def loss(query):
        return dot_product_attention(query, *arrays[1:], client=client).sum()

    with pytest.raises(ValueError, match="expected gradients=True"):
        jax.grad(loss)(arrays[0])


BIAS = np.linspace(-2, 2, 140, dtype=np.float32).reshape(1, 4, 5, 7)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": True, "scale": 0.1},
        {"mask": np.stack([BOOLS, ~BOOLS])[:, None], "bias": BIAS},
        {"bias": BIAS[0, 0]},
        {"query_seq_lengths": LENGTHS[0], "key_value_seq_lengths": LENGTHS[1]},
        {"local_window_size": (3, 1)},
    ],
)
def test_gradients_are_jaxs(client, arrays, options):
    def gradients(function, **more):
        def loss(tensors, bias):
            given = options if bias is None else {**options, "bias": bias}
            return (function(*tensors, **given, **more) * weigh).sum()

        bias = options.get("bias")
        asked = 0 if bias is None else (0, 1)
        return jax.jit(jax.grad(loss, asked))(arrays, bias)

    weigh = jnp.linspace(-1, 1, 320).reshape(2, 5, 4, 8)
    expected = gradients(jax.nn.dot_product_attention)
    actual = gradients(dot_product_attention, client=client, gradients=True)
    jax.tree.map(
        lambda a, e: np.testing.assert_allclose(a, e, atol=1e-5), actual, expected
    )


@pytest.mark.parametrize("how", ["mask", "bias"])
def test_a_query_without_keys_has_no_gradients(client, arrays, how):
    lonely = np.arange(5)[:, None] == 2
    options = {
        "mask": {"mask": np.broadcast_to(~lonely, (5, 7))},
        "bias": {"bias": np.where(lonely, -np.inf, np.zeros((5, 7), np.float32))},
    }[how]

    def loss(query, **more):
        return dot_product_attention(
            query, *arrays[1:], client=client, gradients=True, **more
        ).sum()

    found = jax.grad(partial(loss, **options))(arrays[0])
    expected = jax.grad(loss)(arrays[0]).at[:, 2].set(0)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_one_batch_entry_has_gradients(client, arrays):
    one = [array[0] for array in arrays]

    def loss(function, *tensors, **more):
        return function(*tensors, bias=jnp.ones((5, 7)), **more).sum()

    expected = jax.grad(partial(loss, jax.nn.dot_product_attention), (0, 1, 2))(*one)
    own = partial(dot_product_attention, client=client, gradients=True)
    for a, e in zip(jax.grad(partial(loss, own), (0, 1, 2))(*one), expected):
        np.testing.assert_allclose(a, e, atol=1e-5)
