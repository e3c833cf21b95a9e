"""Layers of Dive into Deep Learning for Flax, beside the book's formulas."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attention_client.flax import (
    AdditiveAttention,
    BilinearAttention,
    DotProductAttention,
    GaussianAttention,
    MultiHeadAttention,
    masked_softmax,
)

LENGTHS = [None, np.array([2, 6]), np.array([[1, 2, 3], [7, 0, 4]])]


@pytest.fixture
def given(normal):
    return [jnp.asarray(normal(2, *shape)) for shape in ((3, 8), (7, 8), (7, 4))]


def squares(queries, keys):
    return ((queries[:, :, None] - keys[:, None]) ** 2).sum(-1)


def additive(p, q, k):
    w_q, w_k, w_v = (p[name]["kernel"] for name in ("W_q", "W_k", "w_v"))
    return (jnp.tanh((q @ w_q)[:, :, None] + (k @ w_k)[:, None]) @ w_v)[..., 0]


LAYERS = {
    "dot product": (DotProductAttention, {}, lambda p, q, k: q @ k.mT / 8**0.5),
    "additive": (AdditiveAttention, {"num_hiddens": 5}, additive),
    "gaussian": (
        GaussianAttention,
        {"sigma": 2.0},
        lambda p, q, k: -squares(q, k) / (2 * p["sigma"] ** 2),
    ),
    "bilinear": (BilinearAttention, {}, lambda p, q, k: q @ p["W"] @ k.mT),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("valid_lens", LENGTHS)
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_its_formula(computing, given, name, valid_lens, compiled):
    kind, options, scores = LAYERS[name]
    layer = kind(**options, client=computing)
    variables = layer.init(jax.random.key(1), *given, valid_lens)
    parameters = variables.get("params", {})
    factors = jnp.linspace(-1, 1, 24).reshape(2, 3, 4)

    def ours(parameters, tensors):
        output, weights = layer.apply({"params": parameters}, *tensors, valid_lens)
        return (output * factors).sum(), (output, weights)

    def books(parameters, tensors):
        queries, keys, values = tensors
        weights = masked_softmax(scores(parameters, queries, keys), valid_lens)
        return (weights @ values * factors).sum(), (weights @ values, weights)

    found = []
    for function in (ours, books):
        both = jax.value_and_grad(function, (0, 1), has_aux=True)
        found.append((jax.jit(both) if compiled else both)(parameters, given))
    jax.tree.map(lambda a, e: np.testing.assert_allclose(a, e, atol=1e-4), *found)


@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_have_nothing_of_a_masked_key_that_is_nearer(computing, compiled):
    layer = GaussianAttention(sigma=1e-3, client=computing)
    queries, keys = jnp.array([[[0.0]]]), jnp.array([[[2.0], [0.0]]])
    parameters = {"params": {"sigma": jnp.float32(1e-3)}}

    def total(values):
        return layer.apply(parameters, queries, keys, values, jnp.array([1]))[0].sum()

    gradient = jax.grad(total)
    found = (jax.jit(gradient) if compiled else gradient)(jnp.array([[[3.0], [5.0]]]))
    np.testing.assert_array_equal(found, [[[1.0], [0.0]]])


def test_gradients_of_float16_are_computed_in_float32(computing):
    layer = GaussianAttention(sigma=100.0, client=computing)
    queries, keys = jnp.zeros((1, 1, 1)), jnp.array([[[300.0], [400.0]]])
    tensors = [queries, keys, keys / 100]

    def gradients(kind):
        def total(tensors):
            given = {"params": {"sigma": jnp.float32(100)}}
            return layer.apply(given, *tensors)[0].sum().astype(jnp.float32)

        return jax.grad(total)([tensor.astype(kind) for tensor in tensors])

    for one, other in zip(gradients("float16"), gradients("float32"), strict=True):
        assert one.dtype == jnp.float16
        np.testing.assert_allclose(one, other, rtol=2e-3)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("kind", ["float64", "int32"])
def test_the_output_has_the_datatype_of_queries_unless_integers(
    computing, kind, compiled
):
    with jax.enable_x64(True):
        tensors = [jnp.ones((1, 2, 4), kind)] * 3
        layer = DotProductAttention(client=computing)
        apply = jax.jit(layer.apply) if compiled else layer.apply
        output, weights = apply({}, *tensors)
    assert output.dtype == (kind if kind == "float64" else "float32")
    assert weights.dtype == jnp.float32
    np.testing.assert_array_equal(output, 1)


@pytest.mark.parametrize(
    "lengths, expected",
    [
        (None, [0.25, 0.25, 0.25, 0.25]),
        ([2, 0], [[0.5, 0.5, 0, 0], [0.25, 0.25, 0.25, 0.25]]),
        ([[1, 2], [4, 3]], [[1, 0, 0, 0], [0.5, 0.5, 0, 0]]),
    ],
)
def test_masked_softmax_is_the_books(lengths, expected):
    found = masked_softmax(jnp.zeros((2, 2, 4)), lengths)
    rows = found[0] if np.ndim(lengths) == 2 else found[:, 0]
    np.testing.assert_allclose(rows, np.broadcast_to(expected, rows.shape))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("valid_lens", LENGTHS)
def test_multi_head_attention_is_flaxs_dense_layers(client, given, valid_lens, bias):
    layer = MultiHeadAttention(12, 3, 0.5, bias, client)
    variables = layer.init(jax.random.key(1), *given, valid_lens)

    def heads(name, x):
        projected = nn.Dense(12, use_bias=bias).apply(
            {"params": variables["params"][name]}, x
        )
        return projected.reshape(*x.shape[:2], 3, 4).swapaxes(1, 2)

    query, key, value = (heads(f"W_{n}", x) for n, x in zip("qkv", given, strict=True))
    weights = masked_softmax(query @ key.mT / 2, valid_lens)
    joined = (weights @ value).swapaxes(1, 2).reshape(2, 3, 12)
    expected = nn.Dense(12, use_bias=bias).apply(
        {"params": variables["params"]["W_o"]}, joined
    )
    output, seen = layer.apply(variables, *given, valid_lens)
    np.testing.assert_allclose(output, expected, atol=1e-5)
    np.testing.assert_allclose(seen, weights, atol=1e-5)


def test_heads_divide_the_hidden_units(given):
    with pytest.raises(ValueError, match=r"num_heads: 5 .expected a divisor .* 12"):
        MultiHeadAttention(12, 5).init(jax.random.key(1), *given)


def test_dropout_is_trainings_and_its_gradients_are_of_what_was_kept(client, given):
    layer = DotProductAttention(dropout=0.5, client=client)
    queries, keys, values = given
    dropping = {"training": True, "rngs": {"dropout": jax.random.key(2)}}
    plain, weights = layer.apply({}, *given)

    def total(values):
        return layer.apply({}, queries, keys, values, **dropping)[0].sum()

    # Every weight is that of a value, so its gradient says what it was.
    of_values = jax.grad(total)(values)
    dropped, before = layer.apply({}, *given, **dropping)
    np.testing.assert_allclose(before, weights, atol=1e-6)
    assert not np.allclose(dropped, plain)
    np.testing.assert_allclose(dropped.sum(), (of_values * values).sum(), rtol=1e-4)
    again, _ = layer.apply({}, *given, **dropping)
    np.testing.assert_array_equal(again, dropped)


def test_a_layer_may_be_mapped(client, given):
    layer = DotProductAttention(client=client)
    queries = jnp.stack([given[0], -given[0]])
    mapped = jax.vmap(lambda q: layer.apply({}, q, *given[1:])[0])(queries)
    for one, alone in zip(mapped, queries, strict=True):
        np.testing.assert_allclose(
            one, layer.apply({}, alone, *given[1:])[0], atol=1e-6
        )
