"""What PyTorch does with functions: compiles, exports, differentiates, maps, casts."""

import gc

import pytest
import torch
from torch.nn import functional
from torch.nn.attention.bias import causal_lower_right, causal_upper_left

from attention_client import Client, InvalidArgumentError
from attention_client.layers import (
    AdditiveAttention,
    BilinearAttention,
    DotProductAttention,
    GaussianAttention,
    MultiHeadAttention,
    masked_softmax,
)
from attention_client.torch import scaled_dot_product_attention
from attention_engine import Engine

pytestmark = pytest.mark.usefixtures("default")


@pytest.fixture
def given():
    return [torch.randn(2, 4, n, d, requires_grad=True) for n, d in SHAPES]


SHAPES = ((5, 8), (7, 8), (7, 6))


def own(*tensors, **options):
    return scaled_dot_product_attention(*tensors, gradients=True, **options)


def close(actual, expected, tolerance=1e-5):
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("named", [False, True])
def test_it_is_compiled_as_one_graph(client, given, named):
    options = {"client": client} if named else {}

    @torch.compile(fullgraph=True)
    def compiled(*tensors):
        return own(*tensors, is_causal=True, **options) * 2

    expected = functional.scaled_dot_product_attention(*given, is_causal=True) * 2
    actual = compiled(*given)
    close([actual], [expected])
    close(
        torch.autograd.grad(actual.sum(), given),
        torch.autograd.grad(expected.sum(), given),
    )


def test_what_is_causal_may_follow_from_a_length(given):
    def alike(function, *tensors):
        return function(*tensors, is_causal=tensors[0].shape[2] > 3)

    compiled = torch.compile(alike, dynamic=True, backend="eager", fullgraph=True)
    for length in (5, 3):
        tensors = given[0][:, :, :length], *given[1:]
        expected = alike(functional.scaled_dot_product_attention, *tensors)
        close([compiled(own, *tensors)], [expected])


def test_one_compiled_call_may_have_one_client_after_another(given):
    @torch.compile(fullgraph=True)
    def compiled(client, *tensors):
        return own(*tensors, client=client)

    expected = functional.scaled_dot_product_attention(*given)
    for threads in (1, 2, 3):
        with Engine(threads=threads) as engine:
            close([compiled(engine, *given)], [expected])


def test_an_engine_that_was_never_called_is_compiled(given):
    with Engine(threads=1) as engine:
        compiled = torch.compile(lambda *t: own(*t, client=engine), backend="eager")
        close([compiled(*given)], [functional.scaled_dot_product_attention(*given)])


def test_compiled_dropout_drops_what_it_does_otherwise(given):
    def dropping(*tensors):
        return own(*tensors, dropout_p=0.4)

    found = []
    # Inductor has random numbers of its own.
    for function in (torch.compile(dropping, backend="aot_eager"), dropping):
        torch.manual_seed(3)
        output = function(*given)
        found.append([output, *torch.autograd.grad(output.sum(), given)])
    close(*found)


def test_it_is_exported_as_one_operator(given):
    class Model(torch.nn.Module):
        def forward(self, *tensors):
            return own(*tensors)

    given = [tensor.detach() for tensor in given]
    exported = torch.export.export(Model(), tuple(given))
    calls = [n for n in exported.graph.nodes if n.op == "call_function"]
    assert "attention_client.attend.default" in {str(call.target) for call in calls}
    assert torch.equal(exported.module()(*given), own(*given))


def test_an_exported_program_takes_no_other_client(server, given):
    class Model(torch.nn.Module):
        def __init__(self, client):
            super().__init__()
            self.client = client

        def forward(self, *tensors):
            return own(*tensors, client=self.client)

    def exported():
        with Client(server.target) as client:
            return torch.export.export(Model(client), tuple(given)).module()

    with torch.no_grad():
        for _ in range(3):
            program = exported()
            gc.collect()
            others = [Client(server.target) for _ in range(20)]
            with pytest.raises(RuntimeError, match="its client is gone"):
                program(*given)
            for other in others:
                other.close()


def test_the_operator_keeps_pytorchs_rules(given):
    settings = (0, "none", None, None, 0.0, "zero", True, False)
    operator = torch.ops.attention_client.attend.default
    torch.library.opcheck(operator, (*given, *[None] * 10, *settings))


def test_second_derivatives_are_pytorchs(given):
    def second(function):
        loss = function(*given).pow(2).sum()
        (first,) = torch.autograd.grad(loss, given[:1], create_graph=True)
        return torch.autograd.grad(first.pow(2).sum(), given)

    close(second(own), second(functional.scaled_dot_product_attention), 1e-4)


def test_keys_that_follow_from_queries_have_gradients_once():
    x = torch.randn(2, 5, 8, requires_grad=True)

    def second(function):
        loss = function(x, x * 2, x.sin()).pow(2).sum()
        (first,) = torch.autograd.grad(loss, x, create_graph=True)
        return torch.autograd.grad(first.pow(2).sum(), x)

    def plain(query, key, value):  # PyTorch's own kernel has no second derivatives
        return (query @ key.mT / 8**0.5).softmax(-1) @ value

    close(second(own), second(plain), 1e-3)


@pytest.mark.parametrize(
    "transform",
    [
        torch.func.grad,
        torch.func.jacrev,
        lambda function: torch.func.vmap(torch.func.grad(function)),
        lambda function: torch.func.grad(
            lambda *t: torch.func.grad(function)(*t).pow(2).sum()
        ),
    ],
)
def test_functional_transforms_are_pytorchs(given, transform):
    given = [tensor.detach() for tensor in given]

    def of(function):
        return transform(lambda *tensors: function(*tensors).pow(2).sum())(*given)

    close([of(own)], [of(functional.scaled_dot_product_attention)], 1e-4)


def test_vmap_makes_a_call_for_each_entry(given):
    given = [tensor.detach() for tensor in given]
    mapped = torch.func.vmap(scaled_dot_product_attention, in_dims=(0, 0, None))
    expected = functional.scaled_dot_product_attention(*given[:2], given[2][:1])
    close([mapped(*given[:2], given[2][0])], [expected])


def test_forward_mode_is_refused(given):
    given = [tensor.detach() for tensor in given]
    with pytest.raises(NotImplementedError, match=r"expected torch\.func\.grad"):
        torch.func.jvp(own, tuple(given), tuple(given))


LAYERS = {
    "dot product": DotProductAttention,
    "additive": lambda: AdditiveAttention(6, query_size=8, key_size=8),
    "gaussian": lambda: GaussianAttention(2.0),
    "bilinear": lambda: BilinearAttention(8, 8),
    "multi-head": lambda: MultiHeadAttention(
        8, 2, query_size=8, key_size=8, value_size=4
    ),
}


def tensors():
    return [
        torch.randn(2, n, d, requires_grad=True) for n, d in ((3, 8), (5, 8), (5, 4))
    ]


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_softmax_is_masked_in_halves(kind):
    weights = masked_softmax(torch.zeros(1, 2, 4, dtype=kind), torch.tensor([2]))
    assert weights.tolist() == [[[0.5, 0.5, 0, 0]] * 2]


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_work_in_halves(name, kind):
    inputs = tensors()
    exact = LAYERS[name]()
    layer = LAYERS[name]()
    layer.load_state_dict(exact.state_dict())
    layer.to(kind)
    expected, actual = exact(*inputs), layer(*(tensor.to(kind) for tensor in inputs))
    assert actual.dtype == kind
    close([actual.float()], [expected], 5e-2)
    expected.sum().backward()
    actual.sum().backward()
    for one, other in zip(layer.parameters(), exact.parameters(), strict=True):
        assert one.grad.dtype == kind
        close([one.grad.float()], [other.grad], 1e-1)


@pytest.mark.parametrize("name", LAYERS)
def test_layers_work_under_autocast(name):
    inputs = tensors()
    layer = LAYERS[name]()
    expected = layer(*inputs)
    with torch.autocast("cpu", torch.bfloat16):
        actual = layer(*inputs)
    assert actual.dtype == torch.bfloat16
    close([actual.float()], [expected], 5e-2)
    actual.float().sum().backward()
    assert all(one.grad.dtype == torch.float32 for one in layer.parameters())


@pytest.mark.parametrize("bias", [causal_upper_left, causal_lower_right])
def test_pytorchs_causal_biases_are_taken(client, given, bias):
    given = [tensor.detach() for tensor in given]
    expected = functional.scaled_dot_product_attention(*given, attn_mask=bias(5, 7))
    close([scaled_dot_product_attention(*given, attn_mask=bias(5, 7))], [expected])
    with pytest.raises(InvalidArgumentError, match=r"bias: .*causal='top_left'"):
        client.attend(*given, bias=bias(5, 7))
    with Engine(threads=1) as engine, pytest.raises(InvalidArgumentError, match="bias"):
        engine.attend(*given, bias=bias(5, 7))


def test_a_trace_has_the_call_as_an_operator(given):
    query, key, value = (tensor.detach() for tensor in given)

    def ours(query, key, value):
        return scaled_dot_product_attention(query, key, value)

    traced = torch.jit.trace(ours, (query, key, value), check_trace=False)
    other = torch.flip(query, [0])
    torch.testing.assert_close(
        traced(other, key, value), ours(other, key, value), atol=1e-6, rtol=1e-6
    )
