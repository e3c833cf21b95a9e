"""More layers of Dive into Deep Learning, beside the book's formulas."""

import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional

from attention_client.layers import (
    AdditiveAttention,
    BilinearAttention,
    DotProductAttention,
    GaussianAttention,
    MultiHeadAttention,
    masked_softmax,
)

pytestmark = pytest.mark.usefixtures("default")


@pytest.fixture
def given():
    shapes = (2, 3, 8), (2, 7, 8), (2, 7, 4)
    return [torch.randn(shape, requires_grad=True) for shape in shapes]


LENGTHS = [None, torch.tensor([2, 6]), torch.tensor([[1, 2, 3], [7, 0, 4]])]


def check(layer, scores, given, valid_lens):
    """Outputs, weights and gradients as of these scores."""
    actual = layer(*given, valid_lens)
    weights = masked_softmax(scores, valid_lens)
    expected = weights @ given[2]
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(layer.attention_weights, weights.detach())
    inputs = [*given, *layer.parameters()]
    factors = torch.randn_like(expected)
    for one, other in zip(
        torch.autograd.grad(actual, inputs, factors),
        torch.autograd.grad(expected, inputs, factors),
        strict=True,
    ):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("valid_lens", LENGTHS)
def test_gaussian_attention_is_its_formula(given, valid_lens):
    layer = GaussianAttention(sigma=2.0)
    squares = (given[0][:, :, None] - given[1][:, None]).square().sum(-1)
    check(layer, -squares / (2 * layer.sigma**2), given, valid_lens)


@pytest.mark.parametrize("valid_lens", LENGTHS)
def test_bilinear_attention_is_its_formula(given, valid_lens):
    layer = BilinearAttention(8, 8)
    check(layer, given[0] @ layer.W @ given[1].mT, given, valid_lens)


def test_bilinear_attention_takes_two_widths():
    queries, keys = torch.randn(2, 3, 20), torch.randn(2, 7, 2)
    layer = BilinearAttention(query_size=20, key_size=2)
    assert layer(queries, keys, keys).shape == (2, 3, 2)


@pytest.mark.parametrize(
    "lengths, expected",
    [
        (None, [0.25, 0.25, 0.25, 0.25]),
        ([2, 0], [[0.5, 0.5, 0, 0], [0.25, 0.25, 0.25, 0.25]]),
        ([[1, 2], [4, 3]], [[1, 0, 0, 0], [0.5, 0.5, 0, 0]]),
    ],
)
def test_masked_softmax_is_the_books(lengths, expected):
    lengths = None if lengths is None else torch.tensor(lengths)
    found = masked_softmax(torch.zeros(2, 2, 4), lengths)
    rows = found[0] if lengths is not None and lengths.dim() == 2 else found[:, 0]
    torch.testing.assert_close(rows, torch.tensor(expected).expand_as(rows).float())


class Book(nn.Module):
    """Multi-head attention as the book writes it, with heads among the entries."""

    def __init__(self, num_hiddens, num_heads, bias=False):
        super().__init__()
        self.num_heads = num_heads
        self.W_q = nn.LazyLinear(num_hiddens, bias=bias)
        self.W_k = nn.LazyLinear(num_hiddens, bias=bias)
        self.W_v = nn.LazyLinear(num_hiddens, bias=bias)
        self.W_o = nn.LazyLinear(num_hiddens, bias=bias)

    def forward(self, queries, keys, values, valid_lens):
        heads = [
            x.reshape(*x.shape[:2], self.num_heads, -1)
            .permute(0, 2, 1, 3)
            .flatten(0, 1)
            for x in (self.W_q(queries), self.W_k(keys), self.W_v(values))
        ]
        if valid_lens is not None:
            valid_lens = torch.repeat_interleave(valid_lens, self.num_heads, dim=0)
        scores = torch.bmm(heads[0], heads[1].mT) / heads[0].shape[-1] ** 0.5
        output = torch.bmm(masked_softmax(scores, valid_lens), heads[2])
        output = output.unflatten(0, (-1, self.num_heads)).permute(0, 2, 1, 3)
        return self.W_o(output.flatten(2))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("valid_lens", LENGTHS)
def test_multi_head_attention_takes_the_books_parameters(given, valid_lens, bias):
    book, layer = Book(12, 3, bias), MultiHeadAttention(12, 3, 0.5, bias).eval()
    expected = book(*given, valid_lens)
    layer.load_state_dict(book.state_dict())
    actual = layer(*given, valid_lens)
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)
    assert layer.attention.attention_weights.shape == (2, 3, 3, 7)
    for one, other in zip(
        torch.autograd.grad(actual.sum(), [*given, *layer.parameters()]),
        torch.autograd.grad(expected.sum(), [*given, *book.parameters()]),
        strict=True,
    ):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def test_heads_divide_the_hidden_units():
    with pytest.raises(ValueError, match=r"num_heads: 5 .expected a divisor .* 12"):
        MultiHeadAttention(12, 5)


def test_widths_of_the_earlier_edition_make_parameters_at_once():
    additive = AdditiveAttention(key_size=2, query_size=20, num_hiddens=8, dropout=0.1)
    assert additive.W_q.weight.shape == (8, 20)
    assert additive.W_k.weight.shape == (8, 2)
    multi = MultiHeadAttention(
        key_size=5, query_size=6, value_size=7, num_hiddens=8, num_heads=2, dropout=0.1
    )
    widths = [layer.weight.shape[1] for layer in (multi.W_k, multi.W_q, multi.W_v)]
    assert widths == [5, 6, 7]


def test_regression_learns_how_far_a_sight_reaches():
    x = torch.linspace(0, 5, 50)[:, None]
    y = 2 * torch.sin(2 * x) + x
    others = ~torch.eye(50, dtype=torch.bool)  # each is told by the others
    keys = x.expand(50, 50, 1)[others].reshape(50, 49, 1)
    values = y.T.expand(50, 50)[others].reshape(50, 49, 1)
    layer = GaussianAttention(sigma=2.0)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.1)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        loss = functional.mse_loss(layer(x[:, None], keys, values)[:, 0], y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 20
    assert 0.02 < abs(layer.sigma.item()) < 0.5


def test_a_layer_with_a_client_can_be_pickled(client, given):
    layer = DotProductAttention(client=client)
    expected = layer(*given)
    copied = pickle.loads(pickle.dumps(layer))
    assert copied.client is not client
    assert torch.equal(copied(*given), expected)
