"""Gradients of calls, beside PyTorch's own."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from attention_client import InvalidArgumentError
from attention_client.layers import (
    AdditiveAttention,
    DotProductAttention,
    masked_softmax,
)
from attention_client.torch import scaled_dot_product_attention

pytestmark = pytest.mark.usefixtures("default")


def tensors(*shapes, dtype=torch.float32):
    return [torch.randn(shape).to(dtype).requires_grad_() for shape in shapes]


def check(expected, actual, inputs, tolerance=1e-5):
    """The same outputs, and the same gradients of a sum with random weights."""
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=tolerance)
    factors = torch.randn_like(expected)
    wanted, found = (
        torch.autograd.grad(output, inputs, factors) for output in (expected, actual)
    )
    for gradient, own in zip(found, wanted, strict=True):
        torch.testing.assert_close(gradient, own, atol=tolerance, rtol=tolerance)


BOOLS = torch.arange(35).reshape(5, 7) % 3 > 0


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": True},
        {"scale": 0.1},
        {"attn_mask": BOOLS},
        {"attn_mask": BOOLS & (torch.arange(5)[:, None] != 2)},  # an empty row
        {"attn_mask": torch.where(BOOLS, 0.5, -torch.inf)},
    ],
)
def test_gradients_are_pytorchs(options):
    given = tensors((2, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 6))
    expected = functional.scaled_dot_product_attention(*given, **options)
    actual = scaled_dot_product_attention(*given, **options, gradients=True)
    check(expected, actual, given)


def test_gradients_pass_through_groups_and_broadcasting():
    given = tensors((2, 3, 4, 5, 8), (1, 3, 2, 7, 8), (2, 1, 2, 7, 6))
    expected = functional.scaled_dot_product_attention(
        given[0],
        *(t.expand(2, 3, *t.shape[2:]) for t in given[1:]),
        enable_gqa=True,
    )
    actual = scaled_dot_product_attention(*given, enable_gqa=True, gradients=True)
    check(expected, actual, given)


@pytest.mark.parametrize(
    "dtype, tolerance", [(torch.bfloat16, 4e-2), (torch.float64, 1e-5)]
)
def test_gradients_are_of_the_inputs_datatype(dtype, tolerance):
    given = tensors(*[(2, 5, 8)] * 3, dtype=dtype)
    expected = functional.scaled_dot_product_attention(*given)
    check(
        expected, scaled_dot_product_attention(*given, gradients=True), given, tolerance
    )


def test_a_bias_has_gradients():
    bias, *given = tensors((5, 7), (2, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 6))
    expected = functional.scaled_dot_product_attention(*given, attn_mask=bias)
    actual = scaled_dot_product_attention(*given, attn_mask=bias, gradients=True)
    check(expected, actual, [bias])


def test_dropped_weights_are_the_same_on_the_way_back():
    query, key, value = tensors((2, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 7))
    identity = torch.eye(7).expand(2, 4, 7, 7)

    def attend(value, **options):
        torch.manual_seed(3)
        return scaled_dot_product_attention(query, key, value, dropout_p=0.4, **options)

    with torch.no_grad():
        dropped = attend(identity)  # the weights after dropout
    assert 0 < (dropped == 0).sum() < dropped.numel()
    scores = query @ key.mT / math.sqrt(8)
    expected = scores.softmax(-1) * (dropped > 0) / 0.6 @ value
    check(expected, attend(value, gradients=True), [query, key, value])


def test_without_being_asked_for_they_are_refused():
    given = tensors(*[(2, 5, 8)] * 3)
    with pytest.raises(InvalidArgumentError, match="gradients=True"):
        scaled_dot_product_attention(*given)


class Book:
    """The layers as Dive into Deep Learning writes them."""

    @staticmethod
    def masked_softmax(scores, valid_lens):
        if valid_lens is None:
            return functional.softmax(scores, dim=-1)
        shape = scores.shape
        if valid_lens.dim() == 1:
            valid_lens = torch.repeat_interleave(valid_lens, shape[1])
        else:
            valid_lens = valid_lens.reshape(-1)
        rows = scores.reshape(-1, shape[-1])
        mask = torch.arange(shape[-1])[None, :] < valid_lens[:, None]
        return functional.softmax(rows.masked_fill(~mask, -1e6).reshape(shape), dim=-1)

    @staticmethod
    def dot_product(queries, keys):
        return torch.bmm(queries, keys.transpose(1, 2)) / math.sqrt(queries.shape[-1])

    @staticmethod
    def additive(layer, queries, keys):
        features = layer.W_q(queries).unsqueeze(2) + layer.W_k(keys).unsqueeze(1)
        return layer.w_v(torch.tanh(features)).squeeze(-1)


LENGTHS = [None, torch.tensor([2, 6]), torch.tensor([[1, 2, 3], [7, 0, 4]])]


@pytest.mark.parametrize("valid_lens", LENGTHS)
def test_dot_product_attention_is_the_books(valid_lens):
    given = tensors((2, 3, 8), (2, 7, 8), (2, 7, 4))
    layer = DotProductAttention(dropout=0.5).eval()
    weights = Book.masked_softmax(Book.dot_product(*given[:2]), valid_lens)
    check(weights @ given[2], layer(*given, valid_lens), given)
    torch.testing.assert_close(layer.attention_weights, weights.detach())


@pytest.mark.parametrize("valid_lens", [torch.ones(0), torch.ones(0, 3)])
def test_a_batch_may_be_empty(valid_lens):
    given = tensors((0, 3, 8), (0, 7, 8), (0, 7, 4))
    layer = DotProductAttention(dropout=0.5).eval()
    weights = Book.dot_product(*given[:2])  # of no rows
    check(weights @ given[2], layer(*given, valid_lens.int()), given)
    assert masked_softmax(weights, valid_lens).shape == (0, 3, 7)


@pytest.mark.parametrize("valid_lens", LENGTHS)
def test_additive_attention_is_the_books(valid_lens):
    given = tensors((2, 3, 20), (2, 7, 2), (2, 7, 4))
    layer = AdditiveAttention(num_hiddens=8, dropout=0.1).eval()
    actual = layer(*given, valid_lens)
    assert {n: tuple(p.shape) for n, p in layer.state_dict().items()} == {
        "W_k.weight": (8, 2),
        "W_q.weight": (8, 20),
        "w_v.weight": (1, 8),
    }
    weights = Book.masked_softmax(Book.additive(layer, *given[:2]), valid_lens)
    check(weights @ given[2], actual, [*given, *layer.parameters()])
    torch.testing.assert_close(layer.attention_weights, weights.detach())


def test_layers_drop_weights_in_training_alone():
    given = tensors((2, 3, 8), (2, 7, 8), (2, 7, 4))
    layer = DotProductAttention(dropout=0.5)
    first, second = layer(*given), layer(*given)
    assert not torch.equal(first, second)
    torch.testing.assert_close(layer.attention_weights.sum(-1), torch.ones(2, 3))
    layer.eval()
    assert torch.equal(layer(*given), layer(*given))


def test_layers_take_heads():
    given = tensors((2, 4, 3, 8), (2, 4, 7, 8), (2, 4, 7, 4))
    lengths = torch.tensor([2, 6])
    mask = (torch.arange(7) < lengths[:, None])[:, None, None]
    expected = functional.scaled_dot_product_attention(*given, attn_mask=mask)
    check(expected, DotProductAttention()(*given, lengths), given)


def test_a_model_learns_with_additive_attention():
    # The third key is marked; the answer is its value.
    keys = torch.randn(16, 5, 4)
    marked = torch.randint(5, (16,))
    keys[torch.arange(16), marked] += 3
    values = torch.randn(16, 5, 1)
    answers = values[torch.arange(16), marked]
    queries = torch.ones(16, 1, 4)
    layer = AdditiveAttention(8)
    layer(queries, keys, values)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(layer(queries, keys, values)[:, 0], answers)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 4
