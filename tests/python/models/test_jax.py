"""JAX's function and the service's, beside each other."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attention_client import Client, InvalidArgumentError, UnavailableError
from attention_client.jax import dot_product_attention, set_client

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


@pytest.mark.parametrize("width", [4, 16])
def test_values_of_another_width_have_gradients(client, arrays, normal, width):
    tensors = [*arrays[:2], jnp.asarray(normal(2, 7, 2, width))]

    def plain(query, key, value):
        key, value = (array.repeat(2, axis=2) for array in (key, value))
        scores = jnp.einsum("btnh,bsnh->bnts", query, key) / 8**0.5
        return jnp.einsum("bnts,bsnd->btnd", jax.nn.softmax(scores), value)

    def gradients(function):
        return jax.grad(lambda all_: (function(*all_) ** 2).sum())(tensors)

    own = partial(dot_product_attention, client=client, gradients=True)
    for a, e in zip(gradients(own), gradients(plain), strict=True):
        np.testing.assert_allclose(a, e, atol=1e-5)


@pytest.mark.parametrize("bias", [None, BIAS])
def test_a_mask_of_integers_has_the_gradients_of_one_of_bools(client, arrays, bias):
    def gradients(mask):
        own = partial(dot_product_attention, client=client, gradients=True)
        return jax.grad(lambda all_: (own(*all_, bias, mask) ** 2).sum())(arrays)

    for a, e in zip(gradients(BOOLS.astype(np.int32)), gradients(BOOLS), strict=True):
        np.testing.assert_array_equal(a, e)


@pytest.mark.parametrize("wrapped", [lambda f: f, jax.jit])
def test_a_query_without_keys_has_the_mean_of_all_values(client, arrays, wrapped):
    mask = np.broadcast_to(np.arange(5)[:, None] != 2, (5, 7))

    def outputs(function, **more):
        @wrapped
        def loss(*tensors):
            return function(*tensors, mask=mask, **more)

        def total(tensors):
            return (loss(*tensors) ** 2).sum()

        return loss(*arrays), *jax.grad(total)(arrays)

    actual = outputs(dot_product_attention, client=client, gradients=True)
    for a, e in zip(actual, outputs(jax.nn.dot_product_attention), strict=True):
        np.testing.assert_allclose(a, e, atol=1e-5)
    mean = arrays[2].mean(axis=1).repeat(2, axis=1)
    np.testing.assert_allclose(actual[0][:, 2], mean, atol=1e-5)


def test_a_query_whose_bias_hides_all_keys_has_the_gradients_of_a_mean(client, arrays):
    lonely = np.arange(5)[:, None] == 2
    bias = np.where(lonely, -np.inf, np.zeros((5, 7), np.float32))
    mask = np.broadcast_to(~lonely, (5, 7))

    def loss(tensors, **options):
        return dot_product_attention(
            *tensors, client=client, gradients=True, **options
        ).sum()

    found = jax.grad(partial(loss, bias=bias))(arrays)
    for a, e in zip(found, jax.grad(partial(loss, mask=mask))(arrays), strict=True):
        np.testing.assert_allclose(a, e, atol=1e-5)


def test_the_default_client_computes(client, arrays):
    expected = dot_product_attention(*arrays, client=client)
    set_client(client)
    try:
        np.testing.assert_array_equal(dot_product_attention(*arrays), expected)
        compiled = jax.jit(dot_product_attention)(*arrays)
    finally:
        set_client(None)
    np.testing.assert_allclose(compiled, expected, atol=1e-6)


@pytest.mark.parametrize(
    "change, said",
    [
        ({0: jnp.ones((5, 8))}, "query: shape .5, 8. .expected .B, T, N, H."),
        ({1: jnp.ones((2, 7, 2, 6))}, r"key: shape .* \(expected \(2, 7, any, 8\)"),
        ({2: jnp.ones((2, 6, 2, 8))}, r"value: shape .* \(expected \(2, 7, 2, any\)"),
        ({1: jnp.ones((2, 7, 3, 8)), 2: jnp.ones((2, 7, 3, 8))}, "key: 3 heads"),
        ({1: jnp.ones((2, 7, 2, 8), jnp.bfloat16)}, "key: bfloat16 .expected float32"),
        ({"bias": jnp.ones((4, 7))}, "bias: shape .4, 7. .expected one that broad"),
        ({"mask": jnp.ones((3, 1, 5, 7), bool)}, "mask: shape .3, 1, 5, 7."),
        ({"query_seq_lengths": jnp.ones(3, int)}, "query_seq_lengths: shape .3,."),
    ],
)
def test_wrong_shapes_are_said_when_traced(client, arrays, change, said):
    tensors = [change.get(at, array) for at, array in enumerate(arrays)]
    options = {name: array for name, array in change.items() if isinstance(name, str)}
    call = partial(dot_product_attention, client=client, **options)
    for traced in (call, partial(jax.eval_shape, call)):
        with pytest.raises(InvalidArgumentError, match=said):
            traced(*tensors)


def test_integers_are_refused(client, arrays):
    tensors = [array.astype(jnp.int32) for array in arrays]
    call = partial(dot_product_attention, client=client)
    for traced in (call, partial(jax.eval_shape, call)):
        with pytest.raises(InvalidArgumentError, match=r"query: int32 \(expected"):
            traced(*tensors)


def test_what_the_server_says_is_not_hidden(arrays, tmp_path):
    with Client(f"unix:{tmp_path}/nobody") as nowhere:
        call = partial(dot_product_attention, client=nowhere)
        with pytest.raises(UnavailableError):
            call(*arrays)
        with pytest.raises(jax.errors.JaxRuntimeError, match="UnavailableError"):
            jax.block_until_ready(jax.jit(call)(*arrays))


def test_one_batch_entry_has_gradients(client, arrays):
    one = [array[0] for array in arrays]

    def loss(function, *tensors, **more):
        return function(*tensors, bias=jnp.ones((5, 7)), **more).sum()

    expected = jax.grad(partial(loss, jax.nn.dot_product_attention), (0, 1, 2))(*one)
    own = partial(dot_product_attention, client=client, gradients=True)
    found = jax.grad(partial(loss, own), (0, 1, 2))(*one)
    for a, e in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, e, atol=1e-5)
