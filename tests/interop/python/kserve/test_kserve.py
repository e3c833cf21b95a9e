"""The kserve SDK's InferenceGRPCClient."""

import asyncio

import grpc
import numpy as np
import oracle
import pytest
from kserve import InferenceGRPCClient, InferRequest
from kserve.protocol.infer_type import RequestedOutput
from kserve_inputs import to_inputs
from numpy.testing import assert_allclose

SDPA = "scaled_dot_product_attention"


def run(server, use):
    async def connected():
        async with InferenceGRPCClient(server.address) as client:
            return await use(client)

    return asyncio.run(connected())


def infer(server, model, inputs, **options):
    request = InferRequest(model_name=model, infer_inputs=inputs, **options)
    return run(server, lambda client: client.infer(request))


def output_of(response, name="output"):
    return response.get_output_by_name(name).as_numpy()


@pytest.mark.parametrize("binary", [True, False], ids=["raw", "typed"])
@pytest.mark.parametrize("model", oracle.MODELS)
def test_every_scoring_function(server, problem, model, binary):
    names, score = oracle.MODELS[model]
    parameters = {name: getattr(problem, name) for name in names}
    inputs = to_inputs({**problem.tensors, **parameters}, binary)
    output, _, _ = problem.expected(score, *parameters.values())
    assert_allclose(output_of(infer(server, model, inputs)), output, atol=1e-5)


def test_sixteen_bits(server, problem):
    tensors = {k: t.astype(np.float16) for k, t in problem.tensors.items()}
    output, _, _ = problem.expected()
    result = output_of(infer(server, SDPA, to_inputs(tensors)))
    assert_allclose(result.astype(np.float64), output, atol=0.01)


@pytest.mark.parametrize("scale", ["0.25", 2])
def test_numbers_without_a_double(server, problem, scale):
    response = infer(
        server, SDPA, to_inputs(problem.tensors), parameters={"scale": scale}
    )
    output, _, _ = problem.expected(scale=float(scale))
    assert_allclose(output_of(response), output, atol=1e-5)


def test_masks_and_requested_outputs(server, problem):
    masks = {"valid_lens": np.array([7, 3], np.int32)}
    response = infer(
        server,
        SDPA,
        to_inputs({**problem.tensors, **masks}),
        request_id="mine",
        request_outputs=[RequestedOutput("weights"), RequestedOutput("lse")],
    )
    _, weights, lse = problem.expected(masks=masks)
    assert response.id == "mine"
    assert [output.name for output in response.outputs] == ["weights", "lse"]
    assert_allclose(output_of(response, "weights"), weights, atol=1e-6)
    assert_allclose(output_of(response, "lse"), lse, atol=1e-5)


def test_a_trained_model(server, problem):
    trained = infer(server, "trained_linear", to_inputs(problem.tensors))
    parameters = [problem.w_q, problem.w_k, problem.w_v]
    output, _, _ = problem.expected(oracle.additive, *parameters)
    assert_allclose(output_of(trained), output, atol=1e-5)


def test_liveness_and_readiness(server):
    async def use(client):
        return (
            await client.is_server_live(),
            await client.is_server_ready(),
            await client.is_model_ready(SDPA),
            await client.is_model_ready("nobody"),
        )

    assert run(server, use) == (True, True, True, False)


@pytest.mark.parametrize(
    "model, code",
    [("nobody", grpc.StatusCode.NOT_FOUND), (SDPA, grpc.StatusCode.INVALID_ARGUMENT)],
)
def test_errors_keep_their_code(server, problem, model, code):
    with pytest.raises(grpc.RpcError) as raised:
        infer(server, model, to_inputs({"query": problem.query}))
    assert raised.value.code() == code
