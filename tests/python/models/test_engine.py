"""An engine where the adapters take a client."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import attention_client.jax
from attention_client import InvalidArgumentError
from attention_client.layers import AdditiveAttention
from attention_client.torch import (
    default_client,
    scaled_dot_product_attention,
    set_client,
)
from attention_client.transformers import ServiceCache
from attention_engine import Engine


@pytest.fixture
def tensors():
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(2, 4, 5, 8, generator=generator) for _ in range(3)]


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float64])
def test_pytorchs_function_takes_it(engine, tensors, kind):
    tensors = [tensor.to(kind) for tensor in tensors]
    own = torch.nn.functional.scaled_dot_product_attention(*tensors, is_causal=True)
    ours = scaled_dot_product_attention(*tensors, is_causal=True, client=engine)
    assert ours.dtype == kind
    off = 0.02 if kind == torch.bfloat16 else 1e-5
    torch.testing.assert_close(ours, own, atol=off, rtol=off)


def test_tensors_of_pytorch_are_read_where_they_are(engine, tensors):
    expected = engine.attend(*tensors).output
    heads_last = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in tensors]
    out = torch.full((2, 5, 4, 8), torch.nan).transpose(1, 2)
    result = engine.attend(*heads_last, out=out)
    assert result.output is out
    torch.testing.assert_close(out, expected, atol=0, rtol=0)


def test_an_output_of_bfloat16_is_written(engine, tensors):
    halves = [tensor.bfloat16() for tensor in tensors]
    out = torch.empty_like(halves[0])
    engine.attend(*halves, out=out)
    assert torch.equal(out, engine.attend(*halves).output)


def test_an_output_of_another_datatype_is_named(engine, tensors):
    for kind in (torch.float64, torch.float16):
        with pytest.raises(InvalidArgumentError) as caught:
            engine.attend(*tensors, out=torch.empty(2, 4, 5, 8, dtype=kind))
        assert caught.value.field == "out"


def test_an_output_that_is_the_negative_of_its_memory_is_named(engine, tensors):
    room = torch.zeros(2, 4, 5, 8)
    out = torch.complex(room, room).conj().imag
    assert out.is_neg()
    with pytest.raises(InvalidArgumentError, match="negative of its memory") as caught:
        engine.attend(*tensors, out=out)
    assert caught.value.field == "out"


def test_layers_take_it_and_learn(engine):
    layer = AdditiveAttention(num_hiddens=8, client=engine)
    queries, keys = torch.randn(2, 1, 20), torch.randn(2, 10, 2)
    layer(queries, keys, keys, torch.tensor([2, 6])).sum().backward()
    assert layer.w_v.weight.grad.abs().sum() > 0


def test_jax_takes_it(engine):
    x = jnp.asarray(np.random.default_rng(1).normal(size=(2, 3, 4, 8)), jnp.float32)
    ours = attention_client.jax.dot_product_attention(x, x, x, client=engine)
    own = jax.nn.dot_product_attention(x, x, x)
    np.testing.assert_allclose(ours, own, atol=1e-5)
    assert type(engine.attend(x, x, x).output) is type(x)


def test_the_default_may_be_local(monkeypatch):
    monkeypatch.setenv("ATTENTION_SERVER", "local")
    set_client(None)
    try:
        assert isinstance(default_client(), Engine)
    finally:
        set_client(None)


def test_a_cache_wants_what_keeps_sequences():
    from transformers import LlamaConfig

    with pytest.raises(TypeError, match="keeps no sequences"):
        ServiceCache(LlamaConfig(num_hidden_layers=1), object())
