"""JAX's function and the service's, beside each other."""

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


def test_gradients_are_an_error(client, arrays):
    with pytest.raises(ValueError, match="do not support JVP"):
        jax.grad(lambda q: dot_product_attention(q, *arrays[1:], client=client).sum())(
            arrays[0]
        )
