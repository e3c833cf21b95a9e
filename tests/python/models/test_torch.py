"""PyTorch's function and the service's, beside each other."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from attention_client import Client, InvalidArgumentError
from attention_client.torch import scaled_dot_product_attention, set_client
from attention_client.transformers import register

pytestmark = pytest.mark.usefixtures("default")


@pytest.fixture
def tensors():
    """tensors(query heads, key heads, leading extents)."""
    torch.manual_seed(1)

    def make(heads=4, key_heads=4, leading=(2,), dtype=torch.float32):
        shapes = ((heads, 5, 8), (key_heads, 7, 8), (key_heads, 7, 6))
        return [torch.randn(*leading, *shape).to(dtype) for shape in shapes]

    return make


def check(tensors, tolerance=1e-6, **options):
    expected = functional.scaled_dot_product_attention(*tensors, **options)
    actual = scaled_dot_product_attention(*tensors, **options)
    assert actual.dtype == expected.dtype
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=tolerance)


BOOLS = torch.arange(35).reshape(5, 7) % 3 > 0
EMPTY_ROW = BOOLS & (torch.arange(5)[:, None] != 2)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": True},
        {"scale": 0.1},
        {"attn_mask": BOOLS},
        {"attn_mask": EMPTY_ROW},
        {"attn_mask": BOOLS.expand(2, 1, 5, 7)},
        {"attn_mask": torch.linspace(-2, 2, 7).expand(5, 7)},
        {"attn_mask": torch.where(EMPTY_ROW, 0.5, -torch.inf)},
    ],
)
def test_an_option_means_the_same(tensors, options):
    check(tensors(), **options)


def test_integers_are_refused(tensors):
    query, key, value = tensors(dtype=torch.int64)
    with pytest.raises(ValueError, match=r"query: torch\.int64 \(expected floating"):
        scaled_dot_product_attention(query, key, value)
    with pytest.raises(ValueError, match=r"value: torch\.int64"):
        scaled_dot_product_attention(query.float(), key.float(), value)


@pytest.mark.parametrize("takes", [set_client, register])
def test_a_target_is_no_client(takes):
    with pytest.raises(InvalidArgumentError, match=r"client: 'a:1' .*Client\("):
        takes("a:1")


def test_grouped_queries_mean_the_same(tensors):
    check(tensors(heads=4, key_heads=2), enable_gqa=True)
    check(tensors(heads=4, key_heads=1, leading=(2, 3)), enable_gqa=True)


@pytest.mark.parametrize(
    "options", [{}, {"is_causal": True}, {"attn_mask": BOOLS.expand(4, 5, 7)}]
)
def test_grouped_queries_need_no_batch(tensors, options):
    check(tensors(heads=4, key_heads=2, leading=()), enable_gqa=True, **options)


@pytest.mark.parametrize("leading", [(), (3,), (2, 3), (2, 1, 3)])
def test_any_number_of_extents_will_do(tensors, leading):
    check(tensors(leading=leading))
    check(tensors(leading=leading), attn_mask=BOOLS)
    query, key, value = (tensor[..., 0, :, :] for tensor in tensors(leading=leading))
    check((query, key, value))


def test_extents_broadcast_as_in_pytorch(tensors):
    query, key, value = tensors()
    check((query, key[:1], value[:, :1]))


@pytest.mark.parametrize(
    "dtype, tolerance",
    [(torch.bfloat16, 1e-2), (torch.float16, 1e-3), (torch.float64, 1e-6)],
)
def test_datatypes_come_back_as_they_went(tensors, dtype, tolerance):
    check(tensors(dtype=dtype), tolerance)


def test_dropout_follows_from_pytorchs_seed(tensors):
    def call(seed):
        torch.manual_seed(seed)
        return scaled_dot_product_attention(*given, dropout_p=0.5)

    given = tensors()
    assert torch.equal(call(1), call(1))
    assert not torch.equal(call(1), call(2))


@pytest.mark.parametrize("p", [-0.1, 1.5, float("nan")])
def test_dropout_that_is_no_probability_is_refused(tensors, p):
    with pytest.raises(ValueError, match="dropout_p"):
        scaled_dot_product_attention(*tensors(), dropout_p=p)


def test_gradients_are_refused_and_no_grad_is_not(tensors):
    query, key, value = tensors()
    query.requires_grad_()
    with pytest.raises(InvalidArgumentError, match="query: requires gradients"):
        scaled_dot_product_attention(query, key, value)
    with torch.no_grad():
        check((query, key, value))


def test_wrong_shapes_are_said(tensors):
    given = tensors(heads=4, key_heads=2)
    with pytest.raises(ValueError, match="enable_gqa"):
        scaled_dot_product_attention(*given)
    with pytest.raises(ValueError, match="expected one of them"):
        scaled_dot_product_attention(*tensors(), attn_mask=BOOLS, is_causal=True)
    with pytest.raises(ValueError, match="2 extents or more"):
        scaled_dot_product_attention(*[torch.ones(3)] * 3)


def test_a_call_may_name_its_client(tensors, server):
    set_client(Client("unix:/nowhere"))
    with Client(server.target) as own:
        scaled_dot_product_attention(*tensors(), client=own)


def test_a_client_takes_tensors_in_any_layout(client):
    x = torch.randn(3, 2, 5, 8)
    turned = x.transpose(1, 2)
    expected = client.attend(*[turned.contiguous()] * 3, weights=True)
    result = client.attend(turned, turned.numpy(), turned, weights=True)
    assert isinstance(result.output, torch.Tensor)
    assert torch.equal(result.output, expected.output)
    assert torch.equal(result.weights, expected.weights)
    result.output.add_(1)
    assert isinstance(client.attend(*[turned.numpy()] * 3).output, np.ndarray)


class Named(torch.Tensor):
    """A subclass, as fastai and torchvision have them."""


def test_a_subclass_of_tensor_is_a_tensor(client, tensors):
    given = tensors(dtype=torch.bfloat16)
    named = [tensor.as_subclass(Named) for tensor in given]
    expected, result = (client.attend(*t, lse=True) for t in (given, named))
    assert isinstance(result.output, torch.Tensor)
    assert torch.equal(result.output, expected.output)
    assert torch.equal(result.lse, expected.lse)
    check(named, 1e-2)


@pytest.mark.parametrize("of", ["client", "engine"])
def test_a_tensor_may_be_the_negative_of_its_memory(request, tensors, of):
    computing = request.getfixturevalue(of)
    query, key, value = tensors()
    negative = torch.complex(torch.zeros_like(key), -key).conj().imag
    assert negative.is_neg()
    expected = computing.attend(query, key, value).output
    assert torch.equal(computing.attend(query, negative, value).output, expected)
    ours = scaled_dot_product_attention(query, negative, value, client=computing)
    assert torch.equal(ours, expected)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_sequences_take_tensors(client, kind):
    key, value, query = (torch.randn(heads, 9, 8).to(kind) for heads in (2, 2, 4))
    with client.sequence(heads=2, width=8, dtype=kind) as sequence:
        sequence.append(key[:, :5], value[:, :5])
        rest = key[:, 5:], value[:, 5:]
        output = sequence.attend(query, append=rest, causal="bottom_right").output
    assert output.dtype == kind
    expected = client.attend(query[None], key[None], value[None], causal=True).output
    torch.testing.assert_close(output, expected[0], atol=1e-2, rtol=1e-2)
